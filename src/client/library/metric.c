/* libsluice's replacement of core/base/metric/metric.c: metrics are not counted. The registry of
 * metrics belongs to the process, with a lock and a key for threads that end; a library must not
 * have one. Only libsluice is linked with this file (cmake/library.cmake). */
#include "core/base/metric/metric.h"

void metric_add(enum metric metric, int64_t delta) {
    (void)metric, (void)delta;
}
