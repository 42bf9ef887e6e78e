/* The inside of the HTTP server: a connection, the exchange at hand on it, and the shard of the
 * server that is a worker's. For the http_*.c files of this room only.
 *
 * Who may free what: a connection is freed when its handle is closed; a call (an exchange) when it
 * has ended and the callbacks that know it have returned, which the shard's turn sees to. So
 * whatever runs inside a turn may look at both without asking. */
#ifndef SLUICE_NET_HTTP_CONN_H
#define SLUICE_NET_HTTP_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "net/body_pool.h"
#include "net/http_body.h"
#include "net/http_server.h"
#include "net/timeouts.h"
#include "wire/http1_reply.h"
#include "wire/http1_request.h"

/* What a connection does now. http_conn_set_state is the only one that changes it. */
enum http_conn_state {
    HTTP_CONN_IDLE,       /* no byte of the next request has come */
    HTTP_CONN_HEAD,       /* a head is being read */
    HTTP_CONN_BODY,       /* the handler has the head; the body is being read */
    HTTP_CONN_WAIT,       /* the handler has the whole request */
    HTTP_CONN_REPLY,      /* the answer is being written; nothing more of the request is read */
    HTTP_CONN_REPLY_SKIP, /* the same, while the rest of a refused body is read and dropped */
    HTTP_CONN_SKIP,       /* the answer is written; the rest of the body is still dropped */
    HTTP_CONN_LINGER,     /* half-closed: what comes is dropped until the client closes too */
    HTTP_CONN_CLOSED,     /* the handle is closing */
    HTTP_CONN_STATES,
};

/* Why a connection is given up when nothing happens; an index of the shard's timeouts. */
enum http_timeout {
    HTTP_TIMEOUT_IDLE,
    HTTP_TIMEOUT_HEAD,
    HTTP_TIMEOUT_BODY,
    HTTP_TIMEOUT_WRITE,
    HTTP_TIMEOUT_LINGER,
    HTTP_TIMEOUT_NONE,
};

enum {
    HTTP_READ_BYTES = 65536, /* the worker's buffer for whatever is not read straight into a body */
    HTTP_OUT_BYTES = 16384,  /* small answers of pipelined requests gather here */
    HTTP_SKIP_BYTES = 65536, /* the rest of a refused body that is worth a connection */
};

struct http_call;
struct http_shard;

struct http_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct http_shard *shard;
    struct http_call *call;        /* NULL: between requests */
    struct http_conn *prev, *next; /* all of the shard's */
    struct http_conn *ready_next;
    struct timeout timeout;
    uint64_t discarded; /* bytes that were read and dropped */
    uint64_t linger_end_ns;
    size_t write_left; /* when the write timeout was armed */
    size_t ahead;      /* bytes read that lie behind the request at hand, while consuming */
    char *stash;       /* bytes read while the request before was not answered yet */
    size_t stash_at, stash_len;
    struct worker_msg msg; /* brings it from the acceptor to its worker */
    int fd;                /* until it is opened there */
    uint8_t state;         /* enum http_conn_state */
    bool is_unix;
    bool refused;   /* one connection too many: gets an error and no more */
    bool last;      /* ends after the answer at hand */
    bool clean_end; /* then nothing can come that would have to be dropped */
    bool eof;       /* the client has half-closed */
    bool reading;   /* uv_read_start is on */
    bool consuming; /* http_conn_consume is on the stack */
    bool flushing;  /* gathered answers did not fit the socket and are on their way */
    bool ready;     /* in the shard's list of those that go on at the end of the turn */
};

/* An exchange from its first byte on; the handler's part is its first member. */
struct http_call {
    struct http_exchange exchange;
    struct http_conn *conn; /* NULL: the client is gone */
    struct http_shard *shard;
    struct http1_request *request;
    struct arena *spare; /* for the answer of a request that filled its own arena, or NULL */
    struct http_body body;
    uint64_t body_begun_ns;
    uint64_t received;  /* bytes of the body, as sent */
    uint64_t skip_left; /* of a known length, when it is skipped */
    uint64_t skipped;
    struct http_call *ended_next;
    void (*release)(void *cookie);
    void *cookie;
    uv_write_t write;
    size_t writing_bytes; /* what `write` has */
    bool counted;         /* among those in flight */
    bool begun;           /* the handler has seen it: on_end is owed */
    bool replied;
    bool writing;
    bool continued; /* the client may send the body (it did not wait, or was told) */
};

/* What a worker has of a server. */
struct http_shard {
    struct http_server *server;
    struct worker *worker;
    struct http_conn *conns;
    struct http_call *ended; /* to be freed at the end of the turn */
    struct http_conn *ready, *ready_last;
    size_t n_conns, n_calls;
    uv_timer_t timer;
    uint64_t timer_due_ns;
    uv_check_t check; /* ends a turn */
    uv_idle_t idle;   /* makes sure that it ends at once */
    bool idling;
    unsigned n_handles;
    struct timeouts timeouts;
    struct body_pool pool;
    char *in;  /* HTTP_READ_BYTES */
    char *out; /* HTTP_OUT_BYTES */
    size_t out_len;
    struct http_conn *out_conn; /* whose answers those are */
    char common[HTTP1_COMMON_BYTES];
    struct str common_text;
    time_t common_second;
    bool begun, stopping, done;
    struct worker_msg drain_msg, stop_msg, done_msg;
    _Atomic uint64_t load;      /* connections given to it */
    _Atomic uint64_t in_flight; /* exchanges */
};

