/* The base of the servers of all protocols: it accepts connections and gives each to the worker
 * with the fewest; per worker it keeps connections, a timer, timeouts and buffers; it reads and
 * writes connections, lingers and closes them. A protocol is a table of functions and a struct that
 * begins with struct net_conn. Internal to net/server.
 *
 * Lifetime: a connection is freed when its handle is closed; a call at the end of the event-loop
 * iteration in which it ended. Code that runs within an iteration may access both without checks.
 *
 * Turns: the connections of a worker, of all servers, share LOOP_EVENTS_NS of an event-loop
 * iteration (core/event/loop_iteration.h). One that is reported as readable later than that is not
 * read, but queued for a turn in a later iteration.
 *
 * Back pressure: the server does not read ahead of a slow reader. While coalesced responses are
 * queued on the socket, or input waits for a response, the connection is not read; a write without
 * progress for write_timeout closes it. So a connection holds at most NET_READ_BYTES of pending
 * input (over TLS NET_DECRYPTED_BYTES), NET_COALESCE_BUFFER_BYTES of coalesced responses and the
 * response in progress.
 *
 * Thread: the worker's, for a worker, its connections and its calls; the acceptor's for the
 * server's own functions, unless stated otherwise. */
#ifndef SLUICE_NET_SERVER_SERVER_H
#define SLUICE_NET_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "codec/http1/web_access.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/piece.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "core/os/log_limit.h"
#include "net/server/base.h"
#include "net/server/response_memory.h"
#include "net/server/socket_memory.h"
#include "net/server/write_queue.h"
#include "net/transport/address.h"
#include "net/transport/body_pool.h"
#include "net/transport/budget.h"
#include "net/transport/memory_account.h"

/* Changed only by conn.c. */
enum net_phase {
    NET_OPEN,   /* the protocol processes input */
    NET_LINGER, /* closing: sent bytes still leave, input is dropped until the peer closes */
    NET_CLOSED, /* the handle is closing */
};

/* Why an inactive connection is closed; a class of the worker's conn_timers. */
enum net_timeout {
    NET_TIMEOUT_IDLE,
    NET_TIMEOUT_HEAD,
    NET_TIMEOUT_BODY,
    NET_TIMEOUT_WRITE,
    NET_TIMEOUT_LINGER,
    /* Closes only a connection whose client has closed: it is checked again and again while a
     * request waits and nothing is read. */
    NET_TIMEOUT_CLIENT,
    NET_TIMEOUT_KEEPALIVE, /* of conn->keepalive, not of conn->timeout */
    /* None: the client has half-closed, and the server works for its request. It has its place as
     * long as no other connection needs it. */
    NET_TIMEOUT_HALF_CLOSED,
    NET_TIMEOUT_NONE,
};

enum {
    /* The worker's buffer for input that is not read straight into a body. */
    NET_READ_BYTES = 65536,
    NET_DECRYPTED_BYTES = NET_READ_BYTES + 32768, /* over TLS: plus the record that is completed */
    NET_COALESCE_BUFFER_BYTES = 16384,            /* for small responses of pipelined requests */
    NET_COALESCE_MAX_BYTES = 4096,                /* a larger response is not coalesced */
};

struct net_call;
struct net_conn;
struct net_server;
struct server_worker;
struct net_tls;
struct server_worker_tls;
struct tls_server;

/* A protocol. All functions run on the connection's worker; a connection passed to them is in phase
 * NET_OPEN, except in on_close. */
