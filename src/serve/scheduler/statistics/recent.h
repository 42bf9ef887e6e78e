/* What a model version was busy with lately, for autoscalers: how much of their time its instances
 * executed, and how long requests wait. Counters since loading do not tell this without a second
 * reading.
 *
 * There is no timer: each reading is compared with one that is RECENT_NS to 2 * RECENT_NS older
 * where the readers come at least that often, and else with the last one, or with the loading. Any
 * number of readers see the same. */
#ifndef SLUICE_SERVE_SCHEDULER_STATISTICS_RECENT_H
#define SLUICE_SERVE_SCHEDULER_STATISTICS_RECENT_H

#include <stdint.h>

#include "core/event/lock.h"

struct model_statistics;
struct model_version;

static const uint64_t RECENT_NS = UINT64_C(10000000000);

/* The counters at one time. */
struct recent_sample {
    uint64_t at_ns;
    uint64_t busy_ns;             /* of all instances, the current executions included */
    uint64_t n_waited, waited_ns; /* successful requests, and how long they waited */
};

struct statistics_recent {
    struct lock lock;
    struct recent_sample before, last; /* `last` is at least RECENT_NS after `before`, or the
                                          same */
};

struct model_recent {
    double utilization; /* 0 to 1; without instances 0 */
    /* The mean wait of the successful requests, or for how long the first request in line waits,
     * whichever is longer: where nothing moves only the latter tells it. */
    uint64_t queue_ns;
};

void statistics_recent_init(struct statistics_recent *recent);
/* Readings begin now: the version has been loaded. */
void statistics_recent_begin(struct statistics_recent *recent);
void statistics_recent_fini(struct statistics_recent *recent);

/* `now`: of the version, read just before. Thread: any, while `version` is referenced. */
void model_version_recent(struct model_version *version, const struct model_statistics *now,
                          struct model_recent *out);

#endif
