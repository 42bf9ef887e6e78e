/* The steps of an inference that are the same for every route of HTTP. */
#include "serve/frontend/http/inference.h"

#include "serve/frontend/header_forward.h"
#include "serve/frontend/picked.h"

void http_inference_disconnect(struct http_exchange *exchange, void *context) {
    struct http_inference *self = exchange->user;
    (void)context;
    if (exchange->client_disconnected) {
        inference_abandon(&self->inference.base);
    } else {
        inference_cancel(&self->inference.base);
    }
}

void http_inference_end(struct http_exchange *exchange, void *context) {
    struct http_inference *self = exchange->user;
    (void)context;
    client_inference_fini(&self->inference, !exchange->client_disconnected);
}

void http_inference_init(struct http_inference *self, const struct inference_protocol *protocol,
                         struct http_api *api, struct http_exchange *exchange,
                         const struct http_handler *handler) {
    self->exchange = exchange;
    self->api = api;
    client_inference_init(&self->inference, protocol, &api->services, exchange->worker,
                          exchange->account);
    self->inference.base.arena = exchange->arena;
    exchange->user = self;
    exchange->handler = handler;
    struct str destination;
    picked_count(http_head_find(&exchange->head, STR(PICKED_FIELD), &destination) > 0);
}

struct trace *http_inference_begin_trace(struct client_inference *inference,
                                         struct tracer *tracer) {
    struct trace *trace = trace_begin_http(tracer, inference->base.spec,
                                           &http_inference_of(inference)->exchange->head);
    trace_timestamp_set(trace, TRACE_HTTP_RECV_START);
    return trace;
}

enum status http_inference_forward_headers(struct client_inference *inference,
                                           struct params *params, struct error *err) {
    struct http_inference *self = http_inference_of(inference);
    return header_forward_http(self->api->forward, inference_arena(&inference->base),
                               &self->exchange->head, params, err);
}
