/* The logging extension over HTTP: GET returns the settings, POST changes them and returns the new
 * ones. */
#include "serve/frontend/http/routes.h"

#include "serve/frontend/http/coding.h"
#include "serve/frontend/log_settings.h"
#include "telemetry/admin/http_text.h"

static void reply_log_settings(struct http_exchange *exchange) {
    struct v2_log_settings now = log_settings_get();
    struct buf body;
    buf_init(&body, exchange->arena, 256);
    v2_log_print(&body, &now);
    http_json_reply(exchange, 200, &body);
}

static void on_body(struct http_exchange *exchange, void *context) {
    const struct http_api *api = context;
    struct v2_log_settings wanted;
    struct error err;
    enum status st =
        v2_log_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, &err);
    log_settings_apply(&wanted); /* settings before the invalid one are applied */
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else {
        reply_log_settings(exchange);
    }
}

static const struct http_handler change_handler = {.on_body = on_body};

void http_logging_begin(struct http_api *api, struct http_exchange *exchange,
                        const struct v2_path *path) {
    struct error err;
    (void)api, (void)path;
    if (!str_is(exchange->head.method, "POST")) {
        reply_log_settings(exchange);
        return;
    }
    if (http_coding_of_body(&exchange->head, &exchange->plan.coding, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_limit_body(exchange);
    exchange->handler = &change_handler;
}
