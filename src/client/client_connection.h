/* The socket of a client: connecting, sending and receiving without blocking, and one function that
 * waits until a deadline. It refuses to know what the bytes mean.
 *
 * Looking up a host's name is the C library's matter and blocks for as long as that takes. */
#ifndef SLUICE_CLIENT_CLIENT_CONNECTION_H
#define SLUICE_CLIENT_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/status.h"
#include "client/client_url.h"

struct addrinfo;

struct client_connection {
    const struct client_url *url;
    int fd; /* -1: none */
    bool connecting;
    struct addrinfo *found; /* while connecting: the addresses of the host */
    struct addrinfo *next;  /* the one to try when this one fails */
};

/* `url` must outlive the connection. */
void client_connection_init(struct client_connection *connection, const struct client_url *url);
/* Closes the socket. Idempotent; it may be connected again. */
void client_connection_close(struct client_connection *connection);

/* Begins to connect. Returns: ST_IO with the address and the reason. */
enum status client_connection_start(struct client_connection *connection, struct error *err)
    __attribute__((warn_unused_result));
/* Goes on connecting when the socket is writable; tries the next address where one fails.
 * `connecting` is false when it is done. Returns: ST_IO when no address answered. */
enum status client_connection_proceed(struct client_connection *connection, struct error *err)
    __attribute__((warn_unused_result));
/* Is the idle connection still good: open, and silent? */
bool client_connection_is_idle(const struct client_connection *connection);

/* Sends what fits. *n_sent is 0 when nothing does now. Returns: ST_IO, the reason. */
enum status client_connection_send(struct client_connection *connection, const struct iovec *pieces,
                                   size_t n_pieces, size_t *n_sent, struct error *err)
    __attribute__((warn_unused_result));
/* Receives what is there. *n_received is 0 with *ended false when nothing is. Returns: ST_IO. */
enum status client_connection_receive(struct client_connection *connection, char *at,
                                      size_t n_bytes, size_t *n_received, bool *ended,
                                      struct error *err) __attribute__((warn_unused_result));

/* Waits until the socket can be read, or written when `write` says so. Returns:
 * ST_DEADLINE_EXCEEDED when `deadline_ns` (on client_now_ns's clock) passes before; `err` is left
 * for the caller to fill. */
enum status client_connection_wait(const struct client_connection *connection, bool read,
                                   bool write, uint64_t deadline_ns)
    __attribute__((warn_unused_result));

/* The monotonic clock, in nanoseconds. */
uint64_t client_now_ns(void);

#endif
