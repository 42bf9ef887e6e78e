/* The connection of a client: connecting, sending and receiving without blocking, over the
 * socket or over the caller's transport (TLS). */
#ifndef SLUICE_CLIENT_CONNECTION_CONNECTION_H
#define SLUICE_CLIENT_CONNECTION_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "client/connection/resolver.h"
#include "client/connection/url.h"
#include "core/base/status.h"
#include "sluice/client.h"

struct client_tls_transport;

/* How far the last attempt came; it stays when the connection is closed. */
enum client_phase {
    CLIENT_RESOLVING, /* looking up the host's name */
    CLIENT_DIALING,   /* connecting the socket */
    CLIENT_AGREEING,  /* the handshake of a transport: no byte has moved */
    CLIENT_CONNECTED,
};

struct client_connection {
    const struct client_url *url;
    const struct client_resolver_options *resolving; /* NULL: the defaults */
    enum client_phase phase;
    sluice_client_transport transport;      /* read NULL: the plain socket */
    const struct client_tls_transport *tls; /* if the transport is that one; else NULL */
    char *gather_buffer;                    /* where small pieces are joined for the transport */
    bool is_shared;     /* calls share it: a transport gets all bytes from gather_buffer, because a
                       call's own may go before it has taken them; and the system looks for a
                       machine that is lost, which no call's deadline finds out for all */
    int fd;             /* -1: none; while is_resolving: the resolver's, readable */
    uint64_t n_sockets; /* made so far: tells apart two with the same number */
    bool connecting;
    bool is_resolving; /* while connecting: the addresses are not there yet */
    bool transport_started;
    bool established;                 /* bytes have moved: a transport's handshake is done */
    uint64_t retry_at_ns;             /* while connecting: when to try again; 0: wait for the socket
                                      alone */
    uint64_t retry_pause_ns;          /* the delay until then */
    struct client_resolver *resolver; /* while connecting: the addresses of the host */
    size_t next_address;              /* the next to try */
};

/* `url` must outlive the connection; `transport` (NULL: none) is copied. Returns: ST_NO_MEMORY. */
enum status client_connection_init(struct client_connection *connection,
                                   const struct client_url *url,
                                   const sluice_client_transport *transport,
                                   struct error *err) SLUICE_MUST_USE;
void client_connection_fini(struct client_connection *connection);
/* Closes the connection. Idempotent; it may be started again. */
void client_connection_close(struct client_connection *connection);

/* ---- connecting ------------------------------------------------------------------------------ */

/* Starts connecting. Returns: ST_IO with address and reason. */
enum status client_connection_start(struct client_connection *connection,
                                    struct error *err) SLUICE_MUST_USE;
/* Continues connecting without blocking; tries the next address if one fails. `connecting` is
 * false when connected. Returns: ST_IO when all addresses failed. */
enum status client_connection_continue(struct client_connection *connection,
                                       struct error *err) SLUICE_MUST_USE;

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Result of sending or receiving. */
struct client_io_result {
    size_t n_bytes;
    bool ended; /* receiving: the peer closed the connection */
    /* if n_bytes is 0: what to wait for */
    bool wants_read, wants_write;
};

/* Is the idle connection open, without unexpected data? */
bool client_connection_is_reusable(struct client_connection *connection);
/* Sends as much of the pieces, at most IOV_MAX, as the socket takes. Returns: ST_IO with the
 * reason. */
enum status client_connection_send(struct client_connection *connection, struct iovec *pieces,
                                   size_t n_pieces, struct client_io_result *out,
                                   struct error *err) SLUICE_MUST_USE;
/* Receives the available bytes into the pieces. Returns: ST_IO with the reason. */
enum status client_connection_receive(struct client_connection *connection, struct iovec *pieces,
                                      size_t n_pieces, struct client_io_result *out,
                                      struct error *err) SLUICE_MUST_USE;

#endif
