/* The registry of Sluice's metrics. Each thread that counts has its own block, so that counting is
 * a plain add; a reader sums the blocks. The rows are in metric.def, which also contains the names
 * of families whose numbers are kept elsewhere.
 *
 * Thread: metric_add and metric_add_error from any thread; the first call on a thread registers its
 * block. */
#ifndef SLUICE_CORE_BASE_METRIC_METRIC_H
#define SLUICE_CORE_BASE_METRIC_METRIC_H

#include <stdint.h>

#include "core/base/metric/text.h"
#include "core/base/status.h"

#define METRIC(name, kind, exposed, help) METRIC_##name,
#define FAMILY(name, kind, exposed, help)
enum metric {
#include "core/base/metric/metric.def"
    METRIC_COUNT_
};
#undef METRIC
#undef FAMILY

#define METRIC(name, kind, exposed, help)
#define FAMILY(name, kind, exposed, help) METRIC_FAMILY_##name,
enum metric_family {
#include "core/base/metric/metric.def"
    METRIC_FAMILIES
};
#undef METRIC
#undef FAMILY

/* The protocol of a response with an error. */
enum metric_protocol { METRIC_HTTP, METRIC_GRPC, METRIC_MIP, METRIC_PICK, METRIC_PROTOCOLS };

/* Adds `delta` to a metric; counters only take positive ones. */
void metric_add(enum metric metric, int64_t delta);
/* Counts an error response to a peer, by its status, whatever code the protocol has for it. */
void metric_add_error(enum metric_protocol protocol, enum status status);
/* Returns: the sum over all threads, those that ended included. Threads are read one after the
 * other: a gauge that they change meanwhile can be read too high, too low, and below 0. */
int64_t metric_read(enum metric metric);

/* Calls `visit` for each pair of protocol and status that was counted. */
void metric_visit_errors(void (*visit)(void *user, const char *protocol, enum status status,
                                       int64_t n),
                         void *user);

/* Appends the registry's metrics, except those whose names begin with `excluded_prefix` (NULL:
 * all). */
void metric_print(struct metric_text *text, const char *excluded_prefix);
/* Begins a family of FAMILY rows. */
void metric_family_begin(struct metric_text *text, enum metric_family family);

#endif
