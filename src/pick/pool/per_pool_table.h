/* What somebody keeps of each pool, while pools come and go: an array by the slots of the list
 * (set.h), in which a pool that stays keeps its item.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_PER_POOL_TABLE_H
#define SLUICE_PICK_POOL_PER_POOL_TABLE_H

#include "pick/pool/set.h"

/* First in each item, which is from calloc. */
struct per_pool {
    struct pool *pool;
    uint64_t generation; /* of the pool, as far as its follower has come; 0: it is new */
};

/* Zeroed it is empty. */
struct per_pool_table {
    struct per_pool **items; /* NULL: there is no such pool */
    size_t n_slots;
    uint64_t generation; /* of the list that these are of */
    size_t item_bytes;
    void (*free_item)(void *user, struct per_pool *item); /* its pool has gone: frees it */
    void *user;
};

/* The items become those of the list; new ones are zeroed. Returns: false when out of memory: then
 * some are missing, and the next time is another try. */
bool per_pool_table_sync(struct per_pool_table *table, const struct pool_list *list)
    __attribute__((warn_unused_result));
/* There are none any more. */
void per_pool_table_fini(struct per_pool_table *table);

#endif
