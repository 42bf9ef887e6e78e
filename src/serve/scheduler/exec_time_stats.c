/* The recent executions of a model as two bit histories. Bits are counted instead of averaging
 * times, so that an execution that the kernel interrupted spoils one bit and not the mean of the
 * next hundred. */
#include "serve/scheduler/exec_time_stats.h"

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

/* ---- after a stall --------------------------------------------------------------------------- */

static uint32_t load(const _Atomic uint32_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void store(_Atomic uint32_t *value, uint32_t n) {
    atomic_store_explicit(value, n, memory_order_relaxed);
}

/* The executions that are not counted after a stall are twice as many each time. */
static void begin_holdoff(struct exec_time_stats *exec_time_stats) {
    uint32_t holdoff = load(&exec_time_stats->holdoff);
    store(&exec_time_stats->n_until, holdoff);
    store(&exec_time_stats->holdoff,
          holdoff < EXEC_HOLDOFF_MAX / 2 ? 2 * holdoff : EXEC_HOLDOFF_MAX);
}

/* Returns: whether the execution is not counted. */
static bool is_held_off(struct exec_time_stats *exec_time_stats) {
    uint32_t n = load(&exec_time_stats->n_until);
    if (n > 0) {
        store(&exec_time_stats->n_until, n - 1);
    }
    return n > 0;
}

/* After many executions without a stall the next holdoff is half as long. */
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

void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, uint64_t rows) {
    uint32_t history = atomic_load_explicit(&exec_time_stats->history, memory_order_relaxed);
    bool is_fast = exec_time_stats_is_fast(exec_time_stats);
    adapt_max_rows(exec_time_stats, ns, rows);
    if (!is_fast && is_held_off(exec_time_stats)) {
        return;
    }
    if (is_fast && rows > 1 && ns > EXEC_SLOW_NS && ns <= EXEC_STALL_NS) {
        return; /* a smaller batch is tried first */
    }
    uint32_t fast = history_push(history & 0xffffu, ns < (rows > 1 ? EXEC_SLOW_NS : EXEC_FAST_NS));
    uint32_t slow = history_push(history >> 16, ns > EXEC_SLOW_NS);
    if (is_fast &&
        (ns > EXEC_STALL_NS || (unsigned)__builtin_popcount(slow) > EXEC_SLOW_MAX_COUNT)) {
        atomic_store_explicit(&exec_time_stats->is_fast, false, memory_order_relaxed);
        fast = 0; /* restart the measurement */
        store(&exec_time_stats->n_until, 0);
        if (ns > EXEC_STALL_NS) {
            begin_holdoff(exec_time_stats);
        }
    } else if (is_fast) {
        shorten_holdoff(exec_time_stats);
    } else if ((unsigned)__builtin_popcount(fast) >= EXEC_FAST_MIN_COUNT) {
        atomic_store_explicit(&exec_time_stats->is_fast, true, memory_order_relaxed);
        slow = 0;
    }
    atomic_store_explicit(&exec_time_stats->history, slow << 16 | fast, memory_order_relaxed);
}
