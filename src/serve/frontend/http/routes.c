/* Routing of KServe v2 over HTTP: one table row per resource. */
#include "serve/frontend/http/routes.h"

#include <string.h>

#include "codec/json/error_body.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/http/coding.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/status_common.h"
#include "telemetry/admin/web_gate.h"

/* ---- the page for browsers ------------------------------------------------------------------- */

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

/* ---- the table ------------------------------------------------------------------------------- */

/* One row per resource: the key group, the methods, and one of the functions that answer it. */
static const struct route {
    enum keys_group group;
    enum restricted_category category;
    enum http_method_set methods;
    http_begin_handler *begin;
    http_unary_handler *print;  /* appends text, sent as JSON */
    http_unary_handler *encode; /* appends a message of `document`, sent as JSON */
    enum v2_grpc_document document;
    /* A list of all models that is shared once it is large (shared_page_is_large); 0: none. */
    size_t page_entry_bytes;
    enum shared_page_kind page;
} ROUTES[] = {
    [V2_SERVER] = {KEYS_METADATA, RESTRICTED_METADATA, HTTP_READ, .encode = http_encode_server,
                   .document = V2_GRPC_SERVER_METADATA},
    [V2_LIVE] = {KEYS_HEALTH, RESTRICTED_HEALTH, HTTP_READ, .begin = http_answer_live},
    [V2_READY] = {KEYS_HEALTH, RESTRICTED_HEALTH, HTTP_READ, .begin = http_answer_ready},
    [V2_MODEL] = {KEYS_METADATA, RESTRICTED_METADATA, HTTP_READ, .encode = http_encode_model,
                  .document = V2_GRPC_MODEL_METADATA},
    [V2_MODEL_READY] = {KEYS_HEALTH, RESTRICTED_HEALTH, HTTP_READ,
                        .begin = http_answer_model_ready},
    [V2_MODEL_INFER] = {KEYS_INFER, RESTRICTED_INFERENCE, HTTP_POST, .begin = http_infer_begin},
    [V2_GENERATE] = {KEYS_INFER, RESTRICTED_INFERENCE, HTTP_POST, .begin = http_generate_begin},
    [V2_GENERATE_STREAM] = {KEYS_INFER, RESTRICTED_INFERENCE, HTTP_POST,
                            .begin = http_generate_begin},
    [V2_STATISTICS] = {KEYS_METADATA, RESTRICTED_STATISTICS, HTTP_READ,
                       .encode = http_encode_statistics, .document = V2_GRPC_STATISTICS,
                       .page_entry_bytes = STATISTICS_JSON_BYTES, .page = PAGE_STATISTICS},
    [V2_MODELS] = {KEYS_METADATA, RESTRICTED_MODEL_REPOSITORY, HTTP_READ,
                   .encode = http_encode_index, .document = V2_GRPC_INDEX,
                   .page_entry_bytes = INDEX_ENTRY_BYTES, .page = PAGE_INDEX},
    [V2_LOAD] = {KEYS_METADATA, RESTRICTED_STATISTICS, HTTP_READ, .print = http_print_load,
                 .page_entry_bytes = LOAD_ENTRY_BYTES, .page = PAGE_LOAD},
    [V2_MODEL_CONFIG] = {KEYS_METADATA, RESTRICTED_MODEL_CONFIG, HTTP_READ,
                         .encode = http_encode_config, .document = V2_GRPC_CONFIG},
    [V2_REPOSITORY_INDEX] = {KEYS_METADATA, RESTRICTED_MODEL_REPOSITORY, HTTP_POST,
                             .begin = http_repository_begin},
    [V2_REPOSITORY_LOAD] = {KEYS_CONTROL, RESTRICTED_MODEL_REPOSITORY, HTTP_POST,
                            .begin = http_repository_begin},
    [V2_REPOSITORY_UNLOAD] = {KEYS_CONTROL, RESTRICTED_MODEL_REPOSITORY, HTTP_POST,
                              .begin = http_repository_begin},
    [V2_SHARED_MEMORY_STATUS] = {KEYS_CONTROL, RESTRICTED_SHARED_MEMORY, HTTP_READ,
                                 .print = http_answer_memory_status},
    [V2_SHARED_MEMORY_REGISTER] = {KEYS_CONTROL, RESTRICTED_SHARED_MEMORY, HTTP_POST,
                                   .print = http_answer_memory_register},
    [V2_SHARED_MEMORY_UNREGISTER] = {KEYS_CONTROL, RESTRICTED_SHARED_MEMORY, HTTP_POST,
                                     .print = http_answer_memory_unregister},
    [V2_CUDA_MEMORY_STATUS] = {KEYS_CONTROL, RESTRICTED_SHARED_MEMORY, HTTP_READ,
                               .print = http_answer_cuda_status},
    [V2_CUDA_MEMORY_UNREGISTER] = {KEYS_CONTROL, RESTRICTED_SHARED_MEMORY, HTTP_POST,
                                   .print = http_answer_cuda_unregister},
    [V2_LOGGING] = {KEYS_CONTROL, RESTRICTED_LOGGING, HTTP_READ_OR_POST,
                    .print = http_answer_logging},
    [V2_TRACE] = {KEYS_CONTROL, RESTRICTED_TRACE, HTTP_READ_OR_POST, .print = http_answer_trace},
};

