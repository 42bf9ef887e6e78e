/* Decides from recent execution times whether a model runs on the worker that read the request:
 * most executions must be short before it does, a few long ones (or one very long one) stop it.
 * Between the two thresholds nothing changes, which prevents flapping.
 *
 * A batch takes longer than one request. A long batch therefore first lowers the number of requests
 * per inline batch.
 *
 * Thread: any. Of two concurrent updates one may be lost. */
#ifndef SLUICE_SERVE_SCHEDULER_EXEC_TIME_STATS_H
#define SLUICE_SERVE_SCHEDULER_EXEC_TIME_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXEC_FAST_NS = 50 * 1000, /* executions below this count for running on the worker */
    /* above: counts against it; also the model time per loop iteration */
    EXEC_SLOW_NS = 100 * 1000,
    EXEC_STALL_NS = 1000 * 1000, /* a single execution above this ends it */
    /* After such a stall, so many executions are not counted; twice as many after each further one,
     * half as many after a long time on the worker without any. A client that alternates slow
     * requests with quick ones delays the worker less and less often. */
    EXEC_HOLDOFF_MIN = 16,
    EXEC_HOLDOFF_MAX = 1 << 20,
    EXEC_HOLDOFF_DECAY = 4096,
    EXEC_WINDOW = 16, /* executions remembered */
    EXEC_FAST_MIN_COUNT = 12,
    EXEC_SLOW_MAX_COUNT = 3,
};

struct exec_time_stats {
    _Atomic uint32_t history; /* low half: a bit per fast execution; high half: per slow one;
                                 newest lowest */
    atomic_bool is_fast;
    atomic_size_t max_batch;
    _Atomic uint32_t holdoff; /* after the next stall */
    _Atomic uint32_t n_until; /* slow: executions that are still not counted; fast: executions since
                                 the last stall or decay */
};

void exec_time_stats_init(struct exec_time_stats *exec_time_stats);
/* Records that an execution of `n` requests took `ns`. */
void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, size_t n);
static inline bool exec_time_stats_is_fast(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->is_fast, memory_order_relaxed);
}
/* Returns: the number of requests that a worker may execute together. */
static inline size_t exec_time_stats_max_batch(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->max_batch, memory_order_relaxed);
}

#endif
