/* A request from its first byte to the last byte of its answer: its memory, its body, and its end,
 * which comes once, also when the peer is gone before. For the files of this room only.
 *
 * Thread: the worker of its connection. */
#ifndef SLUICE_NET_SERVER_CALL_H
#define SLUICE_NET_SERVER_CALL_H

#include "net/server/server.h"
#include "net/transport/body.h"

/* Lives in its arena, at the front of the protocol's own. */
struct net_call {
    struct arena *arena;
    struct net_conn *conn; /* NULL: the peer is gone */
    struct server_worker *server_worker;
    struct arena *reply_arena; /* for the answer of a request that filled its own arena, or NULL */
    struct body body;
    uint64_t body_started_ns;
    uint64_t received; /* bytes of the body, as sent */
    struct net_call *ended_next;
    void (*release)(void *user);
    void *user;
    uv_write_t write;
    size_t writing_bytes; /* what `write` has */
    bool counted;         /* among those in flight */
    bool handler_started; /* the handler has seen it: its end is owed */
    bool replied;
    bool is_streaming; /* its answer goes out in pieces; `replied` once the last was handed over */
    bool writing;
};

/* A zeroed call of so many bytes, which begin with struct net_call, in an arena of its own.
 * Returns: NULL when out of memory. */
struct net_call *net_call_new(struct net_conn *conn, size_t n_bytes);
/* One that nobody has seen. */
void net_call_free(struct net_call *call);
/* Memory for the answer when the call's own is used up. Returns: NULL when out of memory. */
struct arena *net_call_reply_arena(struct net_call *call);
/* The handler may have it now, or it is an error that is answered: it counts. */
void net_call_count_in_flight(struct net_call *call);
/* Is its body so slow that holding its memory is not worth it? */
bool net_call_body_is_too_slow(const struct net_call *call);
/* Its answer's bytes are not needed any more. */
static inline void net_call_release_reply(struct net_call *call) {
    if (call->release) {
        call->release(call->user);
        call->release = NULL;
    }
}
/* Over, in whatever way: releases the answer, tells the handler. The memory stays until the end of
 * the turn. */
void net_call_finish(struct net_call *call);
/* The connection is closed. Ends the call, or lets the handler end it; `whole`: the handler has the
 * whole request, and will reply. */
void net_call_on_conn_closed(struct net_call *call, bool whole);
/* Sends an answer from where its bytes lie, after what is gathered. Returns: true when all of it is
 * sent; else on_written will see the call, or the connection is closed. */
bool net_call_send(struct net_call *call, struct net_outgoing *out);

#endif
