/* What infer and generate have in common: an inference on an HTTP exchange. Embedded first in the
 * route's own request, which lives in the exchange's arena, and to which exchange->user points. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_INFER_H
#define SLUICE_SERVE_FRONTEND_HTTP_INFER_H

#include "serve/frontend/client_inference.h"
#include "serve/frontend/http/routes.h"

struct http_inference {
    struct client_inference inference;
    struct http_exchange *exchange;
    struct http_api *api;
};

/* Initializes a zeroed struct and makes it the exchange's user. `handler` is the route's: it
 * cancels and ends the inference with the exchange. */
void http_inference_init(struct http_inference *self, const struct inference_protocol *protocol,
                         struct http_api *api, struct http_exchange *exchange,
                         const struct http_handler *handler);
/* The on_disconnect and on_end of a handler, which a route may call in its own. */
void http_inference_disconnect(struct http_exchange *exchange, void *context);
void http_inference_end(struct http_exchange *exchange, void *context);
static inline struct http_inference *http_inference_of(struct client_inference *inference) {
    return CONTAINER_OF(inference, struct http_inference, inference);
}

/* Returns: the estimated time to parse that much JSON on a slow core, for `decode_ns`. */
static inline uint64_t http_inference_parse_ns(uint64_t json_bytes) {
    return json_bytes * 5;
}

/* Steps for the protocol's table. */
struct trace *http_inference_begin_trace(struct client_inference *inference, struct tracer *tracer);
enum status http_inference_forward_headers(struct client_inference *inference,
                                           struct params *params,
                                           struct error *err) SLUICE_MUST_USE;

#endif
