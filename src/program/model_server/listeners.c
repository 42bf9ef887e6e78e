/* Start and shutdown of the servers of all protocols. */
#include "program/model_server/listeners.h"

#include <assert.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/must/must.h"
#include "core/os/ready_file.h"
#include "net/server/shutdown.h"
#include "serve/admin/routes.h"
#include "serve/scheduler/shared_budget.h"

/* ---- limits ---------------------------------------------------------------------------------- */

static struct net_limits limits_of(const struct serve_settings *settings) {
    return (struct net_limits){
        .max_header_size = settings->max_header_size,
        .max_body_size = settings->max_body_size,
        .request_memory = settings->request_memory,
        .idle_timeout_ns = settings->idle_timeout_ns,
        .keepalive_time_ns = settings->keepalive_time_ns,
        .header_timeout_ns = settings->header_timeout_ns,
        .body_timeout_ns = settings->body_timeout_ns,
        .min_body_rate = settings->min_body_rate,
        .write_timeout_ns = settings->write_timeout_ns,
        .min_write_rate = settings->min_write_rate,
        .max_unsent_size = settings->max_unsent_size,
        .discard_size = settings->discard_size,
    };
}

/* ---- the admin listener ---------------------------------------------------------------------- */

static void admin_init(struct serve_admin *self, struct serve_listeners *listeners,
                       struct repository *repository, struct worker *main, struct worker *worker) {
    self->main = main;
    admin_metrics_init(&self->metrics, repository, SLUICE_VERSION);
    self->metrics.process.budget = &listeners->budget;
    self->metrics.latencies = &listeners->settings->latencies;
    self->metrics.process.hides_machine = !listeners->settings->allow_cpu_metrics;
    self->has_metrics = true;
    self->api = (struct admin_api){
        .metrics = &self->metrics,
        .draining = &listeners->http_api.draining,
        .web = &listeners->settings->web,
        .loops = listeners->services.loops,
        .state = {.print = admin_models_print, .context = repository, .worker = worker}};
}

/* ---- pages that clients share ---------------------------------------------------------------- */

static void print_metrics(void *context, struct buf *out) {
    struct metric_text text = {.out = out, .format = METRIC_FORMAT_PROMETHEUS};
    admin_metrics_print(context, &text);
}

static void print_openmetrics(void *context, struct buf *out) {
    struct metric_text text = {.out = out, .format = METRIC_FORMAT_OPENMETRICS};
    admin_metrics_print(context, &text);
}

