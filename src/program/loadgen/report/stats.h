/* What one thread of a load counts while a step runs, and the sums of all threads after it. It
 * refuses to know how requests are made.
 *
 * Thread: one writes; the functions named live read while it does. */
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
    int32_t http_status; /* 0: none came */
    int32_t mip_error;   /* -1: none came */
    int32_t grpc_code;   /* 0: none came, or OK */
    uint64_t count;
    char first[BENCH_FAILURE_TEXT_BYTES]; /* the first one's message */
};

/* All zero is empty. Requests that began (or should have) after the warm-up are measured; answers
 * that came while the step was measured make its rate, whenever they began. */
struct bench_stats {
    struct bench_histogram latency; /* of measured requests that succeeded */
    struct bench_histogram lag;     /* open loop: how late the generator was to begin them, where a
                                       connection was free */
    uint64_t n_failed;              /* measured requests */
    uint64_t n_unsent;              /* open loop: due, and never begun */
    uint64_t n_abandoned;           /* begun, and given up when the run was ended early */
    uint64_t n_in_window;           /* answers (no failures) */
    uint64_t n_bytes_in_window;     /* of the bodies or payloads, there and back */
    uint64_t cpu_ns;                /* what the thread used up while measuring */
    uint64_t last_ns;               /* when the last request was done */
    _Atomic uint64_t n_answered;    /* live: successes, and failures, warm-up included */
    _Atomic uint64_t n_refused;
    struct bench_failure failures[BENCH_FAILURE_KINDS];
    size_t n_failures;
};

/* A measured request succeeded. */
void bench_stats_success(struct bench_stats *stats, uint64_t latency_ns);
/* A request failed. Only measured ones count among the failures. */
void bench_stats_failure(struct bench_stats *stats, const struct bench_error *failed,
                         bool measured);
/* Adds what another thread counted, which is at rest. `last_ns` becomes the latest. */
void bench_stats_merge(struct bench_stats *into, const struct bench_stats *from);
/* The reason of a failure in a few words: "timeout", "HTTP 503", "connection failed". */
void bench_failure_print(struct buf *out, const struct bench_failure *failure);

/* Live. Adds `by` to a counter of which the caller is the only writer. */
static inline void bench_counter_add(_Atomic uint64_t *counter, uint64_t by) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}
static inline uint64_t bench_counter_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
