/* A connection of any protocol, on its worker. A protocol's connection is a struct that begins with
 * struct net_conn. Internal to net/server.
 *
 * Lifetime: a connection is freed when its handle is closed; a call (call.h) at the end of the
 * event-loop iteration in which it ended. Code that runs within an iteration may access both
 * without checks.
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
 * Thread: the worker's, unless stated otherwise. */
#ifndef SLUICE_NET_SERVER_CONN_H
#define SLUICE_NET_SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "core/event/loop_iteration.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "net/server/protocol.h"
#include "net/server/response_memory.h"
#include "net/server/socket_memory.h"
#include "net/server/write_queue.h"
#include "net/transport/address.h"
#include "net/transport/conn_table.h"

/* Changed only by net_conn_close and net_conn_close_gracefully. */
enum net_phase {
    NET_OPEN,   /* the protocol processes input */
    NET_LINGER, /* closing: sent bytes still leave, input is dropped until the peer closes */
    NET_CLOSED, /* the handle is closing */
};

/* Whether it has a place. Without one it gets an error, and is closed. */
enum net_admission {
    NET_ADMITTED,   /* it counts as one of max_connections, and its conn_memory_bytes are taken */
    NET_OVER_LIMIT, /* of connections */
    NET_NO_MEMORY,
};

enum {
    /* The worker's buffer for input that is not read straight into a body. */
    NET_READ_BYTES = 65536,
    NET_DECRYPTED_BYTES = NET_READ_BYTES + 32768, /* over TLS: plus the record that is completed */
    NET_COALESCE_BUFFER_BYTES = 16384,            /* for small responses of pipelined requests */
    NET_COALESCE_MAX_BYTES = 4096,                /* a larger response is not coalesced */
};

struct listen_endpoint;
struct net_server;
struct net_tls;

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
    struct timer age;               /* of on_age */
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
    uint8_t admission;           /* enum net_admission */
    bool is_unix;
    bool slice_due;         /* in the worker's slices_due */
    bool close_after_reply; /* close after the current response */
    bool skip_linger;       /* close without a linger: no more input can arrive */
    bool eof;               /* the peer has half-closed */
    bool reading;           /* uv_read_start is on */
    bool consuming;         /* the protocol is processing its bytes: on the stack */
    bool received;          /* since the keepalive timer was started */
    bool ping_sent;         /* and not answered */
    bool is_aged;           /* it is closed after limits.age_grace_ns */
    bool closed;            /* freed by `msg`, which is on its way (entry.called), or with `held` */
    bool held;              /* the protocol uses it after on_close, until net_conn_release */
};

/* ---- conn.c: its life ------------------------------------------------------------------------ */

/* Opens conn->fd on the connection's worker. */
void net_conn_open(struct net_conn *conn);
/* Passes an open connection, whose first bytes are of the protocol of `to`
 * (net_server_options.other of its server), to the same worker's part of that server: it counts
 * there, with the limits, the timeouts and the memory of that protocol, which has seen no byte yet.
 * Nothing was sent. Returns: false when it was closed or refused instead. */
bool net_conn_move(struct net_conn *conn, struct net_server *to) SLUICE_MUST_USE;
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
/* Frees a closed connection, if no message is on its way to it and its protocol has released it. */
void net_conn_free_if_unused(struct net_conn *conn);
/* Closes it now. Idempotent. */
void net_conn_close(struct net_conn *conn);
void net_conn_timed_out(struct net_conn *conn, enum net_timeout timeout);
/* The keepalive timer expired. */
void net_conn_probe(struct net_conn *conn);
/* The peer's address for the log: "127.0.0.1:40312", "unix:pid 4711". Returns: `out`. */
const char *net_conn_peer(const struct net_conn *conn, char out[ADDRESS_TEXT_BYTES]);

/* ---- conn_read.c: bytes in ------------------------------------------------------------------- */

/* Returns: whether the next bytes of the client may be read now. */
static inline bool net_conn_wants_to_read(const struct net_conn *conn) {
    if (conn->eof || conn->n_flushing > 0 || conn->pending_input || conn->turn.queued ||
        (conn->socket.held && conn->phase == NET_OPEN)) {
        return false;
    }
    return conn->phase == NET_LINGER || conn->protocol->wants_to_read(conn);
}
/* Starts or stops reading; nothing when that is so already. */
void net_conn_set_reading(struct net_conn *conn, bool reads);
/* The connection's turn in the event loop. */
void net_conn_run_turn(struct loop_turn *turn);
/* Passes plaintext to the protocol; bytes that must wait become pending input. */
void net_conn_process_input(struct net_conn *conn, struct str data);
/* The peer has half-closed (`half_closed`) or disconnected. Nothing more is read. */
void net_conn_handle_eof(struct net_conn *conn, bool half_closed);
/* Drops all of `data` and counts it. */
void net_conn_discard(struct net_conn *conn, struct str *data);
/* Drops the pending input. */
void net_conn_drop_pending(struct net_conn *conn);
/* Nothing is read while pipelined input waits for a response, so an end of file is not read either:
 * asks the kernel. */
void net_conn_check_client(struct net_conn *conn);
/* Returns: whether it waits for a turn to go on. Not so where bytes have only just arrived: a head
 * whose bytes trickle has one time for all. */
bool net_conn_waits_for_turn(const struct net_conn *conn);
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

#endif
