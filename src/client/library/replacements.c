/* libsluice's replacements of files of core. A library must not have state of its own, which the
 * others have for tests, for workers and for the process. Only libsluice is linked with this file
 * (cmake/library.cmake). */
#include <time.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"

/* Of core/event/clock.c: the clock of the system, which no test of it sets. */
uint64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Of core/base/metric/metric.c: metrics are not counted. The registry of metrics belongs to the
 * process, with a lock and a key for threads that end. */
void metric_add(enum metric metric, int64_t delta) {
    (void)metric, (void)delta;
}
