/* A ranking: items sorted by a small key that changes by one: endpoints by their requests in
 * flight. Finding the lowest, with ties at random, and changing a key take constant time, however
 * many items there are.
 *
 * All items are in one array, sorted by key. A level is the range of items with the same key, in
 * any order. An item whose key increases is exchanged with the last of its level and becomes the
 * first of the next, or a level of its own.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_PROFILE_RANKING_H
#define SLUICE_PICK_POOL_PROFILE_RANKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/compiler.h"
#include "core/base/random.h"

/* Embedded in the item. */
struct ranked {
    uint32_t pos; /* in the array */
    uint32_t level;
};

struct ranking_level {
    uint32_t key;
    uint32_t begin; /* its range; of an unused level `begin` is the next unused one */
    uint32_t end;
};

/* Zeroed memory is an empty ranking. */
struct ranking {
    struct ranked **order;
    struct ranking_level *levels;
    uint32_t n, cap;
    uint32_t unused; /* the first unused level */
};

void ranking_fini(struct ranking *ranking);
/* Reserves capacity for `n` items. Returns: false when out of memory; nothing has changed. */
bool ranking_reserve(struct ranking *ranking, size_t n) SLUICE_MUST_USE;

/* There is capacity for it, and it is not in the ranking. Takes time by the number of levels above
 * `key`. */
void ranking_insert(struct ranking *ranking, struct ranked *item, uint32_t key);
/* It is in the ranking. Takes time by the number of levels above its own. */
void ranking_remove(struct ranking *ranking, struct ranked *item);
/* Changes the key by one; not below 0 or above UINT32_MAX. */
void ranking_increment(struct ranking *ranking, struct ranked *item);
void ranking_decrement(struct ranking *ranking, struct ranked *item);
static inline uint32_t ranking_key(const struct ranking *ranking, const struct ranked *item) {
    return ranking->levels[item->level].key;
}

/* The `most` lowest items, or all, lowest first, at `out`; among equal ones at random. Returns:
 * their number. */
size_t ranking_find_lowest(struct ranking *ranking, struct prng *prng, size_t most,
                           struct ranked **out);

#endif
