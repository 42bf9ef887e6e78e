/* Each page is fetched from the Unix sockets of the picker and of Envoy when it is asked for. */
#include "program/gateway/pages.h"

#include <string.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "program/gateway/authorize.h"
#include "telemetry/admin/http_text.h"

#define MS UINT64_C(1000000)
static const uint64_t FETCH_NS = 10000 * MS;
enum { MOST_PAGE_BYTES = 256 << 20, MOST_IDLE = 8 };

/* Of pages that have few bytes and no body. */
static const struct net_limits LIMITS = {.max_header_size = 65536,
                                         .request_memory = 512 << 20,
                                         .idle_timeout_ns = 600000 * MS,
                                         .keepalive_time_ns = 20000 * MS,
                                         .header_timeout_ns = 10000 * MS,
                                         .body_timeout_ns = 10000 * MS,
                                         .write_timeout_ns = 60000 * MS,
                                         .min_write_rate = 1024,
                                         .max_unsent_size = 512 << 20,
                                         .discard_size = 65536};

/* A page that is being fetched, in its exchange's arena. */
struct fetched_page {
    struct gateway_pages *pages;
    struct http_exchange *exchange;
    struct buf body;
    int status;
    const char *type;
};

static void reply_error(struct http_exchange *exchange, enum status status, const char *why) {
    struct error err;
    error_set(&err, status, "%s", why);
    http_reply_error(exchange, &err, NULL, 0);
}

/* Starts the fetch of a part of the page. Without one the answer is an error. */
static void fetch(struct fetched_page *page, const char *socket, const char *url,
                  http_fetch_done_cb *done) {
    struct error err;
    struct http_fetch_request request = {.url = url,
                                         .unix_socket = socket,
                                         .timeout_ns = FETCH_NS,
                                         .max_body_size = MOST_PAGE_BYTES,
                                         .done = done,
                                         .user = page};
    if (page->pages->stopping) {
        reply_error(page->exchange, ST_NOT_READY, "the gateway is ending");
    } else if (http_fetch_start(page->pages->fetcher, &request, NULL, &err) != ST_OK) {
        http_reply_error(page->exchange, &err, NULL, 0);
    }
}

static struct fetched_page *begin(struct http_exchange *exchange, void *context) {
    struct fetched_page *page = arena_calloc(exchange->arena, 1, sizeof(*page));
    if (!page) {
        reply_error(exchange, ST_NO_MEMORY, "out of memory for the page");
        return NULL;
    }
    page->pages = context;
    page->exchange = exchange;
    page->status = 200;
    buf_init(&page->body, exchange->arena, 0);
    return page;
}

/* ---- pages of the picker --------------------------------------------------------------------- */

static void on_picker_page(void *user, const struct http_fetch_result *fetched) {
    struct fetched_page *page = user;
    if (fetched->error.status != ST_OK) {
        reply_error(page->exchange, ST_NOT_READY,
                    "the picker does not answer: Envoy is not running, or not ready yet");
        return;
    }
    struct str type = arena_dup(page->exchange->arena, fetched->content_type);
    buf_add_str(&page->body, fetched->body);
    page->body.failed = page->body.failed || !type.ptr;
    http_text_reply(page->exchange, fetched->status, type.ptr ? type.ptr : "text/plain",
                    &page->body);
}

static void answer_picker_page(struct http_exchange *exchange, void *context) {
    struct fetched_page *page = begin(exchange, context);
    if (!page) {
        return;
    }
    struct str path = exchange->head.path, query = exchange->head.query;
    struct str url = arena_printf(exchange->arena, "http://localhost%.*s%s%.*s", STR_ARG(path),
                                  query.len > 0 ? "?" : "", (int)query.len, query.ptr);
    if (!url.ptr) {
        reply_error(exchange, ST_NO_MEMORY, "out of memory for the page");
        return;
    }
    fetch(page, page->pages->options.picker_socket, url.ptr, on_picker_page);
}

/* ---- /metrics -------------------------------------------------------------------------------- */

static void print_own_metrics(const struct envoy_process *envoy, struct buf *out) {
    struct metric_text text = {.out = out, .format = METRIC_FORMAT_PROMETHEUS};
    uint64_t n_starts = atomic_load(&envoy->n_starts);
    metric_family_begin(&text, METRIC_FAMILY_GATEWAY_RESTARTS);
    metric_text_u64(&text, STR(""), n_starts > 0 ? n_starts - 1 : 0);
}

static void add_part(struct fetched_page *page, const struct http_fetch_result *fetched) {
    if (fetched->error.status == ST_OK && fetched->status == 200) {
        buf_add_str(&page->body, fetched->body);
    }
}

static void on_envoy_metrics(void *user, const struct http_fetch_result *fetched) {
    struct fetched_page *page = user;
    add_part(page, fetched);
    http_text_reply(page->exchange, 200, metric_content_type(METRIC_FORMAT_PROMETHEUS),
                    &page->body);
}

static void on_picker_metrics(void *user, const struct http_fetch_result *fetched) {
    struct fetched_page *page = user;
    add_part(page, fetched);
    fetch(page, page->pages->options.admin_socket, "http://localhost/stats/prometheus?usedonly",
          on_envoy_metrics);
}

/* What does not answer is left out. */
static void answer_metrics(struct http_exchange *exchange, void *context) {
    struct fetched_page *page = begin(exchange, context);
    if (page) {
        print_own_metrics(page->pages->options.envoy, &page->body);
        fetch(page, page->pages->options.picker_socket, "http://localhost/metrics",
              on_picker_metrics);
    }
}

