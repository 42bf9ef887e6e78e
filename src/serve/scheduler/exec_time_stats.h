/* Decides from recent execution times with equal shapes (shape_times.h) whether a model runs on the
 * worker that read the request: most executions must be short before it does, a few long ones (or
 * one very long one) stop it. Between the two thresholds nothing changes, which prevents flapping.
 *
 * A batch takes longer than one row, and how much longer is not known: the number of rows per
 * inline batch grows with those that were quick. A long batch first lowers it.
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
    _Atomic uint64_t max_rows;
    _Atomic uint32_t holdoff; /* after the next stall */
    _Atomic uint32_t n_until; /* slow: executions that are still not counted; fast: executions since
                                 the last stall or decay */
};

void exec_time_stats_init(struct exec_time_stats *exec_time_stats);
/* Records that an execution of `rows` batch elements took `ns`. */
void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, uint64_t rows);
static inline bool exec_time_stats_is_fast(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->is_fast, memory_order_relaxed);
}
/* Returns: the number of batch elements that a worker may execute together: at most twice as many
 * as were seen to be quick. */
static inline uint64_t exec_time_stats_max_rows(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->max_rows, memory_order_relaxed);
}

#endif