struct http_server {
    struct http_limits limits;
    struct http_handler handler;
    const char *server_name;
    struct worker *acceptor;
    struct net_budget *budget;
    struct http_shard *shards;
    size_t n_shards;
    size_t next_shard; /* where the search for the least loaded one begins */
    struct listener **listeners;
    size_t n_listeners;
    size_t n_open;        /* listeners and shards that are not yet stopped */
    atomic_bool draining; /* seen by all workers at once, before any of them closes what is idle */
    bool stopping;
    void (*done)(void *cookie);
    void *cookie;
};

static inline bool http_shard_is_draining(const struct http_shard *shard) {
    return atomic_load_explicit(&shard->server->draining, memory_order_relaxed);
}

/* ---- http_conn.c: a connection's life -------------------------------------------------------- */

/* Takes over conn->fd on the connection's worker. */
void http_conn_open(struct http_conn *conn);
void http_conn_set_state(struct http_conn *conn, enum http_conn_state state);
/* After any event: sends what is gathered, reads or rests, arms the timeout that the state has. */
void http_conn_settle(struct http_conn *conn);
/* The exchange at hand is over: the next request, or the end. */
void http_conn_next(struct http_conn *conn);
/* Ends it now. What a handler still has is told that the client is gone. Idempotent. */
void http_conn_close(struct http_conn *conn);
void http_conn_timed_out(struct http_conn *conn, enum http_timeout timeout);

/* ---- http_read.c: bytes in ------------------------------------------------------------------- */

void http_conn_read_start(struct http_conn *conn);
void http_conn_read_stop(struct http_conn *conn);
/* Goes on with the bytes that waited. */
void http_conn_run_stash(struct http_conn *conn);

/* ---- http_receive.c: bodies in --------------------------------------------------------------- */

/* The head is complete: asks the handler, then prepares for the body. */
void http_receive_head(struct http_conn *conn);
/* Bytes of the body (state BODY), or of one that is skipped. Cuts off `data` what was consumed. */
void http_receive_body(struct http_conn *conn, struct str *data);
/* So many bytes were read straight into the body. */
void http_receive_in_place(struct http_conn *conn, size_t n_bytes);
/* The body does not come, or too slowly: refuses the request. */
void http_receive_timed_out(struct http_conn *conn);
void http_receive_skip(struct http_conn *conn, struct str *data);
/* May the rest of the body be skipped, so that the connection stays? */
bool http_receive_may_skip(struct http_call *call);

/* ---- http_write.c: bytes out (and http_reply) ------------------------------------------------ */

/* Sends what is gathered. */
void http_write_flush(struct http_conn *conn);
void http_write_continue(struct http_conn *conn);

/* ---- http_call.c: an exchange's life --------------------------------------------------------- */

/* Returns: NULL when out of memory. */
struct http_call *http_call_new(struct http_conn *conn);
/* Memory for the answer when the exchange's own is used up. Returns: NULL when out of memory. */
struct arena *http_call_spare(struct http_call *call);
/* The handler may have it now, or it is an error that is answered: it counts. */
void http_call_count(struct http_call *call);
/* Over, in whatever way: releases the answer, tells the handler. The memory stays until the end of
 * the turn. */
void http_call_end(struct http_call *call);
/* The connection is closed. Ends the call, or lets the handler end it. */
void http_call_detach(struct http_call *call, enum http_conn_state state);

/* ---- http_shard.c ---------------------------------------------------------------------------- */

void http_shard_init(struct http_shard *shard, struct http_server *server, struct worker *worker);
void http_shard_fini(struct http_shard *shard);
/* Makes its handles, on its worker. Returns: false when out of memory. */
bool http_shard_begin(struct http_shard *shard);
void http_shard_add(struct http_shard *shard, struct http_conn *conn);
void http_shard_remove(struct http_shard *shard, struct http_conn *conn);
void http_shard_arm(struct http_shard *shard, struct http_conn *conn, enum http_timeout timeout);
/* Wakes the shard at that time at the latest. */
void http_shard_wake_at(struct http_shard *shard, uint64_t due_ns);
/* Frees ended calls; no callback that knows one may be on the stack. */
void http_shard_sweep(struct http_shard *shard);
/* At the end of this turn the shard looks at what was left for then. */
void http_shard_ask_turn(struct http_shard *shard);
void http_shard_make_ready(struct http_shard *shard, struct http_conn *conn);
/* Server and Date of this second. */
struct str http_shard_common(struct http_shard *shard);

/* ---- http_server.c --------------------------------------------------------------------------- */

/* A shard has closed its last handle. Thread: the acceptor's. */
void http_server_shard_done(struct http_server *server);

#endif
