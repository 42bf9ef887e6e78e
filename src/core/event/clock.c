/* The monotonic clock. One atomic is the process's own, because time has no handle to pass: it is
 * what a test sets, and 0 in every other process; each thread has what it holds. It refuses to know
 * the time of day. */
#include "core/event/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "core/base/thread_local.h"

static _Atomic uint64_t driven_ns;
static THREAD_LOCAL uint64_t held_ns; /* 0: it goes on */

uint64_t clock_now_ns(void) {
    if (held_ns != 0) {
        return held_ns;
    }
    uint64_t driven = atomic_load_explicit(&driven_ns, memory_order_relaxed);
    if (driven != 0) {
        return driven;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_hold_ns(uint64_t now_ns) {
    held_ns = now_ns;
}

void clock_let_go(void) {
    held_ns = 0;
}

void clock_drive_ns(uint64_t now_ns) {
    atomic_store_explicit(&driven_ns, now_ns, memory_order_relaxed);
}
