/* Internals of the HTTP server, of HTTP/1.1 for the most part, on top of net/server/server.h and
 * net/server/request_response.h. Internal to net/server/http. */
#ifndef SLUICE_NET_SERVER_HTTP_CONN_H
#define SLUICE_NET_SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <time.h>

#include "codec/http1/request.h"
#include "codec/http1/response_head.h"
#include "core/base/compiler.h"
#include "net/server/grpc/session.h"
#include "net/server/http/exchange.h"
#include "net/server/request_response.h"

/* A request and its response. */
struct http_call {
    struct net_call base;
    struct http_exchange exchange; /* the router's and the handler's view */
    struct http1_request *request;
    uint64_t skipped;                 /* bytes skipped of a chunked body */
    STAILQ_HEAD(, http_chunk) chunks; /* of a streamed response: not sent yet */
    bool may_send_body; /* the client may send the body: it did not wait, or got 100 Continue */
};

/* A connection. */
struct http_conn {
    struct request_response_conn base;
    uint8_t n_preface; /* bytes of HTTP/2's preface that were received, while the protocol is not
                          known yet: preface.c */
};

/* Server and Date fields of the current second, one per worker. */
struct http_common_fields {
    char text[HTTP1_COMMON_FIELDS_BYTES];
    struct str view;
    time_t second;
};

struct http_server {
    struct net_server net;
    struct http_router router;
    const char *server_name;
    struct http_common_fields *common_fields; /* one per worker */
    struct grpc_server *h2; /* gets the connections that begin with HTTP/2's preface; or
                                      NULL */
    struct grpc_http_requests h2_requests; /* those that are not gRPC: h2.c */
    struct net_protocol detecting; /* of connections whose protocol is not known yet: preface.c */
};

/* server.c: HTTP/1.1. */
extern const struct net_protocol http_protocol;

static inline struct http_server *http_server_of(const struct server_worker *server_worker) {
    return (struct http_server *)server_worker->server;
}

static inline struct http_call *http_call_of(struct http_exchange *exchange) {
    return CONTAINER_OF(exchange, struct http_call, exchange);
}

/* The current call. */
static inline struct http_call *http_conn_call(const struct request_response_conn *conn) {
    return (struct http_call *)conn->call;
}

/* ---- server.c: bodies in --------------------------------------------------------------------- */

/* Returns: whether the rest of the body may be skipped to keep the connection. */
bool http_receive_may_skip(struct http_call *call);

/* ---- preface.c ------------------------------------------------------------------------------- */

/* Sets server->detecting. */
void http_detecting_init(struct http_server *server);

/* ---- reply.c --------------------------------------------------------------------------------- */

void http_send_continue(struct request_response_conn *conn);
/* Decides whether the connection stays open after this response, and whether the rest of a body is
 * skipped. */
void http_reply_decide_keep_alive(struct request_response_conn *conn, struct http_call *call,
                                  bool close);
/* Returns: the Server and Date fields. */
struct str http_reply_common_fields(const struct server_worker *server_worker);

/* struct http_version */
void http1_reply(struct http_exchange *exchange, const struct http_reply *reply);

/* ---- h2.c ------------------------------------------------------------------------------------ */

/* Sets server->h2_requests. */
void http_h2_init(struct http_server *server);

/* ---- stream.c -------------------------------------------------------------------------------- */

/* A chunk was sent, or the whole response of a call that does not stream. */
void http_stream_on_written(struct net_call *base);
/* struct http_version */
void http1_stream_begin(struct http_exchange *exchange, const struct http_reply *reply);
void http1_stream_send(struct http_exchange *exchange, const struct piece *pieces, size_t n_pieces,
                       void (*release)(void *user), void *user);
void http1_stream_end(struct http_exchange *exchange);
/* Drops the chunks that are not sent. */
void http_stream_clear(struct http_call *call);

#endif