struct net_protocol {
    const char *name;  /* "http" */
    size_t conn_bytes; /* size of the protocol's connection struct, which is zeroed */
    /* Of the memory for clients, for each connection: what was measured for one with one call,
     * rounded up. */
    size_t conn_memory_bytes;
    const char *alpn; /* ALPN names over TLS, each after its length, best first; NULL: any */
    /* The connection is over the limit: sends an error and closes it. */
    void (*on_refused)(struct net_conn *conn, const struct error *err);
    /* Consumes bytes from the front of `data`; called again while there are any. Returns: false
     * when they must wait for a response; sending that resumes the connection
     * (server_worker_schedule_resume). */
    bool (*on_bytes)(struct net_conn *conn, struct str *data);
    /* Buffer for the next read. Returns: NULL for the worker's buffer. */
    char *(*read_buffer)(struct net_conn *conn, size_t *n_bytes);
    void (*on_read_buffer_filled)(struct net_conn *conn, size_t n_bytes);
    /* The peer has half-closed. Returns: false when no response is pending, to close. */
    bool (*on_eof)(struct net_conn *conn);
    /* NET_TIMEOUT_HEAD or _BODY. */
    void (*on_timeout)(struct net_conn *conn, enum net_timeout timeout);
    /* The connection is closed: ends its calls. */
    void (*on_close)(struct net_conn *conn);
    bool (*wants_to_read)(const struct net_conn *conn);
    /* The current timeout; *keep_running: a running timer of this class is not restarted. */
    enum net_timeout (*timeout_of)(const struct net_conn *conn, bool *keep_running);
    /* Returns: whether no request is in progress: a drain may close the connection. */
    bool (*is_idle)(const struct net_conn *conn);
    void (*on_written)(struct net_call *call);           /* a queued net_call_send is complete */
    void (*on_call_disconnected)(struct net_call *call); /* the handler has not replied */
    /* The client has half-closed, and the handler, which has the whole request, has not replied: it
     * cancels the request, and still replies. NULL: the protocol allows half-close. */
    void (*on_call_half_closed)(struct net_call *call);
    void (*on_call_end)(struct net_call *call); /* the handler has seen the call */
    /* A refusal in the protocol's own form makes clients connect again at once
     * (takes_to_refuse). */
    bool refusal_invites_retry;
    /* The following may be NULL. */
    /* The server drains, or the idle timeout expired: close as soon as no request is in progress.
     * NULL: closed if idle. */
    void (*on_drain)(struct net_conn *conn);
    /* A queued net_conn_send has completed or failed. The phase may be any. */
    void (*on_sent)(struct net_conn *conn);
    /* Of a connection with an incomplete head: whether another request of it is open. NULL: no. */
    bool (*has_open_call)(const struct net_conn *conn);
    /* The connection is idle, and is closed to make room: tells its client and closes it soon,
     * without waiting for it. NULL: closed at once. */
    void (*on_evict)(struct net_conn *conn);
    /* Requests are open: whether all of them wait for the client, to send or to read. NULL: only
     * with NET_TIMEOUT_BODY and NET_TIMEOUT_WRITE. */
    bool (*waits_for_client)(const struct net_conn *conn);
    /* Describes its state in words (net/server/report.h). */
    void (*describe)(const struct net_conn *conn, struct buf *out);
    /* Returns: whether the next bytes belong to a large body, which is cheap to read: reading on
     * does not delay other connections. */
    bool (*is_receiving_bulk)(const struct net_conn *conn);
    /* The event-loop iteration ends. Returns: whether to run again after the next poll. */
    bool (*run_deferred)(struct server_worker *server_worker);
    /* Returns: whether bytes of responses wait for the client to read; *n_taken grows with what it
     * takes (net_bytes_since). NULL: those that wait for the socket. */
    bool (*unsent)(const struct net_conn *conn, uint64_t *n_taken);
    /* While they do not wait for the socket. Returns: since when the client takes none of them; 0:
     * unknown. */
    uint64_t (*unsent_since)(const struct net_conn *conn);
    /* Returns: memory that its bodies and heads have reserved (for reports). */
    uint64_t (*body_bytes)(const struct net_conn *conn);
    /* Requests wait for memory, and the client has hardly taken anything since `since_ns`: ends the
     * calls that this concerns, where others of the connection can go on. Returns: how many; 0: the
     * connection is closed instead. NULL: always. */
    size_t (*end_stalled_calls)(struct net_conn *conn, uint64_t since_ns);
    /* The client has sent nothing for keepalive_time: sends something that it must answer. NULL:
     * TCP's probes alone find clients that vanished. */
    void (*send_ping)(struct net_conn *conn);
    /* The worker's timer, requested with server_worker_schedule_timer. */
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
    LIST_ENTRY(net_conn) link;       /* in the worker's list */
    LIST_ENTRY(net_conn) slice_link; /* in the worker's slices_due */
    struct loop_turn turn;           /* it waits to go on with its pending input, or to be read */
    size_t n_burst_bytes;            /* of a body, read without a break: at most READ_BURST_BYTES */
    struct list_timer timeout, keepalive;
    struct net_peer *peer;          /* what is known of its client; NULL: out of memory */
    struct memory_account *account; /* of its responses; NULL: no memory to count them */
    struct conn_socket socket;
    struct conn_reading slow_reading, reported_reading;
    uint64_t n_written; /* bytes of responses written or queued on the socket */
    uint64_t n_read;    /* bytes read from the socket */
    uint64_t discarded; /* bytes read and dropped */
    uint64_t linger_end_ns;
    uint64_t n_taken_at_arm;  /* net_conn_taken_bytes when the write timeout was started */
    size_t n_pipelined_bytes; /* while consuming: bytes read after the current request */
    char *pending_input;      /* bytes read while the response before them was pending */
    size_t pending_at, pending_len;
    struct worker_msg msg; /* carries it from the acceptor to its worker */
    const struct listen_endpoint *listen_endpoint;
    struct net_tls *tls;         /* NULL: no TLS */
    struct write_queue writes;   /* that wait for the socket: all with TLS, else large ones and
                                    those after them */
    struct conn_entry entry;     /* in the budget's table of connections */
    uint64_t host;               /* address_peer_hash */
    int fd;                      /* until the worker opens it */
    unsigned n_flushing;         /* coalesced writes queued, on the socket or in `writes` */
    unsigned n_encrypted_writes; /* encrypted writes queued on the socket */
    uint8_t phase;               /* enum net_phase */
    bool is_unix;
    bool slice_due;         /* in the worker's slices_due */
    bool over_limit;        /* over the connection limit, or not counted: gets an error only */
    bool counted;           /* its conn_memory_bytes are in the budget */
    bool no_memory;         /* over the limit for want of memory */
    bool close_after_reply; /* close after the current response */
    bool skip_linger;       /* close without a linger: no more input can arrive */
    bool eof;               /* the peer has half-closed */
    bool reading;           /* uv_read_start is on */
    bool consuming;         /* the protocol is processing its bytes: on the stack */
    bool received;          /* since the keepalive timer was started */
    bool ping_sent;         /* and not answered */
    bool closed;            /* freed by `msg`, which is on its way (entry.called), or with `held` */
    bool held;              /* the protocol uses it after on_close, until net_conn_release */
};

