/* What the servers of all protocols stand on: accepting, and giving each connection to the worker
 * with the fewest; a worker's share (shard) of a server with its timer, timeouts and buffers; a
 * connection's handle, its reading and writing, its linger and its end; a request's memory; and the
 * order in which all of it ends. A protocol is a table of functions and a struct that begins with a
 * struct net_conn. For the files of this room only.
 *
 * Who may free what: a connection is freed when its handle is closed; a call when it has ended and
 * the callbacks that know it have returned, which the shard's turn sees to. So whatever runs inside
 * a turn may look at both without asking.
 *
 * Thread: a shard's worker, for all that is a shard's, a connection's or a call's; the acceptor's
 * for the server's own functions, where nothing else is said. */
#ifndef SLUICE_NET_SERVER_SERVER_H
#define SLUICE_NET_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "net/transport/address.h"
#include "net/transport/body_pool.h"
#include "net/transport/budget.h"

/* conn.c is the only one that changes it. */
enum net_phase {
    NET_OPEN,   /* the protocol has it */
    NET_LINGER, /* ends: what was sent still leaves; what comes is dropped until the peer closes */
    NET_CLOSED, /* the handle is closing */
};

/* Why a connection is given up when nothing happens; an index of the shard's timeouts. */
enum net_timeout {
    NET_TIMEOUT_IDLE,
    NET_TIMEOUT_HEAD,
    NET_TIMEOUT_BODY,
    NET_TIMEOUT_WRITE,
    NET_TIMEOUT_LINGER,
    NET_TIMEOUT_NONE,
};

enum {
    NET_READ_BYTES = 65536, /* the worker's buffer for what is not read straight into a body */
    NET_DECRYPTED_BYTES = NET_READ_BYTES + 32768, /* over TLS: and the record that it completes */
    NET_COALESCE_BUFFER_BYTES = 16384,            /* small answers of pipelined requests
                                                              gather here */
    NET_COALESCE_MAX_BYTES = 4096,                /* of one answer that is gathered, at most */
};

struct net_call;
struct net_conn;
struct net_server;
struct server_worker;
struct net_tls;
struct server_worker_tls;
struct tls_server;

/* What makes a server one of a protocol. All on the connection's worker; a function that is given a
 * connection gets it with phase NET_OPEN, but for on_close. */
struct net_protocol {
    size_t conn_bytes; /* of the protocol's own connection, zeroed when it is new */
    const char *alpn;  /* over TLS: its names, each behind its length, best first; NULL: any */
    /* One connection too many: says so and closes. */
    void (*on_refused)(struct net_conn *conn, const struct error *err);
    /* Takes bytes off the front of `data`, or goes on to where they are taken; called again while
     * there are any. Returns: false when they have to wait for an answer; whoever sends that lets
     * the connection go on (server_worker_schedule_resume). */
    bool (*on_bytes)(struct net_conn *conn, struct str *data);
    /* Where the next bytes are read to. Returns: NULL for the worker's buffer. */
    char *(*read_buffer)(struct net_conn *conn, size_t *n_bytes);
    void (*on_read_buffer_filled)(struct net_conn *conn, size_t n_bytes);
    /* The peer sends nothing more. Returns: false when there is nobody to answer, to close. */
    bool (*on_eof)(struct net_conn *conn);
    /* NET_TIMEOUT_HEAD or _BODY. */
    void (*on_timeout)(struct net_conn *conn, enum net_timeout timeout);
    /* It is closed: lets go of its calls. */
    void (*on_close)(struct net_conn *conn);
    bool (*wants_to_read)(const struct net_conn *conn);
    /* How long may this last? `*keeps`: one that runs already goes on. */
    enum net_timeout (*timeout_of)(const struct net_conn *conn, bool *keep_running);
    /* Nothing is under way: a drain may close it. */
    bool (*is_idle)(const struct net_conn *conn);
    void (*on_written)(struct net_call *call); /* what net_call_send could not send at once */
    void (*on_call_disconnected)(struct net_call *call); /* of a handler that has not replied */
    void (*on_call_end)(struct net_call *call);          /* of one that has begun */
    /* These may be NULL. */
    /* The server drains, or the connection was idle for too long: it shall end as soon as nothing
     * is under way. NULL: it is closed if it is idle. */
    void (*on_drain)(struct net_conn *conn);
    /* What net_conn_send could not send at once has left, or never will. The phase may be any. */
    void (*on_sent)(struct net_conn *conn);
    /* What it is doing, in words (net/server/report.h). */
    void (*describe)(const struct net_conn *conn, struct buf *out);
    /* The next bytes are of a large body, which is no work: reading on holds nobody up. */
    bool (*is_receiving_bulk)(const struct net_conn *conn);
    /* A turn ends. Returns: whether another one is wanted. */
    bool (*run_deferred)(struct server_worker *server_worker);
    /* The shard's timer; server_worker_schedule_timer asks for it. */
    void (*on_timer)(struct server_worker *server_worker, uint64_t now_ns);
};

