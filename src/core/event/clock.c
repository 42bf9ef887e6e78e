/* The monotonic clock. One atomic is the process's own, because time has no handle to pass: it is
 * what a test sets, and 0 in every other process; each thread has what it holds. It refuses to know
 * the time of day. */
#include "core/event/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "core/base/compiler.h"

static _Atomic uint64_t fake_ns;
static THREAD_LOCAL uint64_t frozen_ns; /* 0: it goes on */

uint64_t clock_now_ns(void) {
    if (frozen_ns != 0) {
        return frozen_ns;
    }
    uint64_t fake = atomic_load_explicit(&fake_ns, memory_order_relaxed);
    if (fake != 0) {
        return fake;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_freeze_ns(uint64_t now_ns) {
    frozen_ns = now_ns;
}

void clock_unfreeze(void) {
    frozen_ns = 0;
}

void clock_set_fake_ns(uint64_t now_ns) {
    atomic_store_explicit(&fake_ns, now_ns, memory_order_relaxed);
}
