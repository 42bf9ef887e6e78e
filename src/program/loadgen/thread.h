/* One thread of a load: its connections, an epoll loop, and the start times of requests.
 * bench_call defines the request, bench_stats the counters.
 *
 * Back pressure: a connection has one request in flight; nothing is queued for a slow server. */
#ifndef SLUICE_PROGRAM_LOADGEN_THREAD_H
#define SLUICE_PROGRAM_LOADGEN_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/status.h"
#include "program/loadgen/arrivals.h"
#include "program/loadgen/call.h"
#include "program/loadgen/report/stats.h"

/* Shared by the threads of one step. Thread: the atomics any; the rest is constant after the
 * threads have started. */
struct bench_step_state {
    const struct bench_call *call;
    bool reconnect;
    bool counted;                /* the step ends after n_left measured requests */
    uint64_t from_ns;            /* measuring begins; before that is warm-up */
    _Atomic uint64_t until_ns;   /* no request starts after this; moved forward to end a step
                                    early */
    _Atomic int64_t n_left;      /* measured requests that may still start, if counted */
    _Atomic uint64_t give_up_ns; /* requests in flight are abandoned then; UINT64_MAX: never */
};

struct bench_thread_options {
    unsigned n_connections; /* or concurrent calls, if connections are shared */
    unsigned n_shared;      /* number of shared connections; 0: not shared */
    double rate;            /* of this thread; 0: closed loop */
    enum bench_arrival arrival;
    uint64_t seed;
    uint64_t start_ns; /* start of an open loop */
};

struct bench_thread;

/* Returns: ST_IO. Owns: *out until bench_thread_free. */
enum status bench_thread_new(struct bench_step_state *step,
                             const struct bench_thread_options *options, struct bench_thread **out,
                             struct error *err) SLUICE_MUST_USE;
void bench_thread_free(struct bench_thread *load);
/* Runs until the step's end and the last answer. Thread: a new one, or the caller's. */
void bench_thread_run(struct bench_thread *load);
/* Returns: the counters; live while the thread runs (see program/loadgen/report/stats.h). */
const struct bench_stats *bench_thread_stats(const struct bench_thread *load);

#endif
