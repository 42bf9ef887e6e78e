/* libsluice's replacement of core/event/clock.c: the clock of the system, which no test of it sets.
 * A library must not have state of its own, which the other has for tests and for workers. Only
 * libsluice is linked with this file (cmake/library.cmake). */
#include "core/event/clock.h"

#include <time.h>

uint64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
