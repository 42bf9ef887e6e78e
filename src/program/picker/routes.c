/* The operators' listener: its routes, what its pages share, and the query of /debug/pick. */
#include "program/picker/routes.h"

#include <assert.h>
#include <time.h>

#include "codec/kserve/path.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/quote.h"
#include "core/event/clock.h"
#include "pick/discovery/kube/access.h"
#include "pick/session/explain.h"
#include "program/picker/discovery.h"
#include "program/picker/grpc.h"
#include "program/picker/pick_page.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/status_common.h"

/* ---- what the pages share -------------------------------------------------------------------- */

struct pick_admin_pools pick_admin_pools_load(struct pool_set_reader *pools, struct arena *arena) {
    const struct pool_list *list = pool_set_reader_refresh(pools);
    struct pick_admin_pools pools_shown = {.named = list->is_list};
    pools_shown.items = arena_calloc(arena, list->n + 1, sizeof(*pools_shown.items));
    for (size_t i = 0; pools_shown.items && i < list->n; i++) {
        struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[i]);
        if (reader) {
            struct pick_admin_pool *pool = &pools_shown.items[pools_shown.n++];
            pool->entry = &list->entries[i];
            pool->snapshot = pool_reader_refresh(reader);
            pool_get_stats(pool->entry->pool, &pool->numbers);
        }
    }
    return pools_shown;
}

struct str pick_admin_pool_name(const struct pick_admin_pool *pool) {
    const struct pool_spec *spec = pool->snapshot->spec;
    return pool->entry->name.len > 0 || !spec ? pool->entry->name : spec->name;
}

void pick_admin_pool_begin_labels(const struct metric_text *text,
                                  const struct pick_admin_pools *list,
                                  const struct pick_admin_pool *pool, struct buf *labels) {
    buf_init(labels, text->out->arena, ENDPOINT_TEXT_BYTES + 64);
    if (list->named) {
        metric_label_add(labels, "pool", pool->entry->name);
    }
}

double pick_seconds_since(uint64_t then_ns) {
    return (double)clock_between_ns(then_ns, clock_now_ns()) / 1e9;
}

/* ---- /debug/pick ----------------------------------------------------------------------------- */

/* Decodes a value of a query: "A b" from "%41+b". */
static enum status decode_query_value(struct arena *arena, struct str text, struct str *out,
                                      struct error *err) {
    char *spaced = arena_alloc(arena, text.len + 1);
    if (!spaced) {
        return error_no_memory(err, "the query");
    }
    for (size_t i = 0; i < text.len; i++) {
        spaced[i] = text.ptr[i] == '+' ? ' ' : text.ptr[i];
    }
    return v2_path_unescape(arena, str_make(spaced, text.len), out, err);
}

/* Returns: the member for the parameter `name`; NULL: unknown. */
static struct str *member_of(struct pick_described_request *request, struct str name) {
    const struct {
        const char *name;
        struct str *place;
    } places[] = {
        {"method", &request->method}, {"path", &request->path},
        {"model", &request->model},   {"objective", &request->objective},
        {"subset", &request->subset}, {"selection", &request->selection},
        {"prompt", &request->prompt}, {"session", &request->session},
        {"pool", &request->pool},     {"authority", &request->authority},
        {"header", &request->header}, {"filter-metadata", &request->metadata},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (str_is(name, places[i].name)) {
            return places[i].place;
        }
    }
    return NULL;
}

/* Parses "path=/v1/completions&model=llama". */
static enum status parse_pick_query(struct arena *arena, struct str query,
                                    struct pick_described_request *request, struct error *err) {
    enum status st = ST_OK;
    *request = (struct pick_described_request){.method = STR("POST"), .path = STR("/")};
    while (st == ST_OK && query.ptr && query.len > 0) {
        struct str value = str_cut(&query, '&');
        struct str name = str_cut(&value, '=');
        struct str *place = member_of(request, name);
        if (!place) {
            char text[QUOTED_NAME_BYTES];
            return error_set(
                err, ST_BAD_REQUEST,
                "unknown %s in the query; expected method, path, model, objective, "
                "subset, selection, prompt, session, pool, authority, header, filter-metadata",
                quote_name(name, text));
        }
        st = decode_query_value(arena, value.ptr ? value : STR(""), place, err);
    }
    return st;
}