void http_document_reply(struct http_exchange *exchange, enum v2_grpc_document document,
                         const struct buf *message) {
    struct error err;
    struct buf body;
    buf_init(&body, exchange->arena, 1024);
    body.failed = message->failed;
    if (!body.failed &&
        v2_grpc_document_add(&body, document, buf_str(message), UINT64_MAX, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_json_reply(exchange, 200, &body);
}

/* The request is complete. */
static void answer_unary(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    const struct route *route = &ROUTES[path->resource];
    struct error err;
    struct buf body;
    buf_init(&body, exchange->arena, 1024);
    http_unary_handler *answer = route->encode ? route->encode : route->print;
    if (!body.failed && answer(api, exchange, path, &body, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (route->encode) {
        http_document_reply(exchange, route->document, &body);
    } else if (body.len > 0 || body.failed) {
        http_json_reply(exchange, 200, &body);
    } else {
        http_reply(exchange, &(struct http_reply){.status = 200});
    }
}

static void on_body(struct http_exchange *exchange, void *context) {
    answer_unary(context, exchange, exchange->user);
}

static const struct http_handler unary_handler = {.on_body = on_body};

/* Prepares to receive the body of a POST, which has the path as exchange->user. */
static void receive_unary(struct http_exchange *exchange, const struct v2_path *path) {
    struct error err;
    struct v2_path *kept = arena_alloc(exchange->arena, sizeof(*kept));
    if (!kept) {
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    *kept = *path;
    if (http_coding_of_body(&exchange->head, &exchange->plan.coding, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_limit_body(exchange);
    exchange->user = kept;
    exchange->handler = &unary_handler;
}

static void begin_route(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path) {
    const struct route *route = &ROUTES[path->resource];
    if (route->begin) {
        route->begin(api, exchange, path);
    } else if (route->page_entry_bytes > 0 && path->model.len == 0 &&
               shared_page_is_large(api->services.pages, api->services.repository,
                                    route->page_entry_bytes)) {
        http_page_begin(exchange, route->page, "application/json");
    } else if (str_is(exchange->head.method, "POST")) {
        receive_unary(exchange, path);
    } else {
        answer_unary(api, exchange, path);
    }
}

/* A page of another site gets 403, a wrong host 421. Otherwise, without a valid key, the answer is
 * 401, before any other check. */
static inline bool is_admitted(const struct http_api *api, struct http_exchange *exchange,
                               enum keys_group group, enum web_resource resource,
                               enum http_method_set methods) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct error err;
    if (!web_gate_admits(api->web, exchange, resource, methods)) {
        return false;
    }
    if (!api->keys ||
        keys_authorize_http(api->keys, group, &exchange->head, challenge, &err) == ST_OK) {
        return true;
    }
    struct http_field field = {STR("WWW-Authenticate"), str_of(challenge)};
    http_reply_error(exchange, &err, &field, 1);
    return false;
}

static inline bool is_unrestricted(const struct http_api *api, struct http_exchange *exchange,
                                   enum restricted_category category) {
    struct error err;
    if (restrictions_check(api->restrictions, category, keys_find_http_field, &exchange->head,
                           &err) == ST_OK) {
        return true;
    }
    http_reply_error(exchange, &err, NULL, 0);
    return false;
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
        is_unrestricted(api, exchange, route->category) &&
        http_check_method(exchange, route->methods)) {
        begin_route(api, exchange, &path);
    }
}

static void on_platform_head(struct http_exchange *exchange, void *context) {
    struct http_models_call call;
    if (http_models_match(context, exchange, &call)) {
        if (is_admitted(context, exchange, call.group, WEB_CONTROL, call.methods) &&
            is_unrestricted(context, exchange, RESTRICTED_MODEL_REPOSITORY) &&
            http_check_method(exchange, call.methods)) {
            http_models_begin(context, exchange, &call);
        }
        return;
    }
    if (http_platform_route(context, exchange)) {
        on_head(exchange, context);
    }
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    json_error_body_print(out, error);
    return "application/json";
}

struct http_router http_api_router(struct http_api *api) {
    return (struct http_router){.context = api,
                                .on_head = api->platform ? on_platform_head : on_head,
                                .error_body = error_body};
}

void http_api_drain(struct http_api *api) {
    atomic_store_explicit(&api->draining, true, memory_order_relaxed);
}
