/* Ceilings by rank: the highest priority has rank 0, the lowest n - 1. */
#include "pick/pool/flow/usage_limit.h"

#include <math.h>

/* The lowest priority's position is 0, the highest one's 1. */
static double position_of(enum usage_limit_kind kind, const struct usage_ceiling *ceilings,
                          size_t n, size_t rank) {
    double lowest = (double)ceilings[n - 1].priority, highest = (double)ceilings[0].priority;
    if (kind == USAGE_HOLDBACK_RANK) {
        return 1 - (double)rank / (double)(n - 1);
    }
    return ((double)ceilings[rank].priority - lowest) / (highest - lowest);
}

/* The soft limit of rank i is 1 - i * used / (n - 1) of the capacity: it is reached where that is
 * `used`. */
static double share_of(const struct usage_limit *limit, const struct usage_ceiling *ceilings,
                       size_t n, size_t rank) {
    if (limit->kind == USAGE_WHOLE || (limit->kind == USAGE_SOFT_REFLECTIVE && n == 1)) {
        return 1;
    }
    if (limit->kind == USAGE_STATIC || n == 1) {
        return limit->max_ceiling;
    }
    if (limit->kind == USAGE_SOFT_REFLECTIVE) {
        return 1 / (1 + (double)rank / (double)(n - 1));
    }
    double spread = limit->max_ceiling - limit->min_ceiling;
    return limit->min_ceiling + position_of(limit->kind, ceilings, n, rank) * spread;
}

void usage_ceilings_fill(const struct usage_limit *limit, struct usage_ceiling *ceilings,
                         size_t n) {
    for (size_t i = 0; i < n; i++) {
        ceilings[i].share = share_of(limit, ceilings, n, i);
    }
}

double usage_ceilings_find(const struct usage_ceiling *ceilings, size_t n, int64_t priority) {
    size_t i = 0;
    while (i + 1 < n && ceilings[i].priority > priority) {
        i++;
    }
    return n > 0 ? ceilings[i].share : 1;
}

bool usage_is_over(enum usage_limit_kind kind, double ceiling, double used, uint64_t cycle) {
    if (used < ceiling) {
        return false;
    }
    if (kind != USAGE_SOFT_REFLECTIVE || used >= 1) {
        return true;
    }
    uint64_t period = (uint64_t)fmax(1, round(used / (1 - used + 1e-9)));
    return cycle % period != 0;
}
