/* Is a model fast enough to run on the worker that read the request? Decided from how long its
 * recent executions took: most of them must be short before it may, a few long ones (or one very
 * long) end it. Between the two thresholds nothing changes, so that it does not flap.
 *
 * Requests that are executed together take longer than one. That is no word against the model, but
 * against so many at once on a worker: fewer then, until they are short again. It refuses to read
 * the clock.
 *
 * Thread: any. Two threads that add at once may lose one of the two observations; that is
 * allowed. */
#ifndef SLUICE_SERVE_SCHEDULER_EXEC_TIME_STATS_H
#define SLUICE_SERVE_SCHEDULER_EXEC_TIME_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXEC_FAST_NS = 50 * 1000,    /* shorter counts for running on the worker */
    EXEC_SLOW_NS = 100 * 1000,   /* longer counts against; and a worker that has spent so long on
                                    models in one turn begins with no more of them */
    EXEC_STALL_NS = 1000 * 1000, /* one of these is enough against */
    EXEC_WINDOW = 16,            /* executions remembered */
    EXEC_FAST_MIN_COUNT = 12,
    EXEC_SLOW_MAX_COUNT = 3,
};

struct exec_time_stats {
    _Atomic uint32_t history; /* low half: a bit per fast execution; high half: per slow one; newest
                                 lowest */
    atomic_bool is_fast;
    atomic_size_t max_batch;
};

void exec_time_stats_init(struct exec_time_stats *exec_time_stats);
/* An execution of `n` requests took `ns`. */
void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, size_t n);
static inline bool exec_time_stats_is_fast(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->is_fast, memory_order_relaxed);
}
/* How many requests a worker may execute together. */
static inline size_t exec_time_stats_max_batch(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->max_batch, memory_order_relaxed);
}

#endif
