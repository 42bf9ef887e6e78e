/* A listening socket on a loop: binds, accepts, and pauses accepting for a moment when the process
 * is out of descriptors.
 *
 * Thread: the loop's, or before it runs. */
#ifndef SLUICE_NET_SERVER_LISTENER_H
#define SLUICE_NET_SERVER_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/base/status.h"
#include "net/transport/address.h"

struct listener;
struct net_limits;

/* Callbacks for accepted sockets, which are non-blocking, close-on-exec, and have TCP_NODELAY.
 * Owns: the callback takes the descriptor. */
struct listener_events {
    /* `host`: address_peer_hash of the client. */
    void (*on_accept)(void *user, int fd, int family, uint64_t host);
    /* Returns: whether connections may be accepted now; false: after a millisecond. May be NULL. */
    bool (*may_accept)(void *user);
    /* Out of descriptors: new connections wait a moment. May be NULL. */
    void (*on_no_descriptors)(void *user);
    void (*on_closed)(void *user); /* after listener_close; the listener is freed */
    void *user;
};

/* What the kernel may hold for an accepted socket. */
struct socket_bytes {
    int receive; /* of its receive buffer at first, as the kernel counts; 0: its default */
    int unsent;  /* of output, before it can be sent; 0: no limit */
};

/* Binds `address` and starts to accept. `bound` gets the bound address (port 0 resolved). The stale
 * file of a Unix socket is replaced; a socket in use is an error. Of `limits`, keepalive_time_ns
 * and write_timeout_ns become options of the accepted sockets, reuse_port of the listening one.
 * Returns: ST_IO with the address and the reason. */
enum status listener_open(uv_loop_t *loop, const struct address *address,
                          const struct net_limits *limits, struct socket_bytes sizes,
                          const struct listener_events *events, struct listener **out,
                          struct address *bound, struct error *err) SLUICE_MUST_USE;
/* Stops accepting and removes a Unix socket's file. Never blocks; on_closed follows. */
void listener_close(struct listener *listener);

#endif
