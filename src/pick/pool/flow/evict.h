/* Eviction: while a pool that is measured as a whole (saturation.h) holds up requests, sheddable
 * ones that are running are ended for waiting requests of a higher priority, as upstream's picker
 * does it.
 *
 * A request has a lease from the moment that its pick is sent until its response or its stream has
 * ended. Leases of a priority below 0 can be revoked: the lowest priority first, and of one
 * priority the one that was sent last, which has the least done. A revoked request is told through
 * its wakeup, and ends: then the revocation is confirmed, which releases what it has in flight.
 *
 * How many: the pool's saturation, less the share that the waiting priority may use, in units of
 * what a lease is in the mean; at least one, two at most. When: no further decision is made until
 * all revocations are confirmed, or have timed out, and a grace has passed, in which the saturation
 * shows their effect. So no request is ended for capacity that another has made already.
 *
 * Internal to pick/pool; under the pool's lock, except where it says otherwise. */
#ifndef SLUICE_PICK_POOL_FLOW_EVICT_H
#define SLUICE_PICK_POOL_FLOW_EVICT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/metric/histogram.h"
#include "core/event/timer_heap.h"

struct pool;
struct pool_notifications;

/* Embedded in a request's waiter. Zeroed memory is none. */
struct pool_lease {
    struct timer_node order; /* in the heap of those that can be revoked */
    int64_t priority;
    bool is_held;    /* from pool_hold_lease to pool_end_lease; only the request's thread reads it
                        without the lock */
    bool is_revoked; /* the request is to end */
    bool is_awaited; /* revoked, and neither confirmed nor timed out: in the list `awaited` */
    uint64_t revoked_ns;
    LIST_ENTRY(pool_lease) link;
};

enum { EVICTION_TIME_BOUNDS = 11 };
/* From a revocation to its confirmation. */
extern const struct metric_scale EVICTION_TIMES;

/* Zeroed memory is empty. */
struct pool_eviction {
    struct timer_heap revocable; /* the first one is the next to be revoked */
    uint64_t n_leases;           /* all that are held */
    LIST_HEAD(, pool_lease) awaited;
    uint64_t open_ns;   /* no decision is made before */
    double target;      /* of the last decision: what is to become free, as saturation */
    double pending;     /* of it what has been revoked and may not show yet */
    uint64_t n_revoked; /* total */
    uint64_t n_confirmed, n_timed_out;
    metric_cell times[EVICTION_TIME_BOUNDS + 2];
};

/* Frees it; no lease is held. */
void pool_eviction_fini(struct pool_eviction *eviction);
/* Revokes leases where requests of a higher priority wait for a saturated pool, unless it is too
 * early for that. */
void pool_evict(struct pool *pool, struct pool_notifications *notifications);

#endif
