/* The trace extension over HTTP: GET returns the settings, POST changes them and returns the new
 * ones. */
#include "serve/frontend/http/routes.h"

#include "serve/frontend/http/coding.h"
#include "serve/trace/tracer.h"
#include "telemetry/admin/http_text.h"

/* A change of settings; lives in the exchange's arena. */
struct http_trace {
    struct str model;
};

static void reply_trace_settings(struct http_api *api, struct http_exchange *exchange,
                                 struct str model) {
    struct v2_trace_settings now = tracer_get_settings(api->services.tracer, model);
    struct buf body;
    buf_init(&body, exchange->arena, 256);
    v2_trace_print(&body, &now);
    http_json_reply(exchange, 200, &body);
}

static void on_body(struct http_exchange *exchange, void *context) {
    struct http_api *api = context;
    const struct http_trace *self = exchange->user;
    struct v2_trace_update wanted;
    struct error err;
    if (v2_trace_decode(exchange->arena, exchange->body, &api->services.limits, &wanted, &err) !=
            ST_OK ||
        tracer_change_settings(api->services.tracer, self->model, &wanted, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else {
        reply_trace_settings(api, exchange, self->model);
    }
}

static const struct http_handler change_handler = {.on_body = on_body};

/* Prepares to receive the body. Returns: ST_NO_MEMORY, ST_UNKNOWN_ENCODING. */
static enum status begin_change(struct http_exchange *exchange, struct str model,
                                struct error *err) {
    struct http_trace *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    if (!self) {
        return error_no_memory(err, "the request");
    }
    *self = (struct http_trace){model};
    http_limit_body(exchange);
    exchange->user = self;
    exchange->handler = &change_handler;
    return http_coding_of_body(&exchange->head, &exchange->plan.coding, err);
}

void http_trace_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path) {
    struct str model = path->model.ptr ? path->model : STR("");
    struct error err;
    if (trace_model_check(api->services.repository, model, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else if (!str_is(exchange->head.method, "POST")) {
        reply_trace_settings(api, exchange, model);
    } else if (begin_change(exchange, model, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    }
}
