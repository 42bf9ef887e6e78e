/* The recent executions of a model as two bit histories. Bits are counted instead of averaging
 * times, so that an execution that the kernel interrupted spoils one bit and not the mean of the
 * next hundred. */
#include "serve/scheduler/exec_time_stats.h"

#include <sys/resource.h>

void exec_time_stats_init(struct exec_time_stats *exec_time_stats) {
    atomic_store_explicit(&exec_time_stats->is_fast, false, memory_order_relaxed);
    atomic_store_explicit(&exec_time_stats->history, 0, memory_order_relaxed);
    atomic_store_explicit(&exec_time_stats->max_rows, 1, memory_order_relaxed);
    atomic_store_explicit(&exec_time_stats->holdoff, EXEC_HOLDOFF_MIN, memory_order_relaxed);
    atomic_store_explicit(&exec_time_stats->n_until, 0, memory_order_relaxed);
}

static uint32_t history_push(uint32_t row, bool bit) {
    return (row << 1 | (bit ? 1u : 0u)) & 0xffffu;
}

/* Halves the limit of rows when an execution took too long. Raises it to as many as were seen to
 * take no longer than a worker may, and to twice as many where the time allows. */
static void adapt_max_rows(struct exec_time_stats *exec_time_stats, uint64_t ns, uint64_t rows) {
    uint64_t most = exec_time_stats_max_rows(exec_time_stats);
    if (ns > EXEC_SLOW_NS && rows <= most) {
        most = rows / 2;
    } else if (ns < EXEC_FAST_NS && rows >= most && rows < UINT32_MAX) {
        most = 2 * rows;
    } else if (ns <= EXEC_SLOW_NS && rows > most) {
        most = rows;
    } else {
        return;
    }
    atomic_store_explicit(&exec_time_stats->max_rows, most > 0 ? most : 1, memory_order_relaxed);
}

/* ---- the thread's own time ------------------------------------------------------------------- */

static uint64_t ns_of(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_usec * 1000;
}

struct exec_thread_use exec_thread_use_read(void) {
    struct rusage usage;
    bool known = getrusage(RUSAGE_THREAD, &usage) == 0;
    return known ? (struct exec_thread_use){.known = true,
                                            .cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime),
                                            .n_waits = usage.ru_nvcsw}
                 : (struct exec_thread_use){.known = false};
}

/* Returns: the CPU time of an execution of `ns` that did not wait for anything: the rest of the
 * time the kernel had stopped the thread. Otherwise `ns`. */
static uint64_t own_time(uint64_t ns, const struct exec_thread_use *before) {
    struct exec_thread_use now = {.known = false};
    if (before && before->known) {
        now = exec_thread_use_read();
    }
    bool was_stopped = now.known && now.n_waits == before->n_waits &&
                       now.cpu_ns >= before->cpu_ns && now.cpu_ns - before->cpu_ns < ns;
    return was_stopped ? now.cpu_ns - before->cpu_ns : ns;
}

/* ---- after it ended -------------------------------------------------------------------------- */

static uint32_t load(const _Atomic uint32_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void store(_Atomic uint32_t *value, uint32_t n) {
    atomic_store_explicit(value, n, memory_order_relaxed);
}

/* The executions that are not counted are twice as many each time. */
static void begin_holdoff(struct exec_time_stats *exec_time_stats) {
    uint32_t holdoff = load(&exec_time_stats->holdoff);
    store(&exec_time_stats->n_until, holdoff);
    store(&exec_time_stats->holdoff,
          holdoff < EXEC_HOLDOFF_MAX / 2 ? 2 * holdoff : EXEC_HOLDOFF_MAX);
}

/* After many executions on the worker the next holdoff is half as long. */
static void shorten_holdoff(struct exec_time_stats *exec_time_stats) {
    uint32_t n = load(&exec_time_stats->n_until) + 1, holdoff = load(&exec_time_stats->holdoff);
    if (n >= EXEC_HOLDOFF_DECAY) {
        n = 0;
        store(&exec_time_stats->holdoff,
              holdoff > 2 * EXEC_HOLDOFF_MIN ? holdoff / 2 : EXEC_HOLDOFF_MIN);
    }
    store(&exec_time_stats->n_until, n);
}

/* ---------------------------------------------------------------------------------------------- */

/* Returns: whether the execution counts for running on the worker. One of more rows than a worker
 * runs together, as instances have them under load, counts by the share that the worker's would
 * take; their time is no more than its own, which is no stall. Otherwise load that was sent to the
 * instances once would stay there, because it makes their batches large. */
static bool counts_as_fast(uint64_t ns, uint64_t rows, uint64_t max_rows) {
    if (ns < (rows > 1 ? EXEC_SLOW_NS : EXEC_FAST_NS)) {
        return true;
    }
    return rows > max_rows && ns <= EXEC_STALL_NS &&
           (double)ns * (double)max_rows < EXEC_FAST_NS * (double)rows;
}

void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, uint64_t rows,
                         const struct exec_thread_use *before) {
    ns = ns > EXEC_SLOW_NS ? own_time(ns, before) : ns;
    uint32_t history = atomic_load_explicit(&exec_time_stats->history, memory_order_relaxed);
    bool is_fast = exec_time_stats_is_fast(exec_time_stats);
    adapt_max_rows(exec_time_stats, ns, rows);
    uint32_t n_until = is_fast ? 0 : load(&exec_time_stats->n_until);
    if (n_until > 0) { /* the execution is not counted */
        store(&exec_time_stats->n_until, n_until - 1);
        return;
    }
    if (is_fast && rows > 1 && ns > EXEC_SLOW_NS && ns <= EXEC_STALL_NS) {
        return; /* a smaller batch is tried first */
    }
    bool is_quick = counts_as_fast(ns, rows, exec_time_stats_max_rows(exec_time_stats));
    uint32_t fast = history_push(history & 0xffffu, is_quick);
    uint32_t slow = history_push(history >> 16, ns > EXEC_SLOW_NS);
    if (is_fast &&
        (ns > EXEC_STALL_NS || (unsigned)__builtin_popcount(slow) > EXEC_SLOW_MAX_COUNT)) {
        atomic_store_explicit(&exec_time_stats->is_fast, false, memory_order_relaxed);
        fast = 0; /* restart the measurement */
        begin_holdoff(exec_time_stats);
    } else if (is_fast) {
        shorten_holdoff(exec_time_stats);
    } else if ((unsigned)__builtin_popcount(fast) >= EXEC_FAST_MIN_COUNT) {
        atomic_store_explicit(&exec_time_stats->is_fast, true, memory_order_relaxed);
        slow = 0;
    }
    atomic_store_explicit(&exec_time_stats->history, slow << 16 | fast, memory_order_relaxed);
}
