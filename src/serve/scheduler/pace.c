/* The history of a model's execution times as two rows of bits. A count of bits instead of an
 * average: an execution that was interrupted by the scheduler of the machine spoils one bit, not
 * the mean of the next hundred. */
#include "serve/scheduler/pace.h"

void pace_init(struct pace *pace) {
    atomic_init(&pace->history, 0);
    atomic_init(&pace->cheap, false);
    atomic_init(&pace->together, SIZE_MAX);
}

static uint32_t shift_in(uint32_t row, bool bit) {
    return (row << 1 | (bit ? 1u : 0u)) & 0xffffu;
}

/* Half as many when it took too long, twice as many when there is time left and none were left
 * out. */
static void adapt_together(struct pace *pace, uint64_t ns, size_t n) {
    size_t most = pace_together(pace);
    if (ns > PACE_SLOW_NS && n <= most) {
        most = n / 2;
    } else if (ns < PACE_FAST_NS && n == most) {
        most *= 2;
    } else {
        return;
    }
    atomic_store_explicit(&pace->together, most > 0 ? most : 1, memory_order_relaxed);
}

void pace_add(struct pace *pace, uint64_t ns, size_t n) {
    uint32_t history = atomic_load_explicit(&pace->history, memory_order_relaxed);
    bool cheap = pace_is_cheap(pace);
    adapt_together(pace, ns, n);
    if (cheap && n > 1 && ns > PACE_SLOW_NS && ns <= PACE_STALL_NS) {
        return; /* there will be fewer of them */
    }
    uint32_t fast = shift_in(history & 0xffffu, ns < (n > 1 ? PACE_SLOW_NS : PACE_FAST_NS));
    uint32_t slow = shift_in(history >> 16, ns > PACE_SLOW_NS);
    if (cheap && (ns > PACE_STALL_NS || (unsigned)__builtin_popcount(slow) > PACE_SLOW_ALLOWED)) {
        atomic_store_explicit(&pace->cheap, false, memory_order_relaxed);
        fast = 0; /* it has to prove itself anew */
    } else if (!cheap && (unsigned)__builtin_popcount(fast) >= PACE_FAST_NEEDED) {
        atomic_store_explicit(&pace->cheap, true, memory_order_relaxed);
        slow = 0;
    }
    atomic_store_explicit(&pace->history, slow << 16 | fast, memory_order_relaxed);
}
