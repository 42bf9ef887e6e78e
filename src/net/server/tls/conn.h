/* TLS between a connection's socket and its protocol: what is read goes through a session before
 * the protocol sees it, what is written is sealed on its way to the socket. For conn*.c,
 * net/server/worker.c and net/server/server.c; the protocols do not know whether it is there.
 *
 *     socket → net_tls_receive → (handshake, then) room or bytes of the protocol
 *     net_conn_try_write, writes that wait → records → socket
 *
 * A write that waits is sealed piece by piece as the socket takes it, so that a large answer never
 * lies in memory a second time. */
#ifndef SLUICE_NET_SERVER_TLS_CONN_H
#define SLUICE_NET_SERVER_TLS_CONN_H

#include "core/os/log_limit.h"
#include "net/server/server.h"
#include "net/transport/tls/session.h"

enum {
    NET_TLS_ENCRYPTED_BYTES = 4 * (TLS_RECORD_BYTES + 256) + 1024, /* four full records, at a
                                                                      time */
};

struct net_tls_write;

/* Of a connection. */
struct net_tls {
    struct tls_session session;
    struct tls_context *context;        /* until the session has it */
    bool received_any;                  /* bytes have come */
    bool in_handshake;                  /* the handshake is not over */
    bool close_notify_sent;             /* the peer was told that nothing more comes */
    struct net_tls_write *first, *last; /* that wait */
    size_t n_waiting_bytes;             /* of those */
};

/* What all connections of a worker share; nothing stays in these buffers when a callback
 * returns. */
struct server_worker_tls {
    struct log_limit log;
    char decrypted[NET_DECRYPTED_BYTES];
    char encrypted[NET_TLS_ENCRYPTED_BYTES];
    char gathered[TLS_RECORD_BYTES]; /* small pieces that become one record */
};

static inline bool net_tls_in_handshake(const struct net_conn *conn) {
    return conn->tls && conn->tls->in_handshake;
}

/* ---- life of a connection, and bytes in ------------------------------------------------------ */

/* A new connection gets what `server` has now. Returns: false when out of memory. Thread: the
 * acceptor's. */
bool net_tls_attach(struct net_conn *conn, const struct tls_server *server)
    __attribute__((warn_unused_result));
/* The connection is on its worker: waits for a handshake. Returns: false when out of memory. */
bool net_tls_open(struct net_conn *conn) __attribute__((warn_unused_result));
/* NULL is allowed in conn->tls. */
void net_tls_free(struct net_conn *conn);
/* Bytes from the socket, all of them. */
void net_tls_receive(struct net_conn *conn, struct str encrypted);
/* The handshake was not over in time, or the peer went away within it: says so, where that may be
 * of interest. Whoever calls closes the connection. */
void net_tls_handshake_failed(const struct net_conn *conn, enum tls_failure failure,
                              const char *why);
/* Tells the peer that nothing more comes, unless something that was promised does not. */
void net_tls_send_close_notify(struct net_conn *conn);

/* ---- bytes out ------------------------------------------------------------------------------- */

/* As net_conn_try_write; what it takes is sealed and leaves by itself. */
ssize_t net_tls_try_write(struct net_conn *conn, const uv_buf_t *bufs, unsigned n);
/* As uv_write: copies the list, not the bytes; `done` is called with `write`. */
int net_tls_queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                        uv_write_cb done);
/* The handle is closed: writes that still wait are done, with an error. */
void net_tls_cancel_writes(struct net_conn *conn);

#endif
