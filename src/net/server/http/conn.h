/* The inside of the HTTP/1.1 server: what it adds to net/server/server.h and net/server/serial.h.
 * For the http_*.c files of this room only. */
#ifndef SLUICE_NET_SERVER_HTTP_CONN_H
#define SLUICE_NET_SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "codec/http1/reply.h"
#include "codec/http1/request.h"
#include "net/server/http/server.h"
#include "net/server/serial.h"

/* An exchange from its first byte on. */
struct http_call {
    struct net_call base;
    struct http_exchange exchange; /* the handler's part */
    struct http1_request *request;
    uint64_t skipped;                             /* of a body whose length is not known */
    struct http_chunk *first_chunk, **chunks_end; /* of a stream: not sent yet */
    bool continued; /* the client may send the body (it did not wait, or was told) */
};

/* Server and Date of this second, one for each worker. */
struct http_common {
    char text[HTTP1_COMMON_BYTES];
    struct str view;
    time_t second;
};

struct http_server {
    struct net_server net;
    struct http_limits limits;
    struct http_handler handler;
    const char *server_name;
    struct http_common *commons; /* as many as shards */
};

static inline struct http_server *http_server_of(const struct net_shard *shard) {
    return (struct http_server *)shard->server;
}

static inline struct http_call *http_call_of(struct http_exchange *exchange) {
    return (struct http_call *)(void *)((char *)exchange - offsetof(struct http_call, exchange));
}

/* The one at hand. */
static inline struct http_call *http_conn_call(const struct serial_conn *conn) {
    return (struct http_call *)conn->call;
}

/* ---- conn.c: from bytes to requests ----------------------------------------------------- */

extern const struct net_protocol http_protocol;

/* In net/server/describe.c. */
void http_describe(const struct net_conn *conn, struct buf *out);

/* ---- receive.c: heads and bodies in ----------------------------------------------------- */

/* The head is complete: asks the handler, then prepares for the body. */
void http_receive_head(struct serial_conn *conn);
/* Bytes of the body (state BODY), or of one that is skipped. Cuts off `data` what was consumed. */
void http_receive_body(struct serial_conn *conn, struct str *data);
void http_receive_skip(struct serial_conn *conn, struct str *data);
/* So many bytes were read straight into the body. */
void http_receive_in_place(struct net_conn *conn, size_t n_bytes);
/* The body does not come, or too slowly: refuses the request. */
void http_receive_timed_out(struct serial_conn *conn);
/* May the rest of the body be skipped, so that the connection stays? */
bool http_receive_may_skip(struct http_call *call);

/* ---- reply.c: answers out (and http_reply) ---------------------------------------------- */

void http_reply_continue(struct serial_conn *conn);
/* What becomes of the connection after this answer, and of a body that is still coming. */
void http_reply_decide(struct serial_conn *conn, struct http_call *call, bool close);
/* Server and Date. */
struct str http_reply_common(const struct net_shard *shard);

/* ---- stream.c: answers in pieces (and http_stream_*) ------------------------------------ */

/* A piece has left, or the whole answer of a call that does not stream. */
void http_stream_on_written(struct net_call *base);
/* Gives up what is not sent. */
void http_stream_drop(struct http_call *call);

#endif
