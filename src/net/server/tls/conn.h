/* TLS between a connection's socket and its protocol: input is decrypted before the protocol gets
 * it, writes are encrypted. Used by the files of net/server/conn.h, conn_write.h, conn_limit.h and
 * server.h only; protocols are unaware of it.
 *
 *     socket → net_tls_receive → (handshake, then) buffer or bytes of the protocol
 *     net_conn_try_write, queued writes → records → socket
 */
#ifndef SLUICE_NET_SERVER_TLS_CONN_H
#define SLUICE_NET_SERVER_TLS_CONN_H

#include "core/os/log_limit.h"
#include "net/server/conn.h"
#include "net/server/server.h"
#include "net/transport/tls/session.h"

enum {
    NET_TLS_ENCRYPTED_BYTES = 4 * (TLS_RECORD_BYTES + 256) + 1024, /* four full records */
    /* What OpenSSL takes for a connection, as measured and rounded up: during the handshake, whose
     * messages it buffers, and afterwards. */
    NET_TLS_HANDSHAKE_MEMORY_BYTES = 40 * 1024,
    NET_TLS_SESSION_MEMORY_BYTES = 16 * 1024,
};

/* TLS state of a connection. */
struct net_tls {
    struct tls_session session;  /* from the first whole record on: before, it would take memory */
    struct tls_context *context; /* until the session takes it */
    /* The beginning of a record. OpenSSL gets whole records, as it takes a buffer of 16 KiB for
     * each that has begun. */
    char *partial;
    size_t n_partial, partial_cap;
    bool received_any;      /* bytes were received */
    bool in_handshake;      /* the handshake is in progress */
    bool close_notify_sent; /* close_notify was sent */
    bool peer_closed;       /* close_notify was received */
};

/* Buffers and log limit shared by a worker's connections. The buffers are empty between
 * callbacks. */
struct server_worker_tls {
    struct log_limit log;
    char decrypted[NET_DECRYPTED_BYTES];
    char encrypted[NET_TLS_ENCRYPTED_BYTES];
    char gathered[TLS_RECORD_BYTES]; /* small pieces coalesced into one record */
};

static inline bool net_tls_in_handshake(const struct net_conn *conn) {
    return conn->tls && conn->tls->in_handshake;
}

static inline bool net_tls_peer_has_closed(const struct net_conn *conn) {
    return conn->tls && conn->tls->peer_closed;
}

/* ---- life of a connection, and bytes in ------------------------------------------------------ */

/* Gives a new connection the current context of `server`. Returns: false when out of memory.
 * Thread: the acceptor's. */
bool net_tls_attach(struct net_conn *conn, const struct tls_server *server) SLUICE_MUST_USE;
/* The connection is on its worker: a handshake may begin. Returns: false when out of memory. */
bool net_tls_open(struct net_conn *conn) SLUICE_MUST_USE;
/* NULL is allowed in conn->tls. */
void net_tls_free(struct net_conn *conn);
/* Processes all bytes read from the socket. */
void net_tls_receive(struct net_conn *conn, struct str encrypted);
/* The handshake timed out, or the peer disconnected during it: logs and counts it. The caller
 * closes the connection. */
void net_tls_handshake_failed(const struct net_conn *conn, enum tls_failure failure,
                              const char *why);
/* Sends close_notify, unless queued writes are incomplete. */
void net_tls_send_close_notify(struct net_conn *conn);

/* ---- bytes out ------------------------------------------------------------------------------- */

/* As net_conn_try_write, which calls it when no write is queued; the bytes it takes are encrypted
 * and sent without further calls. */
ssize_t net_tls_try_write(struct net_conn *conn, const uv_buf_t *bufs, unsigned n);
/* As uv_write: copies the list, not the bytes; calls `done` with `write`. Back pressure: the write
 * is encrypted part by part as the socket takes it, so a large response is not held a second
 * time. */
int net_tls_queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                        uv_write_cb done);

#endif
