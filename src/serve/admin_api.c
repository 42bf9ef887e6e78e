/* The pages of the operators' listener. */
#include "serve/admin_api.h"

#include "serve/http_text.h"
#include "serve/status_json.h"
#include "serve/status_page.h"

static void answer_metrics(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_metrics_reply(api->metrics, exchange);
}

static void answer_status(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    struct buf body;
    buf_init(&body, exchange->arena, 8192);
    status_json_print(api->metrics, &body);
    http_json_reply(exchange, 200, &body);
}

static void answer_state(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_state_reply(&api->state, exchange);
}

/* The browser is told what the page needs, so that it refuses everything else: names of models are
 * data, whatever is in them. */
static void answer_page(struct http_exchange *exchange, void *context) {
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
    (void)context;
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/html; charset=utf-8",
                                              .fields = fields,
                                              .n_fields = sizeof fields / sizeof fields[0],
                                              .pieces = &piece,
                                              .n_pieces = 1});
}

static const struct admin_route ROUTES[] = {
    {"/", answer_page},
    {"/metrics", answer_metrics},
    {"/status.json", answer_status},
    {"/debug/state", answer_state},
};

struct http_handler admin_api_handler(struct admin_api *api) {
    api->routes = (struct admin_routes){
        .items = ROUTES, .n = sizeof ROUTES / sizeof ROUTES[0], .context = api};
    return admin_routes_handler(&api->routes);
}
