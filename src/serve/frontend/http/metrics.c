/* GET /metrics at the listeners of requests: a page that all clients share, printed on another
 * thread. */
#include "serve/frontend/http/routes.h"

struct http_metrics {
    struct http_request_ops ops;
    struct shared_page_request request;
    bool is_waiting;
};

static void on_body(struct http_api *api, struct http_exchange *exchange) {
    struct http_metrics *self = exchange->user;
    self->is_waiting = true;
    shared_page_answer(api->metrics_page, exchange, &self->request);
}

static void on_disconnect(struct http_exchange *exchange) {
    struct http_metrics *self = exchange->user;
    if (self->is_waiting && exchange->client_disconnected) {
        shared_page_cancel(&self->request);
    }
}

void http_metrics_begin(struct http_api *api, struct http_exchange *exchange) {
    struct http_metrics *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    if (!self) {
        struct error err;
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    self->ops = (struct http_request_ops){.on_body = on_body, .on_disconnect = on_disconnect};
    exchange->user = self;
    http_limit_body(exchange);
    if (!exchange->head.has_body) { /* no body: on_body is not called by the server */
        on_body(api, exchange);
    }
}
