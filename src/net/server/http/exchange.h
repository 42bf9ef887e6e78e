/* What a version of HTTP implements for the exchanges that it carries: server.c, reply.c and
 * stream.c for HTTP/1.1, h2.c for HTTP/2. Router and handlers see struct http_exchange alone.
 * Internal to net/server/http.
 *
 * Thread: the exchange's worker. */
#ifndef SLUICE_NET_SERVER_HTTP_EXCHANGE_H
#define SLUICE_NET_SERVER_HTTP_EXCHANGE_H

#include "net/server/http/server.h"

struct http_version {
    /* As http_reply and http_stream_begin, _send and _end. */
    void (*reply)(struct http_exchange *exchange, const struct http_reply *reply);
    void (*stream_begin)(struct http_exchange *exchange, const struct http_reply *reply);
    void (*stream_send)(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                        void (*release)(void *user), void *user);
    void (*stream_end)(struct http_exchange *exchange);
    /* Returns: memory for an error when the exchange's arena is used up; NULL: none. */
    struct arena *(*reply_arena)(struct http_exchange *exchange);
};

#endif
