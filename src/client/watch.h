/* A socket in the epoll set of a client. */
#ifndef SLUICE_CLIENT_WATCH_H
#define SLUICE_CLIENT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct client_watch {
    int fd; /* in the set; -1: none */
    uint64_t n_sockets;
    uint32_t events;
};

/* What to wait for now. */
struct client_watched {
    int socket;         /* the current one, or -1 */
    uint64_t n_sockets; /* tells apart two with the same number */
    /* Not in the set: one that only time can help (the backlog of a Unix socket is full) is
     * reported by epoll all the time. */
    bool is_out;
    uint32_t events;
};

/* Makes the set `epoll_fd` as `wanted` has it, with `ptr` as the data of the socket's events. A
 * closed socket has left the set by itself. Out of memory the socket is in no set until the next
 * call. */
void client_watch_set(struct client_watch *watch, int epoll_fd, const struct client_watched *wanted,
                      void *ptr);

#endif
