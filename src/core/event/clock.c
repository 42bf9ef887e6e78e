/* The monotonic clock. fake_ns is a global of the process, because the clock has no handle to pass:
 * a test sets it, and it is 0 otherwise. Each thread has its own frozen time. */
#include "core/event/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "core/base/compiler.h"

static _Atomic uint64_t fake_ns;
static THREAD_LOCAL uint64_t frozen_ns; /* 0: the clock runs */

uint64_t clock_read_ns(void) {
    uint64_t fake = atomic_load_explicit(&fake_ns, memory_order_relaxed);
    if (fake != 0) {
        return fake;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void) {
    return frozen_ns != 0 ? frozen_ns : clock_read_ns();
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