struct net_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    const struct net_protocol *protocol;
    struct server_worker *server_worker;
    struct net_conn *prev, *next; /* all of the shard's */
    struct net_conn *next_ready;
    struct list_timer timeout;
    uint64_t discarded; /* bytes that were read and dropped */
    uint64_t linger_end_ns;
    size_t unsent_at_arm;     /* when the write timeout was armed */
    size_t n_pipelined_bytes; /* bytes read that lie behind the request at hand, while
                                      consuming */
    char *pending_input;      /* bytes read while the request before was not answered yet */
    size_t pending_at, pending_len;
    struct worker_msg msg; /* brings it from the acceptor to its worker */
    const struct listen_endpoint *listen_endpoint;
    struct net_tls *tls; /* NULL: bytes travel as they are */
    int fd;              /* until it is opened there */
    unsigned n_flushing; /* gathered answers that did not fit the socket and are on their way */
    unsigned n_encrypted_writes; /* pieces of TLS that are */
    uint8_t phase;               /* enum net_phase */
    bool is_unix;
    bool over_limit;        /* one connection too many: gets an error and no more */
    bool close_after_reply; /* ends after the answer at hand */
    bool skip_linger;       /* then nothing can come that would have to be dropped */
    bool eof;               /* the peer has half-closed */
    bool reading;           /* uv_read_start is on */
    bool consuming;         /* its bytes are being handed to the protocol: that is on the stack */
    bool ready;             /* in the shard's list of those that go on at the end of the turn */
};

/* What a worker has of a server. */
struct server_worker {
    struct net_server *server;
    struct worker *worker;
    struct net_conn *conns;
    struct net_call *ended; /* to be freed at the end of the turn */
    struct net_conn *ready, *ready_last;
    size_t n_conns, n_calls;
    uv_timer_t timer;
    uint64_t timer_due_ns;
    uv_check_t check; /* ends a turn */
    uv_idle_t idle;   /* makes sure that it ends at once */
    bool idle_active;
    unsigned n_handles;
    struct timer_list conn_timers;
    struct body_pool pool;
    struct server_worker_tls *tls; /* NULL: nobody came over TLS yet */
    char *in;                      /* NET_READ_BYTES */
    char *out;                     /* NET_COALESCE_BUFFER_BYTES */
    size_t out_len;
    struct net_conn *out_conn; /* whose answers those are */
    bool started, stopping, done;
    struct worker_msg drain_msg, stop_msg, done_msg;
    _Atomic uint64_t n_assigned_conns; /* connections given to it */
    _Atomic uint64_t in_flight;        /* calls */
};

/* Each is a setting (program/model_server/settings.def). */
struct net_limits {
    uint64_t request_memory; /* of one call's arena; 0: no limit */
    uint64_t idle_timeout_ns;
    uint64_t header_timeout_ns;
    uint64_t body_timeout_ns;
    uint64_t min_body_rate;
    uint64_t write_timeout_ns;
    uint64_t discard_size;
};

/* One of the addresses that a server listens on. */
struct listen_endpoint {
    struct net_server *server;
    struct listener *listener;
    const void *user;             /* whose connections those are, for the protocol above */
    const struct tls_server *tls; /* NULL: without */
    char text[ADDRESS_TEXT_BYTES];
};

struct net_server_options {
    const struct net_protocol *protocol;
    struct net_limits limits;
    struct net_budget *budget;
    struct worker *const *workers;
    size_t n_workers;
    struct worker *acceptor;
};

/* At the front of a protocol's own. */
struct net_server {
    const struct net_protocol *protocol;
    struct net_limits limits;
    struct net_budget *budget;
    struct worker *acceptor;
    struct server_worker *workers;
    size_t n_workers;
    size_t next_worker; /* where the search for the least loaded one begins */
    struct listen_endpoint **listen_endpoints;
    size_t n_listen_endpoints;
    size_t n_open;        /* listeners and shards that are not yet stopped */
    atomic_bool draining; /* seen by all workers at once, before any of them closes what is idle */
    bool stopping;
    void (*done)(void *user);
    void *user;
};

static inline bool server_worker_is_draining(const struct server_worker *server_worker) {
    return atomic_load_explicit(&server_worker->server->draining, memory_order_relaxed);
}

/* The number of a shard among its server's. */
static inline size_t server_worker_index(const struct server_worker *server_worker) {
    return (size_t)(server_worker - server_worker->server->workers);
}

/* ---- server.c: the server as a whole --------------------------------------------------------- */

/* Fills in zeroed memory. Returns: ST_NO_MEMORY. Owns: net_server_fini. */
enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) __attribute__((warn_unused_result));
/* After `done` of net_server_stop, or of a server that never listened. */
void net_server_fini(struct net_server *server);
/* As http_server_listen; connections accepted there have an entrance with `cookie`. `tls` may be
 * NULL, and outlives the server's stop. */
enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) __attribute__((warn_unused_result));
void net_server_drain(struct net_server *server);
void net_server_stop(struct net_server *server, void (*done)(void *user), void *user);
/* Thread: any. */
uint64_t net_server_in_flight(const struct net_server *server);

