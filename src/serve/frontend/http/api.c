/* Routing of KServe v2 over HTTP: one table row per resource, and the resources that need no
 * request body. */
#include "serve/frontend/http/api.h"

#include <string.h>

#include "codec/json/error_body.h"
#include "codec/kserve/metadata.h"
#include "codec/kserve/path.h"
#include "serve/frontend/extensions.h"
#include "serve/frontend/http/routes.h"
#include "serve/frontend/http/try_page.h"
#include "serve/frontend/load_report.h"
#include "serve/frontend/repository_index.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/status_common.h"
#include "telemetry/admin/web_gate.h"

static void answer_server(struct http_api *api, struct http_exchange *exchange,
                          const struct v2_path *path) {
    (void)path;
    struct buf body;
    buf_init(&body, exchange->arena, 256);
    v2_server_metadata_print(&body, api->server_name, api->server_version, EXTENSIONS);
    http_json_reply(exchange, 200, &body);
}

static void answer_live(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path) {
    (void)path;
    bool live = loop_health_is_live(api->services.loops);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_live_print(&body, live);
    http_json_reply(exchange, live ? 200 : 503, &body);
}

static void answer_ready(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    (void)path;
    bool ready = !atomic_load_explicit(&api->draining, memory_order_relaxed) &&
                 loop_health_is_ready(api->services.loops) &&
                 repository_is_ready(api->services.repository);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_ready_print(&body, ready);
    http_json_reply(exchange, ready ? 200 : 503, &body);
}

