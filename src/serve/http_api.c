/* Routing of KServe v2 over HTTP. One table says which methods a resource has and who answers
 * it. */
#include "serve/http_api.h"

#include "base/metric.h"
#include "serve/http_infer.h"
#include "wire/v2_path.h"
#include "wire/v2_text.h"

/* What server metadata claims: only extensions that work. */
static const char *const EXTENSIONS[] = {"binary_tensor_data", NULL};

static void reply_text(struct http_exchange *exchange, int status, const char *type,
                       const struct buf *body) {
    if (body->failed) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory for the answer");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    struct piece piece = {body->data, body->len};
    http_reply(exchange, &(struct http_reply){.status = status,
                                              .content_type = type,
                                              .pieces = &piece,
                                              .n_pieces = body->len > 0});
}

static void reply_json(struct http_exchange *exchange, int status, const struct buf *body) {
    reply_text(exchange, status, "application/json", body);
}

static void answer_server(struct http_api *api, struct http_exchange *exchange,
                          const struct v2_path *path) {
    (void)path;
    struct buf body;
    buf_init(&body, exchange->arena, 256);
    v2_server_metadata_print(&body, api->server_name, api->server_version, EXTENSIONS);
    reply_json(exchange, 200, &body);
}

static void answer_live(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path) {
    (void)api, (void)path;
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_live_print(&body, true);
    reply_json(exchange, 200, &body);
}

static void answer_ready(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    (void)path;
    bool ready = !atomic_load_explicit(&api->draining, memory_order_relaxed) &&
                 repository_is_ready(api->repository);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_ready_print(&body, ready);
    reply_json(exchange, ready ? 200 : 503, &body);
}

static void answer_model(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    if (repository_find(api->repository, path->model, path->version, &version, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    const struct model_spec *spec = model_version_spec(version);
    size_t n = 1;
    const uint64_t *versions = &spec->version;
    if (!path->version.ptr) {
        versions = model_version_siblings(version, &n);
    }
    struct buf body;
    buf_init(&body, exchange->arena, 1024);
    v2_model_metadata_print(&body, spec, versions, n);
    model_version_unref(version);
    reply_json(exchange, 200, &body);
}

static void answer_model_ready(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    enum status st = repository_find(api->repository, path->model, path->version, &version, &err);
    if (st != ST_OK && st != ST_NOT_READY) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    if (st == ST_OK) {
        model_version_unref(version);
    }
    struct buf body;
    buf_init(&body, exchange->arena, 128);
    v2_model_ready_print(&body, path->model, st == ST_OK);
    reply_json(exchange, status_http(st), &body);
}

static void answer_metrics(struct http_exchange *exchange) {
    struct buf body;
    struct metric_text text = {.out = &body};
    buf_init(&body, exchange->arena, 4096);
    metric_print(&text);
    metric_text_end(&text);
    reply_text(exchange, 200, metric_format_type(text.format), &body);
}

/* One row per resource: whose keys open it, how it is called and who answers. */
static const struct route {
    enum keys_group group;
    bool post;
    void (*answer)(struct http_api *, struct http_exchange *, const struct v2_path *);
} ROUTES[] = {
    [V2_SERVER] = {KEYS_METADATA, false, answer_server},
    [V2_LIVE] = {KEYS_HEALTH, false, answer_live},
    [V2_READY] = {KEYS_HEALTH, false, answer_ready},
    [V2_MODEL] = {KEYS_METADATA, false, answer_model},
    [V2_MODEL_READY] = {KEYS_HEALTH, false, answer_model_ready},
    [V2_MODEL_INFER] = {KEYS_INFER, true, http_infer_begin},
};

/* Answers 405 with Allow when the method is not the resource's. */
static bool method_fits(struct http_exchange *exchange, bool post) {
    struct str method = exchange->head.method;
    if (post ? str_is(method, "POST") : str_is(method, "GET") || str_is(method, "HEAD")) {
        return true;
    }
    const char *allow = post ? "POST" : "GET, HEAD";
    struct error err;
    error_set(&err, ST_METHOD_NOT_ALLOWED, "expected %s for %.*s, got %.*s",
              post ? "POST" : "GET or HEAD", STR_ARG(exchange->head.path), STR_ARG(method));
    struct http_field field = {STR("Allow"), str_of(allow)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}

/* Answers 401 to who has no key, before anything else is said. */
static bool is_admitted(const struct http_api *api, struct http_exchange *exchange,
                        enum keys_group group) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct error err;
    if (keys_admit_http(api->keys, group, &exchange->head, challenge, &err) == ST_OK) {
        return true;
    }
    struct http_field field = {STR("WWW-Authenticate"), str_of(challenge)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}

static void on_head(struct http_exchange *exchange, void *context) {
    struct http_api *api = context;
    if (str_is(exchange->head.path, "/metrics")) {
        if (is_admitted(api, exchange, KEYS_METADATA) && method_fits(exchange, false)) {
            answer_metrics(exchange);
        }
        return;
    }
    struct v2_path path;
    struct error err;
    if (v2_path_parse(exchange->arena, exchange->head.path, &path, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    const struct route *route = &ROUTES[path.resource];
    if (is_admitted(api, exchange, route->group) && method_fits(exchange, route->post)) {
        route->answer(api, exchange, &path);
    }
}

static void on_body(struct http_exchange *exchange, void *context) {
    http_infer_body(context, exchange); /* the only route that waits for a body */
}

static void on_gone(struct http_exchange *exchange, void *context) {
    (void)context;
    http_infer_gone(exchange);
}

static void on_end(struct http_exchange *exchange, void *context) {
    (void)context;
    http_infer_end(exchange);
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    v2_error_print(out, error);
    return "application/json";
}

struct http_handler http_api_handler(struct http_api *api) {
    return (struct http_handler){.context = api,
                                 .on_head = on_head,
                                 .on_body = on_body,
                                 .on_gone = on_gone,
                                 .on_end = on_end,
                                 .error_body = error_body};
}

void http_api_drain(struct http_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
}
