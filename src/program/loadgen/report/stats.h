/* The counters of one thread during a step, and their sums over all threads.
 *
 * Thread: one writes; functions marked live may be used meanwhile by others. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_STATS_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "program/loadgen/call.h"
#include "program/loadgen/report/histogram.h"

enum { BENCH_FAILURE_KINDS = 16, BENCH_FAILURE_TEXT_BYTES = 256 };

/* Requests that failed for one reason. */
struct bench_failure {
    enum status status;
    int32_t http_status; /* 0: no answer */
    int32_t mip_error;   /* -1: no answer */
    int32_t grpc_code;   /* 0: no answer, or OK */
    uint64_t count;
    char first[BENCH_FAILURE_TEXT_BYTES]; /* text of the first failure */
};

/* Zeroed memory is empty. Requests are measured if they started (or should have) after the
 * warm-up. The rate counts all answers that came while the step was measured. */
struct bench_stats {
    struct bench_histogram latency; /* of measured requests that succeeded */
    struct bench_histogram lag;     /* open loop: delay of the start by the generator, although a
                                       connection was free */
    uint64_t n_failed;              /* measured requests */
    uint64_t n_unsent;              /* open loop: due, but never started */
    uint64_t n_abandoned;           /* started, and abandoned when the run was interrupted */
    uint64_t n_in_window;           /* answers while the step was measured, without failures */
    uint64_t n_bytes_in_window;     /* of bodies or payloads, in both directions */
    uint64_t cpu_ns;                /* CPU time of the thread while measuring */
    uint64_t last_ns;               /* when the last request ended */
    _Atomic uint64_t n_answered;    /* live: successes and failures, including warm-up */
    _Atomic uint64_t n_refused;
    struct bench_failure failures[BENCH_FAILURE_KINDS];
    size_t n_failures;
};

/* A measured request succeeded. */
void bench_stats_success(struct bench_stats *stats, uint64_t latency_ns);
/* A request failed. Only measured ones are counted by reason. */
void bench_stats_failure(struct bench_stats *stats, const struct bench_error *failed,
                         bool measured);
/* Adds the counters of another thread, which has ended. `last_ns` becomes the latest. */
void bench_stats_merge(struct bench_stats *into, const struct bench_stats *from);
/* The reason of a failure in a few words: "timeout", "HTTP 503", "connection failed". */
void bench_failure_print(struct buf *out, const struct bench_failure *failure);

/* Live. Adds `by` to a counter; the caller is its only writer. */
static inline void bench_counter_add(_Atomic uint64_t *counter, uint64_t by) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}
static inline uint64_t bench_counter_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
