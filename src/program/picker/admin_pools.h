/* All pools at one moment, as the pages of the operators' listener show them. */
#ifndef SLUICE_PROGRAM_PICKER_ADMIN_POOLS_H
#define SLUICE_PROGRAM_PICKER_ADMIN_POOLS_H

#include "core/base/metric/text.h"
#include "pick/pool/set.h"

struct pick_admin_pool {
    const struct pool_entry *entry;
    const struct pool_snapshot *snapshot;
    struct pool_stats numbers;
};

struct pick_admin_pools {
    struct pick_admin_pool *items;
    size_t n;
    bool named; /* series have a label with the pool's name */
};

/* Valid until the reader looks again. Out of memory there are none. Owns: the array is of
 * `arena`. */
struct pick_admin_pools pick_admin_pools_load(struct pool_set_reader *pools, struct arena *arena);
/* A pool's own name, or else that of its InferencePool; len 0: it has none. */
struct str pick_admin_pool_name(const struct pick_admin_pool *pool);
/* Begins the labels of a series: with the pool, where there is more than one. */
void pick_admin_pool_begin_labels(const struct metric_text *text,
                                  const struct pick_admin_pools *list,
                                  const struct pick_admin_pool *pool, struct buf *labels);

#endif
