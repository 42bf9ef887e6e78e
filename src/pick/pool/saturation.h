/* When an endpoint is full: a limit of its pool is reached, by what was picked or by what the
 * endpoint reports. Requests wait then (pool/flow) instead of being picked. */
#ifndef SLUICE_PICK_POOL_SATURATION_H
#define SLUICE_PICK_POOL_SATURATION_H

#include "pick/pool/spec.h"

/* Whether load reports can make an endpoint full. */
static inline bool pool_limits_loads(const struct pool_spec *spec) {
    return spec->queue_depth > 0 || spec->kv_cache > 0;
}
/* The test for a full endpoint. Values that are not known are 0. Returns: the limit that is
 * reached, for messages; NULL: none. */
static inline const char *pool_limit_reached(const struct pool_spec *spec, double in_flight,
                                             double n_waiting, double kv_cache_used) {
    if (spec->max_in_flight > 0 && in_flight >= (double)spec->max_in_flight) {
        return "max_in_flight";
    }
    if (spec->queue_depth > 0 && n_waiting >= (double)spec->queue_depth) {
        return "queue_depth";
    }
    return spec->kv_cache > 0 && kv_cache_used >= spec->kv_cache ? "kv_cache" : NULL;
}

#endif
