/* Routing of the admin listener. */
#include "telemetry/admin/routes.h"

#include "codec/kserve/metadata.h"
#include "core/base/buf.h"
#include "core/tensor/tensor.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/web_gate.h"

static const struct admin_route *find_route(const struct admin_routes *routes, struct str path) {
    for (size_t i = 0; i < routes->n; i++) {
        if (str_is(path, routes->items[i].path)) {
            return &routes->items[i];
        }
    }
    return NULL;
}

/* "/, /metrics and /debug/state" */
static void list_paths(const struct admin_routes *routes, struct buf *out) {
    for (size_t i = 0; i < routes->n; i++) {
        const char *before = i == 0 ? "" : i + 1 < routes->n ? ", " : " and ";
        buf_printf(out, "%s%s", before, routes->items[i].path);
    }
}

static void answer_not_found(const struct admin_routes *routes, struct http_exchange *exchange) {
    char text[TENSOR_NAME_TEXT_BYTES];
    struct error err;
    struct buf paths;
    buf_init(&paths, exchange->arena, 128);
    list_paths(routes, &paths);
    error_set(&err, ST_NOT_FOUND, "no resource %s here; there are %.*s",
              tensor_name_print(exchange->head.path, text), STR_ARG(buf_str(&paths)));
    http_reply_error(exchange, &err, NULL, 0);
}

enum { MAX_BODY_BYTES = 65536 };

/* Some pages are answered later, when other threads have told their part. So a body, which no page
 * needs, is received first: if it failed meanwhile, that would be a second response. */
static void on_head(struct http_exchange *exchange, void *context) {
    const struct admin_routes *routes = context;
    const struct admin_route *route = find_route(routes, exchange->head.path);
    bool is_health = str_starts_with(exchange->head.path, STR("/v2/health/"));
    if (!web_gate_admits(routes->web, exchange, is_health ? WEB_ANY_SITE : WEB_CONTROL,
                         HTTP_READ)) {
        return;
    }
    if (!route) {
        answer_not_found(routes, exchange);
    } else if (http_check_method(exchange, HTTP_READ)) {
        if (!exchange->head.has_body) {
            route->answer(exchange, routes->context);
            return;
        }
        exchange->plan.max_bytes = MAX_BODY_BYTES;
        exchange->plan.setting = "the limit of this resource";
    }
}

static void on_body(struct http_exchange *exchange, void *context) {
    const struct admin_routes *routes = context;
    find_route(routes, exchange->head.path)->answer(exchange, routes->context);
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    v2_error_print(out, error);
    return "application/json";
}

struct http_handler admin_routes_handler(struct admin_routes *routes) {
    return (struct http_handler){
        .context = routes, .on_head = on_head, .on_body = on_body, .error_body = error_body};
}
