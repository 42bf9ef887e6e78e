/* Opens, drains and stops the gRPC servers. */
#include "program/picker/grpc.h"

#include "core/base/log.h"
#include "net/server/shutdown.h"
#include "program/process/listen_address.h"

enum {
    /* How much may be sent on a stream, and on a connection, before it is processed: a body of some
     * MB arrives without waiting for window updates. */
    STREAM_WINDOW_BYTES = 4 * 1024 * 1024,
    CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024,
    MESSAGE_OVERHEAD_BYTES = 1024 * 1024, /* of a message, beside the body */
    MAX_HEALTH_STREAMS = 1000,
    MAX_HEALTH_CONNECTIONS = 256,
    HEALTH_MEMORY_BYTES = 16 * 1024 * 1024,
    MIN_STREAMS = 100,
};

/* ---- health ---------------------------------------------------------------------------------- */

/* Names that probes ask for: those of upstream's pickers, and the ext-proc service's, which Envoy
 * uses. */
static bool is_name(struct str service) {
    static const char *const names[] = {"", "readiness", "inference-extension", PICK_SERVICE_NAME};
    size_t i = 0, n = sizeof names / sizeof names[0];
    while (i < n && !str_is(service, names[i])) {
        i++;
    }
    return i < n;
}

static enum grpc_health_state health_of(void *context, struct str service) {
    struct pick_grpc *self = context;
    if (str_is(service, "liveness")) {
        return loop_health_is_live(self->loops) ? GRPC_HEALTH_SERVING : GRPC_HEALTH_NOT_SERVING;
    }
    if (!is_name(service)) {
        return GRPC_HEALTH_SERVICE_UNKNOWN;
    }
    bool ready = pool_set_generation(self->pools) > 0 && atomic_load(self->ready) &&
                 !atomic_load_explicit(&self->draining, memory_order_relaxed) &&
                 loop_health_is_ready(self->loops);
    return ready ? GRPC_HEALTH_SERVING : GRPC_HEALTH_NOT_SERVING;
}

static enum status make_health(struct pick_grpc *self, struct worker *const *workers,
                               size_t n_workers, struct grpc_health **out, struct error *err) {
    struct grpc_health_options options = {
        .state_of = health_of,
        .context = self,
        .names = "liveness, readiness, inference-extension, " PICK_SERVICE_NAME " or nothing",
        .workers = workers,
        .n_workers = n_workers,
    };
    return grpc_health_new(&options, out, err);
}

/* ---- services -------------------------------------------------------------------------------- */

/* service.name is upstream's by default. */
enum status pick_traces_open(const struct pick_settings *settings, struct arena *arena,
                             struct otel_settings *traces, struct span_writer **out,
                             struct error *err) {
    if (!settings->tracing) {
        return ST_OK;
    }
    enum status st = otel_settings_read(arena, "llm-d-epp", traces, err);
    if (st == ST_OK && traces->exports) {
        st = span_writer_new(&traces->collector, out, err);
    }
    return st == ST_OK ? ST_OK : error_prefix(err, "--tracing");
}

struct pick_workers_options pick_workers_options(const struct pick_settings *settings,
                                                 struct pool_set *pools,
                                                 const struct otel_settings *traces,
                                                 struct span_writer *span_writer) {
    return (struct pick_workers_options){
        .pools = pools,
        .limits = {.max_body_size = settings->max_body_size,
                   .answer_timeout_ns = settings->answer_timeout_ns},
        .fairness_id_metric_label_limit = settings->fairness_id_metric_label_limit,
        .emits_scores = settings->emit_endpoint_scores,
        .sampler = settings->tracing ? &traces->sampler : NULL,
        .span_writer = span_writer,
    };
}

static enum status make_services(struct pick_grpc *self, const struct pick_settings *settings,
                                 const struct process_threads *threads, struct error *err) {
    const struct pick_workers_options options =
        pick_workers_options(settings, self->pools, &self->traces, self->span_writer);
    enum status st = pick_workers_new(&options, &self->workers, err);
    if (st == ST_OK) {
        st = pick_service_new(self->workers, threads->workers, threads->n_workers, &self->service,
                              err);
    }
    if (st == ST_OK) {
        st = make_health(self, threads->workers, threads->n_workers, &self->health, err);
    }
    if (st == ST_OK) {
        grpc_health_methods(self->health, self->methods);
        self->methods[GRPC_HEALTH_METHODS] = pick_service_method(self->service);
        pick_reflection_methods(self->methods + GRPC_HEALTH_METHODS + 1);
    }
    return st;
}

