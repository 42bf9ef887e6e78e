/* The registry of Sluice's own numbers. Each thread that counts has a block of its own, so that
 * counting is a plain add; a reader sums the blocks. Rows are in metric.def.
 *
 * Thread: metric_add from any thread; the first call on a thread registers its block. */
#ifndef SLUICE_BASE_METRIC_H
#define SLUICE_BASE_METRIC_H

#include <stdint.h>

#include "base/buf.h"

#define METRIC(name, kind, exposed, help) METRIC_##name,
enum metric {
#include "base/metric.def"
    METRIC_COUNT_
};
#undef METRIC

void metric_add(enum metric metric, int64_t delta);
/* The sum over all threads, those that ended included. */
int64_t metric_read(enum metric metric);
/* Appends all rows in the Prometheus text format 0.0.4. */
void metric_print(struct buf *out);

#endif
