/* Bytes out of a connection: written in place as far as the socket takes them, queued, and
 * coalesced. Internal to net/server.
 *
 * Thread: the connection's worker. */
#ifndef SLUICE_NET_SERVER_CONN_WRITE_H
#define SLUICE_NET_SERVER_CONN_WRITE_H

#include "net/server/conn.h"
#include "net/server/server.h"

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
/* A write of which the socket has not taken everything. */
struct net_write {
    uv_write_t uv;
    struct net_conn *conn;
    size_t n_bytes; /* that were queued */
    /* It is complete, or has failed; `status`: 0, or libuv's error. The phase may be any. */
    void (*done)(struct net_write *write, int status);
};
/* Sends in place what the socket takes now, and queues the rest as `write`, of which `done` is set.
 * Returns: 1 when all was sent; 0 when the rest is queued: `write` and the bytes are in use until
 * `done`; or libuv's error: nothing is in use, and the caller closes the connection. */
int net_conn_write(struct net_conn *conn, struct net_outgoing *out, struct net_write *write);
/* The handle is closed: ends the queued writes. */
void net_conn_cancel_writes(struct net_conn *conn);
/* Sends the due slices of a worker's large responses; its task. */
bool net_conns_send_slices(struct deferred_task *task);

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

#endif