/* Returns: --max-streams, or as many as half of --client-memory has space for, so that one
 * connection leaves memory to others. */
static uint32_t max_streams(const struct pick_settings *settings) {
    uint64_t fit = settings->client_memory.n_bytes / 2 / PICK_STREAM_BYTES;
    fit = fit > MIN_STREAMS ? fit : MIN_STREAMS;
    return (uint32_t)(settings->max_streams < fit ? settings->max_streams : fit);
}

struct net_limits pick_net_limits(const struct pick_settings *settings) {
    return (struct net_limits){
        .max_header_size = settings->max_header_size,
        .max_body_size = settings->max_body_size + MESSAGE_OVERHEAD_BYTES,
        .request_memory = settings->request_memory,
        .idle_timeout_ns = settings->idle_timeout_ns,
        .keepalive_time_ns = settings->keepalive_time_ns,
        .header_timeout_ns = settings->header_timeout_ns,
        .body_timeout_ns = settings->body_timeout_ns,
        .write_timeout_ns = settings->write_timeout_ns,
        .min_write_rate = settings->min_write_rate,
        .max_unsent_size = settings->max_unsent_size,
    };
}

static struct grpc_limits limits_of(const struct pick_settings *settings) {
    return (struct grpc_limits){
        .net = pick_net_limits(settings),
        .stream_bytes = GRPC_STREAM_MEMORY_BYTES,
        .max_streams = max_streams(settings),
        .stream_window_bytes = grpc_stream_window(settings->body_memory.n_bytes,
                                                  max_streams(settings), STREAM_WINDOW_BYTES),
        .connection_window_bytes = CONNECTION_WINDOW_BYTES,
    };
}

/* ---- servers --------------------------------------------------------------------------------- */

static enum status listen_health(struct pick_grpc *self, const char *text,
                                 struct listen_address *listen_address, struct error *err) {
    static const struct listen_scheme scheme = {.flag = "health", .plain = "health"};
    struct address address;
    enum status st = address_parse(str_of(text), &address, err);
    if (st == ST_OK) {
        st = grpc_server_listen(self->health_server, &address, NULL, &listen_address->address, err);
    }
    if (st != ST_OK) {
        return error_prefix(err, "--health %s", text);
    }
    listen_address_log(&scheme, listen_address, false);
    return ST_OK;
}

static enum status open_health(struct pick_grpc *self, const struct pick_settings *settings,
                               const struct grpc_server_options *options,
                               struct listen_address *bound, struct error *err) {
    struct worker *const workers[] = {options->acceptor};
    struct grpc_server_options health = *options;
    self->health_budget = (struct net_budget){.memory = HEALTH_MEMORY_BYTES,
                                              .body_memory = HEALTH_MEMORY_BYTES,
                                              .max_connections = MAX_HEALTH_CONNECTIONS};
    health.budget = &self->health_budget;
    health.methods = self->own_methods;
    health.n_methods = GRPC_HEALTH_METHODS;
    health.workers = workers;
    health.n_workers = 1;
    health.limits.max_streams = MAX_HEALTH_STREAMS;
    if (settings->health.n == 0) {
        return ST_OK;
    }
    enum status st = make_health(self, workers, 1, &self->own_health, err);
    if (st == ST_OK) {
        grpc_health_methods(self->own_health, self->own_methods);
        st = grpc_server_new(&health, &self->health_server, err);
    }
    for (size_t i = 0; st == ST_OK && i < settings->health.n; i++) {
        st = listen_health(self, settings->health.items[i], &bound[i], err);
    }
    return st;
}