/* They are printed by the worker of the admin listener. */
static enum status open_pages(struct serve_listeners *self, struct repository *repository,
                              struct worker *printer, struct error *err) {
    struct shared_pages_options options = {.printer = printer, .budget = &self->budget};
    struct shared_page_printing metrics = {.print = print_metrics,
                                           .context = &self->admin.metrics,
                                           .protocol = NET_BODY_HTTP,
                                           .interval_ns = self->settings->metrics_interval_ns};
    options.kinds[PAGE_METRICS] = metrics;
    metrics.print = print_openmetrics;
    options.kinds[PAGE_OPENMETRICS] = metrics;
    http_pages_list(options.kinds, repository);
    grpc_pages_list(options.kinds, repository);
    return shared_pages_new(&options, &self->services.pages, err);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* The URL of an --mip listener, with the actual port. */
static const char *mip_url(struct arena *arena, const struct address *address,
                           const struct mip_target *target) {
    char text[MIP_URL_BYTES];
    bool versioned = target->version.ptr != NULL;
    return arena_printf(arena, "%s=%.*s%s%.*s", mip_url_print(address, text),
                        STR_ARG(target->model), versioned ? ":" : "", STR_ARG(target->version))
        .ptr;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static enum status start_http(struct serve_listeners *self, const struct process_threads *threads,
                              struct error *err) {
    const struct serve_settings *settings = self->settings;
    struct net_limits limits = limits_of(settings);
    limits.reuse_port = settings->reuse_http_port;
    if (settings->http_max_input_size > 0) {
        limits.max_body_size = settings->http_max_input_size;
    }
    self->http_api = (struct http_api){
        .services = self->services,
        .max_body_size = limits.max_body_size,
        .server_name = settings->id,
        .server_version = SLUICE_VERSION,
        .keys = self->security.keys,
        .restrictions = &settings->http_restrictions,
        .web = &settings->web,
        .forward = self->http_forward,
        .platform = settings->platform != HTTP_PLATFORM_NONE ? &settings->platform_routes : NULL,
    };
    struct http_server_options options = {.limits = limits,
                                          .budget = &self->budget,
                                          .router = http_api_router(&self->http_api),
                                          .workers = threads->workers,
                                          .n_workers = threads->n_workers,
                                          .acceptor = threads->main,
                                          .server_name = "sluice/" SLUICE_VERSION};
    if (settings->grpc_on_http && self->grpc.server) {
        options.h2 = self->grpc.server;
    }
    return http_server_new(&options, &self->http, err);
}

static enum status listen_http(struct serve_listeners *self, const char *text,
                               struct serve_bound_address *out, struct error *err) {
    struct listen_scheme scheme = serve_http_scheme(self->settings);
    struct listen_address listen_address;
    enum status st = listen_address_parse(&scheme, text, &listen_address, err);
    if (st != ST_OK) {
        return st;
    }
    const struct tls_server *tls = listen_address.tls ? self->security.http_tls : NULL;
    st = http_server_listen(self->http, &listen_address.address, tls, &out->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--http %s", text);
    }
    listen_address.address = out->address;
    listen_address_log(&scheme, &listen_address, serve_security_has_tls(self->settings));
    out->url = listen_address_url(self->arena, &scheme, &listen_address);
    return ST_OK;
}

static enum status open_http(struct serve_listeners *self, const struct process_threads *threads,
                             struct error *err) {
    enum status st = self->settings->http_header_forward_pattern
                         ? header_forward_new(self->settings->http_header_forward_pattern,
                                              &self->http_forward, err)
                         : ST_OK;
    if (st == ST_OK) {
        st = start_http(self, threads, err);
    }
    for (size_t i = 0; st == ST_OK && i < self->settings->http.n; i++) {
        st = listen_http(self, self->settings->http.items[i], &self->addresses[i], err);
    }
    return st;
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* ---- gRPC ------------------------------------------------------------------------------------ */

static enum status open_grpc(struct serve_listeners *self, const struct process_threads *threads,
                             struct error *err) {
    size_t n = self->settings->grpc.n;
    struct grpc_server_options options = {.limits = {.net = limits_of(self->settings)},
                                          .budget = &self->budget,
                                          .workers = threads->workers,
                                          .n_workers = threads->n_workers,
                                          .acceptor = threads->main,
                                          .admit = grpc_api_admit,
                                          .admit_context = self->security.keys};
    struct listen_scheme scheme = serve_grpc_scheme(self->settings);
    struct listen_address *places = arena_calloc(self->arena, n, sizeof(*places));
    enum status st = serve_grpc_open(&self->grpc, self->settings, &self->services, &options,
                                     self->security.grpc_tls, places, err);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        struct serve_bound_address *out = &self->addresses[self->settings->http.n + i];
        out->address = places[i].address;
        out->url = listen_address_url(self->arena, &scheme, &places[i]);
    }
    return st;
}

/* ---- MIP ------------------------------------------------------------------------------------- */

static enum status open_mip(struct serve_listeners *self, const struct process_threads *threads,
                            struct error *err) {
    size_t n = self->settings->mip.n;
    struct mip_server_options options = {.limits = limits_of(self->settings),
                                         .budget = &self->budget,
                                         .workers = threads->workers,
                                         .n_workers = threads->n_workers,
                                         .acceptor = threads->main};
    struct address *bound = arena_calloc(self->arena, n, sizeof(*bound));
    enum status st = serve_mip_open(&self->mip, self->settings, &self->services, &options,
                                    self->arena, bound, err);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        size_t before = self->settings->http.n + self->settings->grpc.n;
        struct serve_bound_address *out = &self->addresses[before + i];
        out->address = bound[i];
        out->url = mip_url(self->arena, &bound[i], &self->mip.targets[i]);
    }
    return st;
}

/* ---- metrics --------------------------------------------------------------------------------- */

enum { MAX_SERVERS = 4 };

/* Lists the servers that were created: those of the protocols, then the admin listener's. */
static size_t list_servers(const struct serve_listeners *self,
                           struct net_report_server servers[MAX_SERVERS]) {
    struct http_server *metrics = self->admin.listener.server;
    const struct net_report_server all[MAX_SERVERS] = {
        {"http", self->http ? http_server_net(self->http) : NULL},
        {"grpc", self->grpc.server ? grpc_server_net(self->grpc.server) : NULL},
        {"mip", self->mip.server ? mip_server_net(self->mip.server) : NULL},
        {"metrics", metrics ? http_server_net(metrics) : NULL},
    };
    size_t n = 0;
    for (size_t i = 0; i < MAX_SERVERS; i++) {
        if (all[i].server) {
            servers[n++] = all[i];
        }
    }
    return n;
}

struct admin_opening {
    struct serve_listeners *listeners;
    enum status st;
    struct error *err;
};

/* Before the first connection is accepted the servers are added. Thread: the admin worker's. */
static void open_admin_listener(void *arg) {
    struct admin_opening *opening = arg;
    struct serve_listeners *self = opening->listeners;
    struct serve_admin *admin = &self->admin;
    struct admin_listener_options options = {.where = self->settings->metrics,
                                             .limits = limits_of(self->settings),
                                             .router = admin_api_router(&admin->api),
                                             .worker = admin->api.state.worker};
    opening->st = admin_listener_open(&admin->listener, &options, opening->err);
    if (opening->st == ST_OK) {
        struct admin_state *state = &admin->api.state;
        _Static_assert((int)MAX_SERVERS <= (int)NET_REPORT_SERVERS, "all fit");
        state->n_servers = list_servers(self, state->servers);
    }
}

static enum status open_admin(struct serve_listeners *self, struct repository *repository,
                              const struct process_threads *threads, struct error *err) {
    struct admin_opening opening = {.listeners = self, .err = err};
    admin_init(&self->admin, self, repository, threads->main, threads->admin);
    self->admin.metrics.http_url = self->settings->http.n > 0 ? self->addresses[0].url : NULL;
    worker_call(threads->admin, open_admin_listener, &opening);
    enum status st = opening.st;
    if (st == ST_OK && self->admin.listener.server) {
        struct serve_bound_address *out = &self->addresses[self->n_addresses - 1];
        out->address = self->admin.listener.address;
        out->url = admin_listener_url(&self->admin.listener, self->arena);
        struct str metrics_url = str_of(out->url);
        if (str_ends_with(metrics_url, STR("/metrics"))) {
            self->http_api.status_url =
                arena_dup(self->arena, str_make(metrics_url.ptr, metrics_url.len - 8)).ptr;
        }
    }
    return st;
}

/* ---- the response cache, and states of sequences --------------------------------------------- */

/* They leave a quarter of the memory to requests. */
static uint64_t models_limit(const struct net_budget *budget) {
    return net_budget_limit(budget) / 4 * 3;
}

static bool take_for_models(void *user, uint64_t n_bytes) {
    struct net_budget *budget = user;
    return net_budget_take_within(budget, n_bytes, models_limit(budget));
}

static void give_from_models(void *user, uint64_t n_bytes) {
    net_budget_give(user, n_bytes);
}

enum { SMALL_STATE_BYTES = 64 << 10 };

/* Cached answers make room. Large states leave an eighth to small ones, so that a client whose
 * states grow does not end the sequences of others. */
static bool take_for_state(void *user, uint64_t n_bytes) {
    struct serve_listeners *self = user;
    struct net_budget *budget = &self->budget;
    uint64_t kept = n_bytes <= SMALL_STATE_BYTES ? 0 : net_budget_limit(budget) / 8;
    uint64_t limit = models_limit(budget) - kept;
    return net_budget_take_within(budget, n_bytes, limit) ||
           (repository_shrink_cache(self->repository, n_bytes + kept) > 0 &&
            net_budget_take_within(budget, n_bytes, limit));
}

static void give_from_state(void *user, uint64_t n_bytes) {
    struct serve_listeners *self = user;
    give_from_models(&self->budget, n_bytes);
}

/* Before the servers, whose clients would be closed. */
static void relieve_by_cache(struct net_budget_user *user) {
    struct serve_listeners *self = CONTAINER_OF(user, struct serve_listeners, cache);
    uint64_t wanted = net_budget_wanted(&self->budget);
    net_budget_claim_relief(&self->budget, repository_shrink_cache(self->repository, wanted));
}

static void count_models(struct serve_listeners *self, struct repository *repository) {
    const struct shared_budget cache = {take_for_models, give_from_models, &self->budget};
    const struct shared_budget states = {take_for_state, give_from_state, self};
    self->repository = repository;
    self->cache.relieve = relieve_by_cache;
    net_budget_add_user(&self->budget, &self->cache);
    repository_set_budgets(repository, &cache, &states);
}

/* ---- open, drain, stop ----------------------------------------------------------------------- */

/* A long job leaves one of them free. */
enum { MIN_HELPERS = 2 };
/* Of the arena of a request: contained in what a connection counts, and an open call. */
enum { UNCOUNTED_BYTES = 4096 };

enum status serve_listeners_open(struct serve_listeners *self,
                                 const struct serve_settings *settings,
                                 struct repository *repository,
                                 const struct process_threads *threads, struct error *err) {
    self->settings = settings;
    self->budget.memory = settings->client_memory.n_bytes;
    self->budget.body_memory = settings->body_memory.n_bytes;
    net_budget_count_arenas(&self->budget, UNCOUNTED_BYTES);
    process_limit_connections(&self->budget, settings->max_connections);
    count_models(self, repository);
    self->n_addresses = settings->http.n + settings->grpc.n + settings->mip.n +
                        admin_listener_is_enabled(settings->metrics);
    self->arena = must_arena_new("the listeners");
    self->addresses = arena_calloc(self->arena, self->n_addresses, sizeof(*self->addresses));
    struct shm_registry_options shared = {.allow_client_shm = settings->allow_client_shm,
                                          .client_shm_prefixes =
                                              settings->client_shm_prefixes.items,
                                          .n_client_shm_prefixes = settings->client_shm_prefixes.n,
                                          .budget = &self->budget};
    self->services = (struct inference_services){
        .repository = repository,
        .shared = must_have(shm_registry_new(&shared), "shared memory"),
        .tracer = &self->tracer,
        .loops = threads->health,
        .limits = {.max_json_size = settings->max_json_size,
                   .max_json_depth = settings->max_json_depth,
                   .max_tensor_elements = settings->max_tensor_elements},
        .non_finite = (enum v2_non_finite)(V2_NON_FINITE_WORDS + settings->non_finite),
    };
    size_t n_helpers = threads->n_workers > MIN_HELPERS ? threads->n_workers : MIN_HELPERS;
    if (helper_pool_new(n_helpers, &self->services.helpers, err) != ST_OK ||
        open_pages(self, repository, threads->admin, err) != ST_OK ||
        tracer_open(&self->tracer, &settings->trace, err) != ST_OK ||
        serve_security_open(&self->security, settings, err) != ST_OK) {
        return err->status;
    }
    serve_security_start_timer(&self->security, settings, threads->main);
    return open_grpc(self, threads, err) == ST_OK && open_http(self, threads, err) == ST_OK &&
                   open_mip(self, threads, err) == ST_OK
               ? open_admin(self, repository, threads, err)
               : err->status;
}

void serve_listeners_on_models_changed(struct serve_listeners *self) {
    serve_grpc_on_models_changed(&self->grpc);
}

enum status serve_listeners_on_models_found(struct serve_listeners *self, struct error *err) {
    return serve_mip_resolve(self->settings, self->mip.targets, self->repository, err);
}

void serve_listeners_on_models_loaded(struct serve_listeners *self) {
    serve_grpc_on_models_changed(&self->grpc);
    serve_mip_on_models_loaded(&self->mip);
}

void serve_listeners_write_ready_file(const struct serve_listeners *self, struct ready_file *file) {
    struct error err;
    if (!file->path) {
        return;
    }
    const char **urls = arena_calloc(self->arena, self->n_addresses, sizeof(*urls));
    for (size_t i = 0; i < self->n_addresses; i++) {
        urls[i] = self->addresses[i].url;
    }
    if (ready_file_write(file, urls, self->n_addresses, &err) != ST_OK) {
        log_event(LOG_ERROR, "cannot write the ready file", LOG_CSTR("reason", err.text));
    }
}

void serve_listeners_log_state(struct serve_listeners *self) {
    if (self->admin.api.state.n_servers > 0) { /* the servers were added */
        admin_state_log(&self->admin.api.state, self->admin.main);
    }
}

void serve_listeners_drain(struct serve_listeners *self) {
    net_server_drain(http_server_net(self->http)); /* first: a client that gets 503 must also get
                                                      `Connection:
                                      close` */
    serve_grpc_drain(&self->grpc);
    if (self->mip.server) {
        net_server_drain(mip_server_net(self->mip.server));
    }
    http_api_drain(&self->http_api);
}

uint64_t serve_listeners_in_flight(const struct serve_listeners *self) {
    return net_server_in_flight(http_server_net(self->http)) +
           (self->grpc.server ? net_server_in_flight(grpc_server_net(self->grpc.server)) : 0) +
           (self->mip.server ? net_server_in_flight(mip_server_net(self->mip.server)) : 0);
}

static void on_stopped(void *user) {
    struct serve_listeners *self = user;
    if (--self->n_stopping == 0) {
        self->stopped(self->user);
    }
}

void serve_listeners_stop(struct serve_listeners *self, void (*stopped)(void *user), void *user) {
    struct net_report_server servers[MAX_SERVERS];
    size_t n = list_servers(self, servers);
    const struct net_server *admin =
        self->admin.listener.server ? http_server_net(self->admin.listener.server) : NULL;
    self->stopped = stopped;
    self->user = user;
    self->n_stopping = n + 2; /* this function and the security timer */
    serve_security_stop(&self->security, on_stopped, self);
    for (size_t i = 0; i < n; i++) {
        if (servers[i].server == admin) {
            admin_listener_stop(&self->admin.listener, self->admin.main, on_stopped, self);
        } else {
            net_server_stop(servers[i].server, on_stopped, self);
        }
    }
    on_stopped(self);
}

void serve_listeners_unlink(const struct serve_listeners *self) {
    for (size_t i = 0; i < self->n_addresses; i++) {
        const struct serve_bound_address *address = &self->addresses[i];
        if (address->url) {
            address_unlink(&address->address);
        }
    }
}

void serve_listeners_stop_threads(struct serve_listeners *self) {
    serve_mip_stop_pictures(&self->mip);
    helper_pool_free(self->services.helpers);
    self->services.helpers = NULL;
}

void serve_listeners_free(struct serve_listeners *self) {
    http_server_free(self->http);
    header_forward_free(self->http_forward);
    serve_grpc_free(&self->grpc);
    serve_mip_free(&self->mip);
    admin_listener_free(&self->admin.listener);
    if (self->admin.has_metrics) {
        admin_metrics_fini(&self->admin.metrics);
    }
    serve_security_free(&self->security);
    shared_pages_free(self->services.pages);
    shm_registry_free(self->services.shared);
    tracer_close(&self->tracer);
    arena_free(self->arena);
}