/* ---- server.c: one worker of the server ------------------------------------------------------ */

/* Makes its handles, on its worker. Returns: false when out of memory. */
bool server_worker_start(struct server_worker *server_worker);
void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn);
void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn);
void server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                  enum net_timeout timeout);
/* Wakes the shard at that time at the latest. */
void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns);
/* Frees ended calls; no callback that knows one may be on the stack. */
void server_worker_free_ended_calls(struct server_worker *server_worker);
/* At the end of this turn the shard looks at what was left for then. */
void server_worker_schedule_deferred(struct server_worker *server_worker);
/* What is done then; nothing where nothing was left for it. */
void server_worker_run_deferred(struct server_worker *server_worker);
/* At the end of this turn the connection goes on with the bytes that waited. */
void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn);

/* ---- conn.c: life of a connection ------------------------------------------------------------ */

/* Takes over conn->fd on the connection's worker. */
void net_conn_open(struct net_conn *conn);
/* One connection too many: is told so. */
void net_conn_reject(struct net_conn *conn);
/* After any event: sends what is gathered, reads or rests, arms the timeout that it has now. */
void net_conn_update_io(struct net_conn *conn);
/* Ends it in order: what was sent leaves, then the server half-closes and drops what still comes,
 * within a bound. `clean`: nothing can come, so it closes at once. */
void net_conn_close_gracefully(struct net_conn *conn, bool clean);
/* What was sent has left, of a connection that lingers. */
void net_conn_half_close(struct net_conn *conn);
/* Ends it now. Idempotent. */
void net_conn_close(struct net_conn *conn);
void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout);
/* The peer, for the log: "127.0.0.1:40312", "unix:pid 4711". Returns: `out`. */
const char *net_conn_peer(const struct net_conn *conn, char out[ADDRESS_TEXT_BYTES]);

/* Something that was written is still on its way. */
static inline bool net_conn_is_sending(const struct net_conn *conn) {
    return conn->n_flushing + conn->n_encrypted_writes > 0;
}

/* ---- conn.c: bytes in ------------------------------------------------------------------------ */

void net_conn_read_stop(struct net_conn *conn);
/* Goes on with the bytes that waited. */
void net_conn_process_pending(struct net_conn *conn);
/* Plain bytes for the protocol; those that have to wait are kept. */
void net_conn_process_input(struct net_conn *conn, struct str data);
/* The peer sends nothing more (`half_closed`), or is gone. Nothing is read any more. */
void net_conn_handle_eof(struct net_conn *conn, bool half_closed);
/* Drops all of `data`, and counts it. */
void net_conn_discard(struct net_conn *conn, struct str *data);

/* ---- conn.c: bytes out ----------------------------------------------------------------------- */

/* What is to be sent: a list of buffers, all not empty. */
struct net_outgoing {
    uv_buf_t *bufs;
    unsigned n;
    size_t n_bytes;
    size_t n_body; /* of them, what was not made for this answer alone */
};

static inline void net_outgoing_add(struct net_outgoing *out, const void *data, size_t n_bytes) {
    if (n_bytes > 0) {
        /* libuv's type has no const; nobody writes there. */
        out->bufs[out->n++] = (uv_buf_t){.base = (char *)(uintptr_t)data, .len = n_bytes};
        out->n_bytes += n_bytes;
    }
}

void server_worker_flush(struct server_worker *server_worker);
/* Sends what is gathered, if it is this connection's. */
static inline void net_conn_flush(struct net_conn *conn) {
    if (conn->server_worker->out_conn == conn) {
        server_worker_flush(conn->server_worker);
    }
}
/* Worth gathering: another answer follows, or came before. */
static inline bool net_conn_may_coalesce(const struct net_conn *conn) {
    bool others = conn->n_pipelined_bytes > 0 || conn->server_worker->out_conn == conn;
    return conn->consuming && others && !conn->close_after_reply;
}
/* Gathers it with the answers of the requests around it, if it is small. Returns: false when it was
 * not taken and has to be written by itself, unless the connection is closed. */
bool net_conn_coalesce(struct net_conn *conn, const struct net_outgoing *out);
/* Writes what the socket takes now. Returns: bytes, or a negative error that ends the
 * connection. */
ssize_t net_conn_try_write(struct net_conn *conn, uv_buf_t *bufs, unsigned n);
/* Sends a few bytes: gathered, at once, or from a copy when the socket is full. */
void net_conn_send_small(struct net_conn *conn, struct str data);
/* A write of a connection that has several requests under way. */
struct net_write {
    uv_write_t uv;
    struct net_conn *conn;
    size_t n_bytes;
};
/* Sends from where the bytes lie. Returns: true when all of it is sent; else `write` and the bytes
 * are kept until on_sent, or the connection is closed and nothing is kept. One at a time. */
bool net_conn_send(struct net_conn *conn, struct net_outgoing *out, struct net_write *write);

#endif