/* A worker's part of a server. */
struct server_worker {
    struct net_server *server;
    struct worker *worker;
    LIST_HEAD(, net_conn) conns;
    struct net_call *ended; /* freed at the end of the iteration */
    size_t n_conns, n_calls;
    LIST_HEAD(, net_conn) slices_due; /* connections whose next slice of a response is due */
    struct deferred_task send_slices;
    uv_timer_t timer;
    uint64_t timer_due_ns;
    struct late_timer late_timer;
    bool timed_out_late;                 /* those that client_timers_turn runs were late */
    struct loop_turn client_timers_turn; /* after the connections that wait for a turn */
    struct deferred_task deferred;
    struct timer_list conn_timers;
    struct body_pool pool;
    struct server_memory memory;
    struct server_sockets sockets;
    struct server_worker_tls *tls; /* NULL: no TLS connection yet */
    char *in;                      /* NET_READ_BYTES */
    char *out;                     /* NET_COALESCE_BUFFER_BYTES */
    size_t out_len;
    struct net_conn *out_conn;   /* the connection of the coalesced responses */
    struct log_limit closed_log; /* of connections closed for others */
    struct net_conn *drain_next; /* of those that are told of the drain in drain_turn */
    struct loop_turn drain_turn;
    bool started, stopping, done;
    bool drains; /* not all connections were told; one of net_server.n_telling */
    struct worker_msg drain_msg, stop_msg, done_msg;
    _Atomic uint64_t n_assigned_conns; /* connections assigned to this worker */
    _Atomic uint64_t in_flight;        /* number of calls */
};

/* One of the addresses that a server listens on. */
struct listen_endpoint {
    struct net_server *server;
    struct listener *listener;
    const void *user;             /* identifies the endpoint's connections for the protocol */
    const struct tls_server *tls; /* NULL: no TLS */
    struct web_listener web;
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

/* First member of a protocol's server. */
struct net_server {
    const struct net_protocol *protocol;
    struct net_limits limits;
    struct net_budget *budget;
    struct net_budget_user budget_user;
    struct worker *acceptor;
    struct server_worker *workers;
    size_t n_workers;
    size_t next_worker; /* where the search for the least loaded worker begins */
    struct listen_endpoint **listen_endpoints;
    size_t n_listen_endpoints;
    size_t n_open;       /* listeners and workers that are not stopped */
    uint64_t refused_ns; /* when a connection was last refused with an error */
    uint64_t slowly_ms;  /* when connections were last accepted slowly, and how many */
    unsigned n_accepted_slowly;
    /* Set for all workers at once, before any of them closes idle connections. */
    atomic_bool draining;
    _Atomic uint64_t n_telling; /* workers that have not told all connections of the drain */
    bool stopping;
    void (*done)(void *user);
    void *user;
};

static inline bool server_worker_is_draining(const struct server_worker *server_worker) {
    return atomic_load_explicit(&server_worker->server->draining, memory_order_relaxed);
}

/* Returns: the index of a worker in its server. */
static inline size_t server_worker_index(const struct server_worker *server_worker) {
    return (size_t)(server_worker - server_worker->server->workers);
}

/* ---- server.c: the server as a whole --------------------------------------------------------- */

/* Initialises zeroed memory. Returns: ST_NO_MEMORY. Owns: net_server_fini. */
enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) SLUICE_MUST_USE;
/* After `done` of net_server_stop, or if the server never listened. */
void net_server_fini(struct net_server *server);
/* As http_server_listen; listen_endpoint->user of its connections is `user`. `tls` may be NULL and
 * must outlive the server's stop. */
enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) SLUICE_MUST_USE;

/* A connection whose place was taken keeps it, as it has become busy: where there are too many,
 * another one is closed, unless `n_tried` (conn_entry) were busy. Thread: any. */
void net_server_take_another_place(struct net_server *server, uint8_t n_tried);
/* memory_conn_add, of a kind that counts in the half for connections; if need be others are closed
 * for it. */
bool net_conn_take_memory(struct net_conn *conn, enum memory_conn_kind kind,
                          uint64_t n_bytes) SLUICE_MUST_USE;
/* Closes connections that are idle for a second, of peers that have more than 16.
 * Returns: how many, at most
 * `most`. Thread: any. */
size_t net_budget_close_idle(struct net_budget *budget, size_t most);

/* ---- server.c: one worker of the server ------------------------------------------------------ */

/* Opens the worker's handles, on its thread. Returns: false when out of memory. */
bool server_worker_start(struct server_worker *server_worker);
void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn);
void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn);
/* Returns: the time from which it runs; 0 for NET_TIMEOUT_NONE. */
uint64_t server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                      enum net_timeout timeout);
/* Starts the timer of net_conn_probe. */
void server_worker_start_keepalive(struct server_worker *server_worker, struct net_conn *conn);
/* Runs on_timer at that time or earlier. */
void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns);
/* Frees ended calls; no callback that uses one may be on the stack. */
void server_worker_free_ended_calls(struct server_worker *server_worker);
/* Schedules the protocol's run_deferred and the freeing of ended calls for the end of this
 * event-loop iteration. */
void server_worker_schedule_deferred(struct server_worker *server_worker);
/* Queues the connection for a turn in the event loop: it then goes on with its pending input, or is
 * read. Until then it is not read. */
void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn);

/* ---- conn.c: life of a connection ------------------------------------------------------------ */

/* Opens conn->fd on the connection's worker. */
void net_conn_open(struct net_conn *conn);
/* Refuses a connection over the limit. */
void net_conn_reject(struct net_conn *conn);
/* After any event: sends coalesced output, starts or stops reading, and sets the timeout. */
void net_conn_update_io(struct net_conn *conn);
/* Closes it in order: queued output is sent, then the server half-closes and drops input within a
 * bound. `clean`: no input can arrive, so it closes without a linger. */
void net_conn_close_gracefully(struct net_conn *conn, bool clean);
/* All output of a lingering connection was sent: half-closes it. */
void net_conn_half_close(struct net_conn *conn);
/* The protocol uses a connection no longer that was `held`; frees it if it is closed. */
void net_conn_release(struct net_conn *conn);
/* Runs conn->msg of a connection that another one has taken the place of: closes it, if it still
 * waits for its client. */
void net_conn_evict(struct net_conn *conn);
/* Closes it now. Idempotent. */
void net_conn_close(struct net_conn *conn);
void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout);
/* The keepalive timer expired. */
void net_conn_probe(struct net_conn *conn);
/* The peer's address for the log: "127.0.0.1:40312", "unix:pid 4711". Returns: `out`. */
const char *net_conn_peer(const struct net_conn *conn, char out[ADDRESS_TEXT_BYTES]);

/* Returns: whether the client has sent bytes that are not read yet; they are answered before a
 * close. */
bool net_conn_has_unread(const struct net_conn *conn);
/* Returns: whether bytes of the client wait for a turn of its worker, read or not: then a
 * body is not late because of the client. False where the connection is not to be read. */
