/* A caller's data for each pool of a set: an array by the slots of the list (set.h), in which a
 * pool that stays keeps its item when the list is updated.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_PER_POOL_TABLE_H
#define SLUICE_PICK_POOL_PER_POOL_TABLE_H

#include "pick/pool/set.h"

/* First member of each item; items are allocated with calloc. */
struct per_pool {
    struct pool *pool;
    uint64_t generation; /* of the pool's snapshot that the caller has processed; 0: none */
};

/* Zeroed memory is empty. */
struct per_pool_table {
    struct per_pool **items; /* by slot; NULL: no such pool */
    size_t n_slots;
    uint64_t generation; /* of the list */
    size_t item_bytes;
    void (*free_item)(void *user, struct per_pool *item); /* frees the item of a pool that was
                                                             removed */
    void *user;
};

/* Updates the items to those of the list; new ones are zeroed. Returns: false when out of memory;
 * some items are then missing until the next call. */
bool per_pool_table_sync(struct per_pool_table *table,
                         const struct pool_list *list) SLUICE_MUST_USE;
/* Frees all items. */
void per_pool_table_fini(struct per_pool_table *table);

#endif
