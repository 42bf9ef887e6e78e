/* Sockets of a library that makes and closes them itself, and wants to know when they are readable
 * or writable: libcurl's, c-ares's.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_NET_CLIENT_SOCKET_WATCHER_H
#define SLUICE_NET_CLIENT_SOCKET_WATCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/event/worker.h"

struct socket_watcher_set;

/* A socket that is watched. */
struct socket_watcher {
    uv_poll_t poll; /* first: a handle is cast to it */
    struct socket_watcher_set *set;
    struct socket_watcher *next, *prev;
    int fd;
};

/* Zeroed but for the first two, it is empty. */
struct socket_watcher_set {
    struct worker *worker;
    /* A socket can be read or written, or is broken. */
    void (*on_ready)(struct socket_watcher_set *set, int fd, bool readable, bool writable,
                     bool broken);
    struct socket_watcher *first;
    size_t n_handles; /* watched, or not closed yet */
    void (*on_closed)(struct socket_watcher_set *set);
};

/* From now on `polled` (NULL: one for `fd`) is watched for that, and nothing else. Returns: it;
 * NULL: the system would not, or out of memory. */
struct socket_watcher *socket_watcher_update(struct socket_watcher_set *set,
                                             struct socket_watcher *watcher, int fd, bool read,
                                             bool write);
/* The one of this socket, by a search. Returns: NULL: there is none. */
struct socket_watcher *socket_watcher_find(const struct socket_watcher_set *set, int fd);
/* No more, and the library may close the socket when this returns. */
void socket_watcher_close(struct socket_watcher *watcher);
/* Calls `gone` when the last handle is closed, perhaps from within; all have ended. */
void socket_watcher_set_close(struct socket_watcher_set *set,
                              void (*on_closed)(struct socket_watcher_set *set));

#endif
