/* The connection of a client: connecting, sending and receiving without ever blocking, over the
 * socket itself or over the caller's transport (TLS). It refuses to know what the bytes mean, and
 * to wait.
 *
 * Looking up a host's name is the C library's matter and blocks for as long as that takes. */
#ifndef SLUICE_CLIENT_CONNECTION_H
#define SLUICE_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "client/url.h"
#include "core/base/status.h"
#include "sluice/client.h"

struct addrinfo;

struct client_connection {
    const struct client_url *url;
    sluice_client_transport transport; /* read NULL: the socket itself */
    char *gather_buffer;               /* small pieces become one for the transport here */
    int fd;                            /* -1: none */
    bool connecting;
    bool transport_started;
    bool established;           /* bytes may move, or have: a transport's handshake is over */
    uint64_t retry_at_ns;       /* while connecting: try once more then; 0: the socket will say */
    uint64_t retry_pause_ns;    /* before that */
    struct addrinfo *addresses; /* while connecting: the addresses of the host */
    struct addrinfo *next_address; /* the one to try when this one fails */
};

/* `url` must outlive the connection, `transport` (NULL: none) is copied. Returns: ST_NO_MEMORY. */
enum status client_connection_init(struct client_connection *connection,
                                   const struct client_url *url,
                                   const sluice_client_transport *transport, struct error *err)
    __attribute__((warn_unused_result));
void client_connection_fini(struct client_connection *connection);
/* Ends the connection. Idempotent; it may be connected again. */
void client_connection_close(struct client_connection *connection);

/* ---- connecting ------------------------------------------------------------------------------ */

/* Begins to connect. Returns: ST_IO with the address and the reason. */
enum status client_connection_start(struct client_connection *connection, struct error *err)
    __attribute__((warn_unused_result));
/* Goes on connecting as far as that is possible now; tries the next address where one fails.
 * `connecting` is false when it is done. Returns: ST_IO when no address answered. */
enum status client_connection_continue(struct client_connection *connection, struct error *err)
    __attribute__((warn_unused_result));

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What came of sending or receiving. */
struct client_io_result {
    size_t n_bytes;
    bool ended; /* receiving: the peer ended the connection */
    /* with n_bytes 0: call again when the socket can be … */
    bool wants_read, wants_write;
};

/* Is the idle connection still good: open, and silent? */
bool client_connection_is_reusable(struct client_connection *connection);
/* Sends what fits of the pieces, at most IOV_MAX. Returns: ST_IO, the reason. */
enum status client_connection_send(struct client_connection *connection, struct iovec *pieces,
                                   size_t n_pieces, struct client_io_result *out, struct error *err)
    __attribute__((warn_unused_result));
/* Receives what is there into the pieces. Returns: ST_IO, the reason. */
enum status client_connection_receive(struct client_connection *connection, struct iovec *pieces,
                                      size_t n_pieces, struct client_io_result *out,
                                      struct error *err) __attribute__((warn_unused_result));

/* The monotonic clock, in nanoseconds. */
uint64_t client_now_ns(void);

#endif
