/* The recent executions of a model as two bit histories. Bits are counted instead of averaging
 * times, so that an execution that the kernel interrupted spoils one bit and not the mean of the
 * next hundred. */
#include "serve/scheduler/exec_time_stats.h"

void exec_time_stats_init(struct exec_time_stats *exec_time_stats) {
    atomic_init(&exec_time_stats->history, 0);
    atomic_init(&exec_time_stats->is_fast, false);
    atomic_init(&exec_time_stats->max_batch, SIZE_MAX);
}

static uint32_t history_push(uint32_t row, bool bit) {
    return (row << 1 | (bit ? 1u : 0u)) & 0xffffu;
}

/* Halves the batch limit when an execution took too long; doubles it when the time allows and the
 * limit was reached. */
static void adapt_max_batch(struct exec_time_stats *exec_time_stats, uint64_t ns, size_t n) {
    size_t most = exec_time_stats_max_batch(exec_time_stats);
    if (ns > EXEC_SLOW_NS && n <= most) {
        most = n / 2;
    } else if (ns < EXEC_FAST_NS && n == most) {
        most *= 2;
    } else {
        return;
    }
    atomic_store_explicit(&exec_time_stats->max_batch, most > 0 ? most : 1, memory_order_relaxed);
}

void exec_time_stats_add(struct exec_time_stats *exec_time_stats, uint64_t ns, size_t n) {
    uint32_t history = atomic_load_explicit(&exec_time_stats->history, memory_order_relaxed);
    bool is_fast = exec_time_stats_is_fast(exec_time_stats);
    adapt_max_batch(exec_time_stats, ns, n);
    if (is_fast && n > 1 && ns > EXEC_SLOW_NS && ns <= EXEC_STALL_NS) {
        return; /* a smaller batch is tried first */
    }
    uint32_t fast = history_push(history & 0xffffu, ns < (n > 1 ? EXEC_SLOW_NS : EXEC_FAST_NS));
    uint32_t slow = history_push(history >> 16, ns > EXEC_SLOW_NS);
    if (is_fast &&
        (ns > EXEC_STALL_NS || (unsigned)__builtin_popcount(slow) > EXEC_SLOW_MAX_COUNT)) {
        atomic_store_explicit(&exec_time_stats->is_fast, false, memory_order_relaxed);
        fast = 0; /* restart the measurement */
    } else if (!is_fast && (unsigned)__builtin_popcount(fast) >= EXEC_FAST_MIN_COUNT) {
        atomic_store_explicit(&exec_time_stats->is_fast, true, memory_order_relaxed);
        slow = 0;
    }
    atomic_store_explicit(&exec_time_stats->history, slow << 16 | fast, memory_order_relaxed);
}