static void answer_model(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    if (repository_find(api->services.repository, path->model, path->version, &version, &err) !=
        ST_OK) {
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
    http_json_reply(exchange, 200, &body);
}

static void answer_model_ready(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    enum status st =
        repository_find(api->services.repository, path->model, path->version, &version, &err);
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
    http_json_reply(exchange, status_http(st), &body);
}

static void answer_config(struct http_api *api, struct http_exchange *exchange,
                          const struct v2_path *path) {
    struct error err;
    struct model_version *version = NULL;
    if (repository_find(api->services.repository, path->model, path->version, &version, &err) !=
        ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    struct buf body;
    buf_init(&body, exchange->arena, 2048);
    config_json_print(&body, model_version_config(version));
    model_version_unref(version);
    http_json_reply(exchange, 200, &body);
}

/* The index as it is known, without a scan of the directories. */
static void answer_models(struct http_api *api, struct http_exchange *exchange,
                          const struct v2_path *path) {
    (void)path;
    if (shared_page_is_large(api->services.pages, api->services.repository, INDEX_ENTRY_BYTES)) {
        http_page_begin(exchange, PAGE_INDEX, "application/json");
        return;
    }
    struct buf body;
    buf_init(&body, exchange->arena, 1024);
    repository_index_print_json(api->services.repository, false, &body);
    http_json_reply(exchange, 200, &body);
}

/* Where the status page listens is for operators: with keys only the log names it. */
static void add_status_link(const struct http_api *api, struct buf *out) {
    if (api->keys) {
        return;
    }
    if (api->status_url) {
        buf_printf(out,
                   "<footer><p>Load, times and queues of each model: <a href='%s/'>status page</a> "
                   "at %s/</p></footer>",
                   api->status_url, api->status_url);
    } else {
        buf_add_str(out, STR("<footer><p>The status page is off: <code>--metrics HOST:PORT</code>"
                             "</p></footer>"));
    }
}

/* For a browser, which asks for the root: the page with which people try a model. It is the same
 * for all users and says nothing about the server, so it is served without a key; its requests to
 * the API carry the key that the user types. */
static void answer_root(struct http_api *api, struct http_exchange *exchange) {
    struct buf end;
    buf_init(&end, exchange->arena, 512);
    add_status_link(api, &end);
    if (end.failed) {
        struct error err;
        error_no_memory(&err, "the page");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    status_page_reply(exchange, try_page(), str_make(end.data, end.len));
}

static void answer_load(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path) {
    (void)path;
    if (shared_page_is_large(api->services.pages, api->services.repository, LOAD_ENTRY_BYTES)) {
        http_page_begin(exchange, PAGE_LOAD, "application/json");
        return;
    }
    struct buf body;
    buf_init(&body, exchange->arena, 512);
    load_report_print(api->services.repository, &body);
    http_json_reply(exchange, 200, &body);
}

/* One row per resource: the key group, the methods, and the function that answers it. */
static const struct route {
    enum keys_group group;
    enum http_method_set methods;
    void (*answer)(struct http_api *, struct http_exchange *, const struct v2_path *);
} ROUTES[] = {
    [V2_SERVER] = {KEYS_METADATA, HTTP_READ, answer_server},
    [V2_LIVE] = {KEYS_HEALTH, HTTP_READ, answer_live},
    [V2_READY] = {KEYS_HEALTH, HTTP_READ, answer_ready},
    [V2_MODEL] = {KEYS_METADATA, HTTP_READ, answer_model},
    [V2_MODEL_READY] = {KEYS_HEALTH, HTTP_READ, answer_model_ready},
    [V2_MODEL_INFER] = {KEYS_INFER, HTTP_POST, http_infer_begin},
    [V2_GENERATE] = {KEYS_INFER, HTTP_POST, http_generate_begin},
    [V2_GENERATE_STREAM] = {KEYS_INFER, HTTP_POST, http_generate_begin},
    [V2_STATISTICS] = {KEYS_METADATA, HTTP_READ, http_stats_answer},
    [V2_MODELS] = {KEYS_METADATA, HTTP_READ, answer_models},
    [V2_LOAD] = {KEYS_METADATA, HTTP_READ, answer_load},
    [V2_MODEL_CONFIG] = {KEYS_METADATA, HTTP_READ, answer_config},
    [V2_REPOSITORY_INDEX] = {KEYS_METADATA, HTTP_POST, http_repository_begin},
    [V2_REPOSITORY_LOAD] = {KEYS_CONTROL, HTTP_POST, http_repository_begin},
    [V2_REPOSITORY_UNLOAD] = {KEYS_CONTROL, HTTP_POST, http_repository_begin},
    [V2_SHARED_MEMORY_STATUS] = {KEYS_CONTROL, HTTP_READ, http_memory_answer_status},
    [V2_SHARED_MEMORY_REGISTER] = {KEYS_CONTROL, HTTP_POST, http_memory_begin},
    [V2_SHARED_MEMORY_UNREGISTER] = {KEYS_CONTROL, HTTP_POST, http_memory_begin},
    [V2_LOGGING] = {KEYS_CONTROL, HTTP_READ_OR_POST, http_logging_begin},
    [V2_TRACE] = {KEYS_CONTROL, HTTP_READ_OR_POST, http_trace_begin},
};

static bool has_key(const struct http_api *api, struct http_exchange *exchange,
                    enum keys_group group) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct error err;
    if (keys_authorize_http(api->keys, group, &exchange->head, challenge, &err) == ST_OK) {
        return true;
    }
    struct http_field field = {STR("WWW-Authenticate"), str_of(challenge)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}

/* A page of another site gets 403, a wrong host 421. Otherwise, without a valid key, the answer is
 * 401, before any other check. */
static inline bool is_admitted(const struct http_api *api, struct http_exchange *exchange,
                               enum keys_group group, enum web_resource resource,
                               enum http_method_set methods) {
    return web_gate_admits(api->web, exchange, resource, methods) &&
           (!api->keys || has_key(api, exchange, group));
}

static enum web_resource web_resource_of(enum v2_resource resource) {
    if (resource == V2_LIVE || resource == V2_READY) {
        return WEB_ANY_SITE;
    }
    return ROUTES[resource].group == KEYS_CONTROL ? WEB_CONTROL : WEB_SERVICE;
}

static bool accepts_html(const struct http_exchange *exchange) {
    struct str accept;
    return http_head_find(&exchange->head, STR("Accept"), &accept) > 0 &&
           memmem(accept.ptr, accept.len, "text/html", 9);
}

static void on_head(struct http_exchange *exchange, void *context) {
    struct http_api *api = context;
    if (str_is(exchange->head.path, "/metrics")) {
        if (is_admitted(api, exchange, KEYS_METADATA, WEB_SERVICE, HTTP_READ) &&
            http_check_method(exchange, HTTP_READ)) {
            http_metrics_begin(exchange);
        }
        return;
    }
    if (str_is(exchange->head.path, "/") && accepts_html(exchange)) {
        if (web_gate_admits(api->web, exchange, WEB_CONTROL, HTTP_READ) &&
            http_check_method(exchange, HTTP_READ)) {
            answer_root(api, exchange);
        }
        return;
    }
    struct v2_path path;
    struct error err;
    if (v2_path_parse(exchange->arena, exchange->head.path, &path, &err) != ST_OK) {
        if (web_gate_admits(api->web, exchange, WEB_SERVICE, HTTP_READ)) {
            http_reply_error(exchange, &err, NULL, 0);
        }
        return;
    }
    const struct route *route = &ROUTES[path.resource];
    if (is_admitted(api, exchange, route->group, web_resource_of(path.resource), route->methods) &&
        http_check_method(exchange, route->methods)) {
        route->answer(api, exchange, &path);
    }
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    json_error_body_print(out, error);
    return "application/json";
}

struct http_router http_api_router(struct http_api *api) {
    return (struct http_router){.context = api, .on_head = on_head, .error_body = error_body};
}

void http_api_drain(struct http_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
}
