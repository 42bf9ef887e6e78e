/* What libsluice has in place of core/base/metric/metric.c: nothing. The registry of metrics is the
 * process's own, with a lock and a key for threads that end, and a library is a guest in its
 * process. Only libsluice is linked with this (cmake/library.cmake). */
#include "core/base/metric/metric.h"

void metric_add(enum metric metric, int64_t delta) {
    (void)metric, (void)delta;
}
