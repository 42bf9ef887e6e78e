/* What each protocol implements for the servers: a table of functions. Internal to net/server. */
#ifndef SLUICE_NET_SERVER_PROTOCOL_H
#define SLUICE_NET_SERVER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct net_call;
struct net_conn;
struct server_worker;

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
    NET_TIMEOUT_KEEPALIVE, /* of conn->keepalive, not of conn->timeout, as the next one */
    NET_TIMEOUT_PING,      /* the answer to a ping */
    /* None: the client has half-closed, and the server works for its request. It has its place as
     * long as no other connection needs it. */
    NET_TIMEOUT_HALF_CLOSED,
    NET_TIMEOUT_NONE,
};

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
    /* Initialises the protocol's part of a new connection, its lists above all: any of these
     * functions may be called before its first bytes. Thread: the acceptor's, before the
     * connection's worker sees it. NULL: zeroed memory is the initial state. */
    void (*init)(struct net_conn *conn);
    /* The server drains, or the idle timeout expired: close as soon as no request is in progress.
     * NULL: closed if idle. */
    void (*on_drain)(struct net_conn *conn);
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

#endif
