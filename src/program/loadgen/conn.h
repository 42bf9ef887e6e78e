/* What load.c and conn.c share, and nobody else sees: a thread's loop, and one of its
 * connections. */
#ifndef SLUICE_PROGRAM_LOADGEN_CONN_H
#define SLUICE_PROGRAM_LOADGEN_CONN_H

#include "program/loadgen/load.h"

enum conn_state {
    CONN_FREE,    /* may begin a request */
    CONN_BUSY,    /* waits for an answer */
    CONN_RESTING, /* failed; may begin again at due_ns */
};

struct conn {
    void *connection; /* of the protocol; NULL: none yet */
    enum conn_state state;
    int fd; /* registered with epoll, as far as is known */
    bool measured;
    uint64_t begun_ns; /* or should have begun */
    uint64_t due_ns;   /* busy: step then at the latest; resting: until then */
    struct conn *next_free;
};

struct bench_load {
    struct bench_step_state *step;
    struct bench_load_options options;
    struct bench_pace pace;
    int epoll;
    void *hub; /* of the protocol; NULL: each connection is one of its own */
    struct conn *conns;
    struct conn *free;      /* the one used last is first, so that no more are used than needed */
    uint64_t free_since_ns; /* when there last was none free and one became it */
    unsigned n_busy, n_resting;
    uint64_t scan_ns; /* when to look at all connections again */
    bool ended;       /* nothing begins any more */
    bool no_pwait2;   /* the kernel has no epoll_pwait2 */
    struct bench_stats stats;
};

/* Begins a request that should begin at `begun_ns`, on the first free connection. */
void conn_begin(struct bench_load *load, uint64_t begun_ns);
/* Goes on with a busy connection as far as that is possible without waiting, to the end of its
 * request or to where it is armed again. */
void conn_advance(struct bench_load *load, struct conn *conn);
/* May be used from now on. */
void conn_become_free(struct bench_load *load, struct conn *conn, uint64_t now);
void conn_drop(struct bench_load *load, struct conn *conn);

#endif
