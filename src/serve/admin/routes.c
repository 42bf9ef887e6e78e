/* The pages of the admin listener: one row for each path. */
#include "serve/admin/routes.h"

#include "codec/kserve/metadata.h"
#include "serve/admin/status_page.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/status_common.h"

static void answer_metrics(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_metrics_reply(api->metrics, exchange);
}

static void answer_status(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_status_reply(&api->state, exchange, status_json_print, api);
}

static void answer_state(struct http_exchange *exchange, void *context) {
    struct admin_api *api = context;
    admin_state_reply(&api->state, exchange);
}

static void answer_live(struct http_exchange *exchange, void *context) {
    const struct admin_api *api = context;
    bool live = loop_health_is_live(api->loops);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_live_print(&body, live);
    http_json_reply(exchange, live ? 200 : 503, &body);
}

bool admin_api_is_ready(const struct admin_api *api) {
    return !atomic_load_explicit(api->draining, memory_order_relaxed) &&
           loop_health_is_ready(api->loops) && repository_is_ready(api->metrics->repository);
}

static void answer_ready(struct http_exchange *exchange, void *context) {
    const struct admin_api *api = context;
    bool ready = admin_api_is_ready(api);
    struct buf body;
    buf_init(&body, exchange->arena, 32);
    v2_ready_print(&body, ready);
    http_json_reply(exchange, ready ? 200 : 503, &body);
}

static void answer_page(struct http_exchange *exchange, void *context) {
    (void)context;
    status_page_reply(exchange, status_page(), STR(""));
}

static const struct admin_route ROUTES[] = {
    {"/", answer_page, false},
    {"/metrics", answer_metrics, false},
    {"/status.json", answer_status, true},
    {"/debug/state", answer_state, true},
    {"/v2/health/live", answer_live, false},
    {"/v2/health/ready", answer_ready, false},
};

struct http_router admin_api_router(struct admin_api *api) {
    api->routes = (struct admin_routes){
        .items = ROUTES, .n = sizeof ROUTES / sizeof ROUTES[0], .context = api, .web = api->web};
    return admin_routes_router(&api->routes);
}
