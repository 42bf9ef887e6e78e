/* What thread.c and conn.c share, and nobody else sees: a thread's loop, and one of its
 * connections. */
#ifndef SLUICE_PROGRAM_LOADGEN_CONN_H
#define SLUICE_PROGRAM_LOADGEN_CONN_H

#include "program/loadgen/thread.h"

enum bench_conn_state {
    BENCH_CONN_FREE,        /* may begin a request */
    BENCH_CONN_BUSY,        /* waits for an answer */
    BENCH_CONN_BACKING_OFF, /* failed; may begin again at due_ns */
};

struct bench_conn {
    void *connection; /* of the protocol; NULL: none yet */
    enum bench_conn_state state;
    int fd; /* registered with epoll, as far as is known */
    bool measured;
    uint64_t begun_ns; /* or should have begun */
    uint64_t due_ns;   /* busy: step then at the latest; resting: until then */
    struct bench_conn *next_free;
};

struct bench_thread {
    struct bench_step_state *step;
    struct bench_thread_options options;
    struct bench_arrivals arrivals;
    int epoll;
    void *channel; /* of the protocol; NULL: each connection is one of its own */
    struct bench_conn *conns;
    struct bench_conn *free; /* the one used last is first, so that no more are used than
                                     needed */
    uint64_t free_since_ns;  /* when there last was none free and one became it */
    unsigned n_busy, n_backing_off;
    uint64_t scan_ns; /* when to look at all connections again */
    bool ended;       /* nothing begins any more */
    bool no_pwait2;   /* the kernel has no epoll_pwait2 */
    struct bench_stats stats;
};

/* Begins a request that should begin at `begun_ns`, on the first free connection. */
void bench_conn_start(struct bench_thread *load, uint64_t begun_ns);
/* Goes on with a busy connection as far as that is possible without waiting, to the end of its
 * request or to where it is armed again. */
void bench_conn_step(struct bench_thread *load, struct bench_conn *conn);
/* May be used from now on. */
void bench_conn_set_free(struct bench_thread *load, struct bench_conn *conn, uint64_t now);
void bench_conn_close(struct bench_thread *load, struct bench_conn *conn);

#endif