bool net_conn_is_behind(const struct net_conn *conn);
/* Returns: bytes that have arrived from the client and were not handled, in the kernel or here. */
uint64_t net_conn_waiting_bytes(const struct net_conn *conn);
/* As net_conn_is_behind, of what had arrived when it was first called with that `*mark`, which is 0
 * then: what a client sends later makes nothing else late. */
bool net_conn_is_behind_mark(const struct net_conn *conn, uint64_t *mark);
/* Returns: bytes written but not taken by the socket. */
size_t net_conn_unsent_bytes(const struct net_conn *conn);
/* Returns: bytes that the peer's host has acknowledged, modulo 2^64: only differences have a
 * meaning (net_bytes_since). What the socket's buffer has taken is no measure of a client that
 * reads slowly: a full buffer takes more only when a third of it is acknowledged, which may be
 * megabytes. */
uint64_t net_conn_taken_bytes(const struct net_conn *conn);
/* Returns: the growth from `earlier` to `now`; 0 when TLS records or the kernel's headers, which
 * are not counted as written, make it look negative. */
static inline uint64_t net_bytes_since(uint64_t now, uint64_t earlier) {
    return (int64_t)(now - earlier) > 0 ? now - earlier : 0;
}
/* Returns: whether coalesced or encrypted bytes wait for the socket. A response that is queued as a
 * whole does not count: the protocol has its net_call or net_write. */
static inline bool net_conn_is_sending(const struct net_conn *conn) {
    return conn->n_flushing + conn->n_encrypted_writes > 0;
}

/* ---- conn.c: bytes in ------------------------------------------------------------------------ */

void net_conn_read_stop(struct net_conn *conn);
/* The connection's turn in the event loop. */
void net_conn_run_turn(struct loop_turn *turn);
/* Passes plaintext to the protocol; bytes that must wait become pending input. */
void net_conn_process_input(struct net_conn *conn, struct str data);
/* The peer has half-closed (`half_closed`) or disconnected. Nothing more is read. */
void net_conn_handle_eof(struct net_conn *conn, bool half_closed);
/* Drops all of `data` and counts it. */
void net_conn_discard(struct net_conn *conn, struct str *data);

/* ---- conn.c: bytes out ----------------------------------------------------------------------- */

/* A list of buffers to send, none empty. */
struct net_outgoing {
    uv_buf_t *bufs;
    unsigned n;
    size_t n_bytes;
    size_t n_body; /* bytes of payload among them, for METRIC_COPIED_BYTES_TOTAL */
};

static inline void net_outgoing_add(struct net_outgoing *out, const void *data, size_t n_bytes) {
    if (n_bytes > 0) {
        /* libuv's type has no const; it does not write there. */
        out->bufs[out->n++] = (uv_buf_t){.base = (char *)(uintptr_t)data, .len = n_bytes};
        out->n_bytes += n_bytes;
    }
}

void server_worker_flush(struct server_worker *server_worker);
/* Sends the coalesced output, if it is this connection's. */
static inline void net_conn_flush(struct net_conn *conn) {
    if (conn->server_worker->out_conn == conn) {
        server_worker_flush(conn->server_worker);
    }
}
/* Returns: whether another response follows or came before. */
static inline bool net_conn_may_coalesce(const struct net_conn *conn) {
    bool others = conn->n_pipelined_bytes > 0 || conn->server_worker->out_conn == conn;
    return conn->consuming && others && !conn->close_after_reply;
}
/* Copies a small response into the coalescing buffer. Returns: false when it must be written by
 * itself, unless the connection is closed. */
bool net_conn_coalesce(struct net_conn *conn, const struct net_outgoing *out);
/* Writes what the socket takes now. Returns: bytes, or a negative error that ends the
 * connection. */
ssize_t net_conn_try_write(struct net_conn *conn, uv_buf_t *bufs, unsigned n);
/* Sends a few bytes: coalesced, at once, or from a copy when the socket is full. */
void net_conn_send_small(struct net_conn *conn, struct str data);
/* A write of a connection with several requests in progress. */
struct net_write {
    uv_write_t uv;
    struct net_conn *conn;
    size_t n_bytes;
};
/* Sends in place; at most one write at a time. Returns: true when all was sent; else `write` and
 * the bytes are in use until on_sent, or the connection is closed and nothing is in use. */
bool net_conn_send(struct net_conn *conn, struct net_outgoing *out, struct net_write *write);
/* Sends the due slices of a worker's large responses; its task. */
bool net_conns_send_slices(struct deferred_task *task);

#endif
