/* Usage limits: from which share of its capacity on an endpoint is full for requests of a priority,
 * so that the rest stays free for higher ones. The share is the priority's ceiling; what is used is
 * the share of the limit that is nearest to being reached (`saturation`).
 *
 * Pure functions. */
#ifndef SLUICE_PICK_POOL_FLOW_USAGE_LIMIT_H
#define SLUICE_PICK_POOL_FLOW_USAGE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum usage_limit_kind {
    USAGE_WHOLE,           /* the whole capacity is for all priorities */
    USAGE_STATIC,          /* max_ceiling for all priorities */
    USAGE_HOLDBACK_RANK,   /* from max_ceiling for the highest priority to min_ceiling for the
                              lowest, in equal steps */
    USAGE_HOLDBACK_VALUE,  /* the same, in proportion to the priorities' values */
    USAGE_SOFT_REFLECTIVE, /* see usage_is_over */
};

struct usage_limit {
    enum usage_limit_kind kind;
    double min_ceiling, max_ceiling;
};

/* Of one priority. */
struct usage_ceiling {
    int64_t priority;
    double share;
};

/* Sets the shares of all priorities, of which the highest is first and each is there once. */
void usage_ceilings_fill(const struct usage_limit *limit, struct usage_ceiling *ceilings, size_t n);
/* The share of a priority: of one that is not in the list, that of the next lower one. */
double usage_ceilings_find(const struct usage_ceiling *ceilings, size_t n, int64_t priority);

/* Whether an endpoint of which this share is used is full for a request of a priority with this
 * ceiling. With USAGE_SOFT_REFLECTIVE such requests are admitted above their ceiling, below 1, in
 * one of used / (1 - used) cycles; `cycle` is the number of the dispatch cycle. */
bool usage_is_over(enum usage_limit_kind kind, double ceiling, double used, uint64_t cycle);

#endif
