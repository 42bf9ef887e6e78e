/* Watches sockets that a library (libcurl, c-ares) opens and closes itself for readability and
 * writability.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_NET_CLIENT_SOCKET_WATCHER_H
#define SLUICE_NET_CLIENT_SOCKET_WATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "core/event/worker.h"

struct socket_watcher_set;

/* A watched socket. */
struct socket_watcher {
    uv_poll_t poll; /* first: a handle is cast to it */
    struct socket_watcher_set *set;
    LIST_ENTRY(socket_watcher) link;
    int fd;
};

/* Zeroed except for the first two members, it is empty. */
struct socket_watcher_set {
    struct worker *worker;
    /* The socket is readable, writable, or broken. */
    void (*on_ready)(struct socket_watcher_set *set, int fd, bool readable, bool writable,
                     bool broken);
    LIST_HEAD(, socket_watcher) watchers;
    size_t n_handles; /* open or closing */
    void (*on_closed)(struct socket_watcher_set *set);
};

/* Watches for these events and no others. `watcher` NULL: adds a watcher for `fd`. Returns: the
 * watcher; NULL: libuv refused, or out of memory. */
struct socket_watcher *socket_watcher_update(struct socket_watcher_set *set,
                                             struct socket_watcher *watcher, int fd, bool read,
                                             bool write);
/* Returns: the watcher of this socket (linear search), or NULL. */
struct socket_watcher *socket_watcher_find(const struct socket_watcher_set *set, int fd);
/* Stops watching; the library may close the socket when this returns. */
void socket_watcher_close(struct socket_watcher *watcher);
/* Closes all watchers; calls `on_all_closed` when the last handle is closed, possibly before it
 * returns. */
void socket_watcher_set_close(struct socket_watcher_set *set,
                              void (*on_all_closed)(struct socket_watcher_set *set));

#endif