static const struct admin_route ROUTES[] = {
    {"/", answer_picker_page, false},           {"/metrics", answer_metrics, true},
    {"/status.json", answer_picker_page, true}, {"/debug/state", answer_picker_page, true},
    {"/debug/pick", answer_picker_page, false},
};

/* ---- answers for all endpoints --------------------------------------------------------------- */

static void answer_live(struct http_exchange *exchange, void *context) {
    struct gateway_pages *pages = context;
    pool_answers_live(&pages->answers, exchange);
}

static void answer_ready(struct http_exchange *exchange, void *context) {
    struct gateway_pages *pages = context;
    pool_answers_ready(&pages->answers, exchange);
}

static void answer_models(struct http_exchange *exchange, void *context) {
    struct gateway_pages *pages = context;
    pool_answers_models(&pages->answers, exchange);
}

/* Envoy's routes are those of envoy_config.c. */
static const struct admin_route ANSWERS[] = {
    {"/v2/health/live", answer_live, false},
    {"/v2/health/ready", answer_ready, false},
    {"/health", answer_ready, false},
    {"/v1/models", answer_models, false},
};

/* Envoy asks whether a request may be sent on, or sends one that is answered here. The context is
 * that of the table, which its handlers get. */
static void on_answers_head(struct http_exchange *exchange, void *context) {
    struct admin_routes *routes = context;
    struct gateway_pages *pages = CONTAINER_OF(routes, struct gateway_pages, answers_routes);
    if (str_starts_with(exchange->head.path, STR(AUTHORIZE_PREFIX "/"))) {
        authorize_reply(pages->options.keys, exchange);
    } else {
        pages->answers_router.on_head(exchange, context);
    }
}

/* ---- open and stop --------------------------------------------------------------------------- */

struct opening {
    struct gateway_pages *pages;
    enum status st;
    struct error *err;
};

/* Thread: the worker's. */
static void open_listeners(void *arg) {
    struct opening *opening = arg;
    struct gateway_pages *self = opening->pages;
    struct admin_listener_options options = {.where = self->options.where,
                                             .limits = LIMITS,
                                             .router = admin_routes_router(&self->routes),
                                             .worker = self->options.worker};
    opening->st =
        http_fetcher_new(self->options.worker, NULL, MOST_IDLE, &self->fetcher, opening->err);
    if (opening->st != ST_OK) {
        return;
    }
    pool_answers_init(&self->answers, self->options.settings, self->fetcher,
                      self->options.picker_socket);
    opening->st = admin_listener_open(&self->listener, &options, opening->err);
    if (opening->st == ST_OK) {
        options.where = self->options.answers_at;
        options.is_internal = true;
        self->answers_router = admin_routes_router(&self->answers_routes);
        options.router = self->answers_router;
        options.router.on_head = on_answers_head;
        opening->st = admin_listener_open(&self->answers_listener, &options, opening->err);
    }
}

enum status gateway_pages_open(struct gateway_pages *self,
                               const struct gateway_pages_options *options, struct error *err) {
    struct opening opening = {.pages = self, .err = err};
    self->options = *options;
    self->routes = (struct admin_routes){
        .items = ROUTES, .n = sizeof ROUTES / sizeof ROUTES[0], .context = self, .web = &self->web};
    self->answers_routes = (struct admin_routes){.items = ANSWERS,
                                                 .n = sizeof ANSWERS / sizeof ANSWERS[0],
                                                 .context = self,
                                                 .web = &self->web};
    worker_call(options->worker, open_listeners, &opening);
    return opening.st;
}

static void on_listener_stopped(void *user) {
    struct gateway_pages *self = user;
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_user);
    }
}

static void stop_listener(struct gateway_pages *self, struct admin_listener *listener) {
    if (listener->server) {
        self->n_stopping++;
        admin_listener_stop(listener, self->main, on_listener_stopped, self);
    }
}

static void run_stopped(struct worker_msg *msg) {
    struct gateway_pages *self = CONTAINER_OF(msg, struct gateway_pages, stopped_msg);
    self->n_stopping = 1; /* this function */
    stop_listener(self, &self->listener);
    stop_listener(self, &self->answers_listener);
    on_listener_stopped(self);
}

/* Thread: the worker's. */
static void on_fetcher_stopped(void *user) {
    struct gateway_pages *self = user;
    worker_post(self->main, &self->stopped_msg);
}

/* Thread: the worker's. */
static void run_stop(struct worker_msg *msg) {
    struct gateway_pages *self = CONTAINER_OF(msg, struct gateway_pages, stop_msg);
    self->stopping = self->answers.stopping = true;
    http_fetcher_stop(self->fetcher, on_fetcher_stopped, self);
}

void gateway_pages_stop(struct gateway_pages *self, struct worker *main,
                        void (*stopped)(void *user), void *user) {
    self->main = main;
    self->stopped = stopped;
    self->stopped_user = user;
    self->stop_msg.run = run_stop;
    self->stopped_msg.run = run_stopped;
    if (self->fetcher) {
        worker_post(self->options.worker, &self->stop_msg);
    } else {
        stopped(user);
    }
}

void gateway_pages_free(struct gateway_pages *self) {
    admin_listener_free(&self->listener);
    admin_listener_free(&self->answers_listener);
    pool_answers_free(&self->answers);
    http_fetcher_free(self->fetcher);
}
