/* Routing of the operators' listener. */
#include "serve/admin_api.h"

#include "serve/http_text.h"
#include "serve/status_json.h"
#include "serve/status_page.h"
#include "tensor/tensor.h"
#include "wire/v2_text.h"

static void answer_metrics(struct admin_api *api, struct http_exchange *exchange) {
    admin_metrics_reply(api->metrics, exchange);
}

static void answer_status(struct admin_api *api, struct http_exchange *exchange) {
    struct buf body;
    buf_init(&body, exchange->arena, 8192);
    status_json_print(api->metrics, &body);
    http_json_reply(exchange, 200, &body);
}

static void answer_state(struct admin_api *api, struct http_exchange *exchange) {
    admin_state_reply(&api->state, exchange);
}

/* The browser is told what the page needs, so that it refuses everything else: names of models are
 * data, whatever is in them. */
static void answer_page(struct admin_api *api, struct http_exchange *exchange) {
    static const struct http_field fields[] = {
        {STR("Content-Security-Policy"),
         STR("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
             "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'")},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Cache-Control"), STR("no-cache")},
    };
    struct str page = status_page();
    struct piece piece = {page.ptr, page.len};
    (void)api;
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/html; charset=utf-8",
                                              .fields = fields,
                                              .n_fields = sizeof fields / sizeof fields[0],
                                              .pieces = &piece,
                                              .n_pieces = 1});
}

static const struct route {
    const char *path;
    void (*answer)(struct admin_api *, struct http_exchange *);
} ROUTES[] = {
    {"/", answer_page},
    {"/metrics", answer_metrics},
    {"/status.json", answer_status},
    {"/debug/state", answer_state},
};

static const struct route *route_of(struct str path) {
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0]; i++) {
        if (str_is(path, ROUTES[i].path)) {
            return &ROUTES[i];
        }
    }
    return NULL;
}

static void answer_nothing(struct http_exchange *exchange) {
    char text[TENSOR_NAME_TEXT_BYTES];
    struct error err;
    error_set(&err, ST_NOT_FOUND,
              "no resource %s here; there are /, /metrics, /status.json and /debug/state",
              tensor_name_print(exchange->head.path, text));
    http_reply_error(exchange, &err, NULL, 0);
}

static void on_head(struct http_exchange *exchange, void *context) {
    const struct route *route = route_of(exchange->head.path);
    if (!route) {
        answer_nothing(exchange);
    } else if (http_text_method_fits(exchange, false)) {
        route->answer(context, exchange);
    }
}

/* Nothing here waits for a body: every request is answered by its head. */
static void on_body(struct http_exchange *exchange, void *context) {
    (void)exchange, (void)context;
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    v2_error_print(out, error);
    return "application/json";
}

struct http_handler admin_api_handler(struct admin_api *api) {
    return (struct http_handler){
        .context = api, .on_head = on_head, .on_body = on_body, .error_body = error_body};
}