static void answer_pick(struct http_exchange *exchange, void *context) {
    struct pick_admin *admin = context;
    struct pick_described_request request;
    struct error err;
    struct buf body;
    buf_init(&body, exchange->arena, 4096);
    enum status st = parse_pick_query(exchange->arena, exchange->head.query, &request, &err);
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    /* The status is 200 whatever the verdict is. */
    st = pick_explain_pools(admin->pools, &request, &body, &err);
    body.failed = body.failed || st == ST_NO_MEMORY;
    http_text_reply(exchange, 200, "text/plain; charset=utf-8", &body);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static void answer_metrics(struct http_exchange *exchange, void *context) {
    struct pick_admin *admin = context;
    metrics_page_reply(&admin->metrics_page, exchange);
}

static void answer_state(struct http_exchange *exchange, void *context) {
    struct pick_admin *admin = context;
    admin_state_reply(&admin->state, exchange);
}

static void answer_status(struct http_exchange *exchange, void *context) {
    struct pick_admin *admin = context;
    admin_status_reply(&admin->state, exchange, pick_status_print, admin);
}

static void answer_page(struct http_exchange *exchange, void *context) {
    (void)context;
    status_page_reply(exchange, pick_page(), STR(""));
}

static const struct admin_route ROUTES[] = {
    {"/", answer_page, false},
    {"/metrics", answer_metrics, false},
    {"/status.json", answer_status, true},
    {"/debug/state", answer_state, true},
    {"/debug/pick", answer_pick, false},
};

/* ---- clients that may read them -------------------------------------------------------------- */

/* A request whose client is being looked up, in its exchange's arena. */
struct authorization {
    struct kube_access_waiter waiter;
    struct admin_routes *routes;
    struct http_exchange *exchange;
};

static void on_authorized(struct kube_access_waiter *waiter, const struct error *err) {
    struct authorization *self = CONTAINER_OF(waiter, struct authorization, waiter);
    if (err->status != ST_OK && err->status != ST_UNAUTHENTICATED &&
        err->status != ST_ACCESS_DENIED) {
        log_event(LOG_WARNING, "client of the metrics not authorized",
                  LOG_CSTR("reason", err->text));
    }
    admin_routes_decide(self->routes, self->exchange, err);
}

/* Returns: ptr NULL: none. Clause: RFC 6750, section 2.1. */
static struct str find_token(const struct http_exchange *exchange) {
    struct str value, scheme;
    if (http_head_find(&exchange->head, STR("Authorization"), &value) != 1) {
        return str_make(NULL, 0);
    }
    scheme = str_cut(&value, ' ');
    value = str_trim(value);
    return str_eq_nocase(scheme, STR("Bearer")) && value.len > 0 ? value : str_make(NULL, 0);
}

static void authorize(struct http_exchange *exchange, void *context) {
    struct pick_admin *admin = context;
    struct str token = find_token(exchange);
    struct authorization *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    struct error err;
    if (!self || !token.ptr) {
        if (!self) {
            error_no_memory(&err, "a request");
        } else {
            error_set(&err, ST_UNAUTHENTICATED,
                      "expected \"Authorization: Bearer TOKEN\" (--metrics-auth)");
        }
        admin_routes_decide(&admin->routes, exchange, &err);
        return;
    }
    *self = (struct authorization){
        .waiter = {.done = on_authorized}, .routes = &admin->routes, .exchange = exchange};
    kube_access_check(admin->access, token, exchange->suppress_body ? STR("head") : STR("get"),
                      exchange->head.path, &self->waiter);
}

/* ---- open and free --------------------------------------------------------------------------- */

static void run_refresh(struct worker_msg *msg) {
    struct pick_admin *self = CONTAINER_OF(msg, struct pick_admin, refresh_msg);
    atomic_store(&self->refresh_posted, false);
    pool_set_reader_refresh_all(self->pools);
}

static void run_log(struct worker_msg *msg) {
    struct pick_admin *self = CONTAINER_OF(msg, struct pick_admin, log_msg);
    atomic_store(&self->log_posted, false);
    admin_state_log(&self->state, self->state.worker);
}

enum status pick_admin_init(struct pick_admin *self, struct pool_set *pools,
                            struct net_budget *budget, struct worker *worker, struct error *err) {
    self->routes = (struct admin_routes){
        .items = ROUTES, .n = sizeof ROUTES / sizeof ROUTES[0], .context = self};
    admin_process_init(&self->process, SLUICE_VERSION);
    self->process.budget = budget;
    metrics_page_init(&self->metrics_page, pick_metrics_print, self);
    self->has_process = true;
    self->refresh_msg.run = run_refresh;
    self->log_msg.run = run_log;
    self->state =
        (struct admin_state){.print = pick_state_print, .context = self, .worker = worker};
    return pool_set_reader_new(pools, &self->pools, err);
}

void pick_admin_add_server(struct pick_admin *self, const char *name, struct net_server *server) {
    assert(self->state.n_servers < NET_REPORT_SERVERS);
    self->state.servers[self->state.n_servers++] = (struct net_report_server){name, server};
}

struct opening {
    struct pick_admin *admin;
    const struct pick_settings *settings;
    struct kube_config *config; /* with --metrics-auth */
    enum status st;
    struct error *err;
};

static enum status open_access(struct opening *opening) {
    struct pick_admin *self = opening->admin;
    struct kube_config *config = opening->config;
    opening->config = NULL; /* the client takes it */
    enum status st = kube_client_new(self->state.worker, config, &self->client, opening->err);
    if (st == ST_OK) {
        self->routes.authorize = authorize;
        st = kube_access_new(self->client, &self->access, opening->err);
    }
    return st;
}

/* Before the first connection is accepted the listener's own server is added. Thread: the admin
 * worker's. */
static void open_listener(void *arg) {
    struct opening *opening = arg;
    struct pick_admin *self = opening->admin;
    const struct pick_settings *settings = opening->settings;
    struct admin_listener_options options = {.where = settings->metrics,
                                             .limits = pick_net_limits(settings),
                                             .router = admin_routes_router(&self->routes),
                                             .worker = self->state.worker,
                                             .tls = self->tls,
                                             .reload_interval_ns = settings->reload_interval_ns};
    self->routes.web = &settings->web;
    opening->st = admin_listener_open(&self->listener, &options, opening->err);
    if (opening->st == ST_OK && self->listener.server) {
        pick_admin_add_server(self, "metrics", http_server_net(self->listener.server));
        opening->st = opening->config ? open_access(opening) : ST_OK;
    }
}

static enum status open_tls(const struct pick_settings *settings, struct tls_server **out,
                            struct error *err) {
    struct tls_server_options options = {
        .cert = {"--metrics-tls-cert", settings->metrics_tls_cert},
        .key = {"--metrics-tls-key", settings->metrics_tls_key},
        .client_ca = {"--metrics-tls-client-ca", settings->metrics_tls_client_ca}};
    return settings->metrics_tls_cert ? tls_server_new(&options, time(NULL), out, err) : ST_OK;
}

enum status pick_admin_open(struct pick_admin *self, const struct pick_settings *settings,
                            struct error *err) {
    struct opening opening = {.admin = self, .settings = settings, .err = err};
    self->has_deprecated_metrics = settings->deprecated_metrics == 0; /* "on" */
    opening.st = open_tls(settings, &self->tls, err);
    if (opening.st == ST_OK && settings->metrics_auth) {
        const struct kube_source_options cluster = pick_cluster_options(settings);
        opening.st = kube_config_load(&cluster.config, &opening.config, err);
        if (opening.st != ST_OK) {
            return error_prefix(err, "--metrics-auth");
        }
    }
    if (opening.st == ST_OK) {
        worker_call(self->state.worker, open_listener, &opening);
    }
    kube_config_free(opening.config);
    return opening.st;
}

struct showing {
    struct pick_admin *admin;
    const struct pick_discovery *discovery;
};

/* Thread: the admin worker's. */
static void show_discovery(void *arg) {
    const struct showing *showing = arg;
    struct pick_admin *self = showing->admin;
    self->scraper = showing->discovery->scraper;
    self->dns = showing->discovery->dns;
    self->cluster = showing->discovery->cluster;
    self->leader = showing->discovery->leader;
}

void pick_admin_show_discovery(struct pick_admin *self, const struct pick_discovery *discovery) {
    struct showing showing = {self, discovery};
    worker_call(self->state.worker, show_discovery, &showing);
}

void pick_admin_refresh_pools(struct pick_admin *self) {
    if (!atomic_exchange(&self->refresh_posted, true)) {
        worker_post(self->state.worker, &self->refresh_msg);
    }
}

void pick_admin_log_state(struct pick_admin *self) {
    /* Once the process has started its servers. */
    if (self->state.n_servers > 0 && !atomic_exchange(&self->log_posted, true)) {
        worker_post(self->state.worker, &self->log_msg);
    }
}

/* Thread: the admin worker's. */
static void on_client_stopped(void *user) {
    struct pick_admin *self = user;
    admin_listener_stop(&self->listener, self->main, self->stopped, self->stopped_user);
}

/* First the client, so that no request waits for the API server. Thread: the admin worker's. */
static void run_stop(struct worker_msg *msg) {
    struct pick_admin *self = CONTAINER_OF(msg, struct pick_admin, stop_msg);
    if (self->client) {
        kube_client_stop(self->client, on_client_stopped, self);
    } else {
        on_client_stopped(self);
    }
}

void pick_admin_stop(struct pick_admin *self, struct worker *main, void (*stopped)(void *user),
                     void *user) {
    self->main = main;
    self->stopped = stopped;
    self->stopped_user = user;
    self->stop_msg.run = run_stop;
    worker_post(self->state.worker, &self->stop_msg);
}

void pick_admin_free(struct pick_admin *self) {
    kube_access_free(self->access);
    kube_client_free(self->client);
    admin_listener_free(&self->listener);
    tls_server_free(self->tls);
    pool_set_reader_free(self->pools);
    if (self->has_process) {
        admin_process_fini(&self->process);
    }
}
