/* The history of a model's execution times as two rows of bits. A count of bits instead of an
 * average: an execution that was interrupted by the scheduler of the machine spoils one bit, not
 * the mean of the next hundred. */
#include "model/pace.h"

void pace_init(struct pace *pace) {
    atomic_init(&pace->history, 0);
    atomic_init(&pace->cheap, false);
}

static uint32_t shift_in(uint32_t row, bool bit) {
    return (row << 1 | (bit ? 1u : 0u)) & 0xffffu;
}

void pace_add(struct pace *pace, uint64_t ns) {
    uint32_t history = atomic_load_explicit(&pace->history, memory_order_relaxed);
    uint32_t fast = shift_in(history & 0xffffu, ns < PACE_FAST_NS);
    uint32_t slow = shift_in(history >> 16, ns > PACE_SLOW_NS);
    bool cheap = pace_is_cheap(pace);
    if (cheap && (ns > PACE_STALL_NS || (unsigned)__builtin_popcount(slow) > PACE_SLOW_ALLOWED)) {
        atomic_store_explicit(&pace->cheap, false, memory_order_relaxed);
        fast = 0; /* it has to prove itself anew */
    } else if (!cheap && (unsigned)__builtin_popcount(fast) >= PACE_FAST_NEEDED) {
        atomic_store_explicit(&pace->cheap, true, memory_order_relaxed);
        slow = 0;
    }
    atomic_store_explicit(&pace->history, slow << 16 | fast, memory_order_relaxed);
}
