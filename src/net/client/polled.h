/* Sockets of a library that makes and closes them itself, and wants to know when they are readable
 * or writable: libcurl's, c-ares's.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_NET_CLIENT_POLLED_H
#define SLUICE_NET_CLIENT_POLLED_H

#include <stdbool.h>
#include <stddef.h>

#include "core/event/worker.h"

struct polled_set;

/* A socket that is watched. */
struct polled {
    uv_poll_t poll; /* first: a handle is cast to it */
    struct polled_set *set;
    struct polled *next, *prev;
    int fd;
};

/* Zeroed but for the first two, it is empty. */
struct polled_set {
    struct worker *worker;
    /* A socket can be read or written, or is broken. */
    void (*ready)(struct polled_set *set, int fd, bool readable, bool writable, bool broken);
    struct polled *first;
    size_t n_handles; /* watched, or not closed yet */
    void (*gone)(struct polled_set *set);
};

/* From now on `polled` (NULL: one for `fd`) is watched for that, and nothing else. Returns: it;
 * NULL: the system would not, or out of memory. */
struct polled *polled_watch(struct polled_set *set, struct polled *polled, int fd, bool read,
                            bool write);
/* The one of this socket, by a search. Returns: NULL: there is none. */
struct polled *polled_find(const struct polled_set *set, int fd);
/* No more, and the library may close the socket when this returns. */
void polled_end(struct polled *polled);
/* Calls `gone` when the last handle is closed, perhaps from within; all have ended. */
void polled_set_close(struct polled_set *set, void (*gone)(struct polled_set *set));

#endif
