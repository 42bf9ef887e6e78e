/* What handlers call, for every version of HTTP: the exchange's version sends it. */
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "net/server/http/exchange.h"

void http_reply(struct http_exchange *exchange, const struct http_reply *reply) {
    exchange->version->reply(exchange, reply);
}

/* Returns: the content type; NULL when out of memory for a body. */
static const char *error_print(const struct http_exchange *exchange, struct arena *arena,
                               const struct error *error, struct piece *piece) {
    const struct http_router *router = exchange->router;
    struct buf body;
    buf_init(&body, arena, 0);
    const char *type = router->error_body(&body, error, router->context);
    *piece = (struct piece){body.data, body.len};
    return body.failed ? NULL : type;
}

enum { MAX_ERROR_FIELDS = 8 };

void http_reply_error(struct http_exchange *exchange, const struct error *error,
                      const struct http_field *fields, size_t n_fields) {
    struct http_field with_retry[MAX_ERROR_FIELDS];
    struct piece piece;
    if (error->status == ST_OVERLOADED && n_fields < MAX_ERROR_FIELDS) {
        if (n_fields > 0) {
            memcpy(with_retry, fields, n_fields * sizeof(*fields));
        }
        with_retry[n_fields++] = (struct http_field){STR("Retry-After"), STR("1")};
        fields = with_retry;
    }
    const char *type = error_print(exchange, exchange->arena, error, &piece);
    struct arena *more = type ? NULL : exchange->version->reply_arena(exchange);
    if (more) {
        type = error_print(exchange, more, error, &piece);
    }
    metric_add_error(METRIC_HTTP, error->status);
    if (status_http(error->status) >= 500) {
        log_event(LOG_DEBUG, "request failed", LOG_CSTR("reason", error->text));
    }
    http_reply(exchange, &(struct http_reply){.status = status_http(error->status),
                                              .content_type = type,
                                              .fields = fields,
                                              .n_fields = n_fields,
                                              .pieces = &piece,
                                              .n_pieces = type != NULL});
}

void http_stream_begin(struct http_exchange *exchange, const struct http_reply *reply) {
    exchange->version->stream_begin(exchange, reply);
}

void http_stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                      void (*release)(void *user), void *user) {
    exchange->version->stream_send(exchange, pieces, n_pieces, release, user);
}

void http_stream_end(struct http_exchange *exchange) {
    exchange->version->stream_end(exchange);
}
