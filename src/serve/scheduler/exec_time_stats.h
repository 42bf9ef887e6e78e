/* Decides from recent execution times with equal shapes (shape_times.h) whether a model runs on the
 * worker that read the request: most executions must be short before it does, a few long ones (or
 * one very long one) stop it. Between the two thresholds nothing changes, which prevents flapping.
 *
 * On a busy machine, and in a container whose share of the CPU is used up, the kernel stops a
 * thread for milliseconds. While stalls are not long ago, the CPU time of executions is therefore
 * measured, and one that was only stopped counts with what it used.
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
    /* After the end, so many executions are not counted; twice as many after each further one, half
     * as many after a long time on the worker without any. A client that alternates slow
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
    _Atomic uint32_t holdoff; /* after the next end */
    _Atomic uint32_t n_until; /* slow: executions that are still not counted; fast: executions since
                                 the last end or decay */
};

/* What the thread had used when an execution began. */
struct exec_thread_use {
    bool known;
    uint64_t cpu_ns;
    long n_waits; /* how often it gave the CPU back by itself */
};

void exec_time_stats_init(struct exec_time_stats *exec_time_stats);

struct exec_thread_use exec_thread_use_read(void);
/* An execution begins on this thread; NULL: its time is not kept. Returns: what exec_time_stats_add
 * takes. A system call only when there was a stall not long ago. */
static inline struct exec_thread_use exec_time_stats_begin(
    const struct exec_time_stats *exec_time_stats) {
    bool is_needed =
        exec_time_stats &&
        atomic_load_explicit(&exec_time_stats->holdoff, memory_order_relaxed) > EXEC_HOLDOFF_MIN;
    return is_needed ? exec_thread_use_read() : (struct exec_thread_use){.known = false};
}
/* Records that an execution of `rows` batch elements took `ns`, on the thread that had used
 * `before` when it began; NULL: not known. */
void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, uint64_t rows,
                         const struct exec_thread_use *before);

static inline bool exec_time_stats_is_fast(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->is_fast, memory_order_relaxed);
}
/* Returns: the number of batch elements that a worker may execute together: at most twice as many
 * as were seen to be quick. */
static inline uint64_t exec_time_stats_max_rows(const struct exec_time_stats *exec_time_stats) {
    return atomic_load_explicit(&exec_time_stats->max_rows, memory_order_relaxed);
}

#endif
