/* One thread of a load: its connections, an epoll loop, and when each connection sends its next
 * request. What a request is belongs to bench_call; what to count, to bench_stats. */
#ifndef SLUICE_PROGRAM_LOADGEN_THREAD_H
#define SLUICE_PROGRAM_LOADGEN_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/status.h"
#include "program/loadgen/arrivals.h"
#include "program/loadgen/call.h"
#include "program/loadgen/report/stats.h"

/* What the threads of one step share. Thread: the atomics any, the rest only before they start. */
struct bench_step_state {
    const struct bench_call *call;
    bool reconnect;
    bool counted;                /* the step ends with the last of n_left requests */
    uint64_t from_ns;            /* when measuring begins; before is warm-up */
    _Atomic uint64_t until_ns;   /* no request begins after; moved forward to end a step early */
    _Atomic int64_t n_left;      /* measured requests that may still begin, if counted */
    _Atomic uint64_t give_up_ns; /* what is unanswered then is abandoned; UINT64_MAX: nothing */
};

struct bench_thread_options {
    unsigned n_connections; /* or exchanges at once, where they share connections */
    unsigned n_shared;      /* so many; 0: they don't */
    double rate;            /* of this thread; 0: a closed loop */
    enum bench_arrival arrival;
    uint64_t seed;
    uint64_t start_ns; /* an open loop's first request */
};

struct bench_thread;

/* Returns: ST_NO_MEMORY, ST_IO. Owns: *out until bench_thread_free. */
enum status bench_thread_new(struct bench_step_state *step,
                             const struct bench_thread_options *options, struct bench_thread **out,
                             struct error *err) __attribute__((warn_unused_result));
void bench_thread_free(struct bench_thread *load);
/* Runs until the step's end and the answer to the last request. Thread: a new one, or the
 * caller's. */
void bench_thread_run(struct bench_thread *load);
/* Live while it runs (see program/loadgen/report/stats.h); at rest afterwards. */
const struct bench_stats *bench_thread_stats(const struct bench_thread *load);

#endif