enum status pick_tls_open(const struct pick_settings *settings, struct tls_server **out,
                          struct error *err) {
    struct tls_server_options options = {
        .cert = {"--grpc-tls-cert", settings->grpc_tls_cert},
        .key = {"--grpc-tls-key", settings->grpc_tls_key},
        .client_ca = {"--grpc-tls-client-ca", settings->grpc_tls_client_ca},
        .self_signed = settings->grpc_tls_self_signed,
        .only_1_3 = settings->grpc_tls_min_version == 1,
        .suites = {"--grpc-tls-suites", settings->grpc_tls_suites}};
    *out = NULL;
    return pick_has_tls(settings) ? tls_server_new(&options, time(NULL), out, err) : ST_OK;
}

/* For grpc_server_options: no method reads metadata of its call. */
static bool keeps_no_field(struct str name, void *context) {
    (void)name, (void)context;
    return false;
}

enum status pick_grpc_open(struct pick_grpc *self, const struct pick_settings *settings,
                           struct pool_set *pools, const struct process_threads *threads,
                           struct net_budget *budget, const struct tls_server *tls,
                           struct listen_address *bound, struct error *err) {
    struct grpc_server_options options = {.limits = limits_of(settings),
                                          .budget = budget,
                                          .methods = self->methods,
                                          .n_methods = PICK_GRPC_METHODS,
                                          .keeps_field = keeps_no_field,
                                          .workers = threads->workers,
                                          .n_workers = threads->n_workers,
                                          .acceptor = threads->main};
    struct listen_scheme scheme = pick_grpc_scheme(settings);
    self->pools = pools;
    self->loops = threads->health;
    if (options.limits.max_streams < settings->max_streams) {
        log_event(LOG_INFO,
                  "fewer requests on a connection than --max-streams, for --client-memory",
                  LOG_U64("max_streams", settings->max_streams),
                  LOG_U64("used", options.limits.max_streams));
    }
    self->arena = settings->tracing ? arena_new(NULL, 0) : NULL;
    if (settings->tracing && !self->arena) {
        return error_no_memory(err, "traces");
    }
    enum status st =
        pick_traces_open(settings, self->arena, &self->traces, &self->span_writer, err);
    if (st == ST_OK) {
        st = make_services(self, settings, threads, err);
    }
    if (st == ST_OK) {
        st = grpc_server_new(&options, &self->server, err);
    }
    for (size_t i = 0; st == ST_OK && i < settings->grpc.n; i++) {
        st = grpc_listen(self->server, &scheme, settings->grpc.items[i], tls,
                         pick_has_tls(settings), &bound[i], err);
    }
    return st == ST_OK ? open_health(self, settings, &options, bound + settings->grpc.n, err) : st;
}

/* ---- drain and stop -------------------------------------------------------------------------- */

void pick_grpc_refresh_pools(struct pick_grpc *self) {
    pick_service_refresh(self->service);
    pick_grpc_refresh_health(self);
}

void pick_grpc_refresh_health(struct pick_grpc *self) {
    grpc_health_notify(self->health);
    if (self->own_health) {
        grpc_health_notify(self->own_health);
    }
}

/* Health keeps being served at its own address until the process ends. */
void pick_grpc_drain(struct pick_grpc *self) {
    atomic_store_explicit(&self->draining, true, memory_order_relaxed);
    grpc_health_shutdown(self->health);
    if (self->own_health) {
        grpc_health_shutdown(self->own_health);
    }
    net_server_drain(grpc_server_net(self->server));
}

uint64_t pick_grpc_in_flight(const struct pick_grpc *self) {
    return self->server ? net_server_in_flight(grpc_server_net(self->server)) : 0;
}

size_t pick_grpc_stop(struct pick_grpc *self, void (*stopped)(void *user), void *user) {
    struct grpc_server *const servers[] = {self->server, self->health_server};
    size_t n = 0;
    for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++) {
        if (servers[i]) {
            net_server_stop(grpc_server_net(servers[i]), stopped, user);
            n++;
        }
    }
    return n;
}

void pick_grpc_free(struct pick_grpc *self) {
    grpc_server_free(self->server);
    grpc_server_free(self->health_server);
    pick_service_free(self->service);
    pick_workers_free(self->workers);
    span_writer_free(self->span_writer);
    grpc_health_free(self->health);
    grpc_health_free(self->own_health);
    arena_free(self->arena);
}
