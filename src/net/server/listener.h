/* A socket that listens, on a loop: binds, accepts, and rests for a moment when the process has no
 * descriptor left, instead of spinning. It refuses to know what a connection is for.
 *
 * Thread: the loop's, or before it runs. */
#ifndef SLUICE_NET_SERVER_LISTENER_H
#define SLUICE_NET_SERVER_LISTENER_H

#include <uv.h>

#include "core/base/status.h"
#include "net/transport/address.h"

struct listener;

/* Who gets the accepted sockets: non-blocking, closed on exec, without Nagle's delay. Owns: the
 * descriptor passes over. */
struct listener_events {
    void (*on_accept)(void *user, int fd, int family);
    void (*on_closed)(void *user); /* after listener_close; the listener is gone */
    void *user;
};

/* Binds `address` and starts to accept. `bound` gets the real address (port 0 resolved). A Unix
 * socket's stale file is replaced; one that somebody answers is an error. Returns: ST_IO with the
 * address and the reason. */
enum status listener_open(uv_loop_t *loop, const struct address *address,
                          const struct listener_events *events, struct listener **out,
                          struct address *bound, struct error *err)
    __attribute__((warn_unused_result));
/* Stops accepting and removes a Unix socket's file. Never blocks; on_closed follows. */
void listener_close(struct listener *listener);

#endif
