/* A request from its first byte to the last byte of its response: its memory, its body, and its
 * end, which is reported once, also when the connection closes before. Internal to net/server.
 *
 * Back pressure: a response is sent in place and at most one write of it is queued (net_call_send);
 * while it is queued, a pipelined connection reads nothing further than one buffer.
 *
 * Thread: the worker of its connection. */
#ifndef SLUICE_NET_SERVER_CALL_H
#define SLUICE_NET_SERVER_CALL_H

#include "net/server/conn_write.h"
#include "net/server/receive_rate.h"
#include "net/transport/body.h"

/* Lives in its arena, as the first member of the protocol's own call. */
struct net_call {
    struct arena *arena;
    struct net_conn *conn; /* NULL: the connection is closed */
    struct server_worker *server_worker;
    /* For the response of a request that used up its own arena, or NULL. */
    struct arena *reply_arena;
    struct body body;
    uint64_t received;      /* body bytes as received */
    uint64_t rate_received; /* of them, in the windows so far */
    struct receive_rate body_rate;
    size_t n_head_reserved; /* of the budget, for a large head */
    struct net_call *ended_next;
    void (*release)(void *user);
    void *user;
    struct net_write write;
    bool counted;         /* counted as in flight */
    bool handler_started; /* the handler has seen it: on_call_end is pending */
    bool replied;
    bool is_streaming; /* the response is sent in chunks; `replied` is set with the last one */
    bool writing;      /* `write` is queued */
};

/* Allocates a zeroed call of `n_bytes`, which begins with struct net_call, in a new arena. Returns:
 * NULL when out of memory. Owns: net_call_free or net_call_finish. */
struct net_call *net_call_new(struct net_conn *conn, size_t n_bytes);
/* Frees a call that no handler has seen. */
void net_call_free(struct net_call *call);
/* Memory for the response when the call's arena is used up. Returns: NULL when out of memory. */
struct arena *net_call_reply_arena(struct net_call *call);
/* Counts the call as in flight, when the handler or an error response takes over. */
void net_call_count_in_flight(struct net_call *call);
/* Called when a part of the body has arrived. Returns: whether it arrives more slowly than
 * min_body_rate. */
bool net_call_body_is_too_slow(struct net_call *call);
/* Releases the response's bytes. */
static inline void net_call_release_reply(struct net_call *call) {
    if (call->release) {
        call->release(call->user);
        call->release = NULL;
    }
}
/* Frees what was received of the body: nothing more of it is wanted. */
void net_call_free_body(struct net_call *call);
/* Ends the call: releases the response and notifies the handler. The memory stays valid until the
 * end of the event-loop iteration. */
void net_call_finish(struct net_call *call);
/* The connection is closed. Ends the call, or leaves that to the handler; `whole`: the handler has
 * the whole request and will reply. */
void net_call_on_conn_closed(struct net_call *call, bool whole);
/* Sends a response in place, after the coalesced ones. Returns: true when all of it was sent; else
 * on_written follows, or the connection is closed. */
bool net_call_send(struct net_call *call, struct net_outgoing *out);

#endif
