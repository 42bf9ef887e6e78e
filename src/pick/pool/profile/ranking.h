/* Things in the order of a small number that goes up and down by one: endpoints by their requests
 * in flight. The lowest, with ties at random, is found at once, and a step up or down takes as long
 * with ten thousand as with three.
 *
 * All stand in one array, sorted by their keys. Those with the same key are a level: a stretch of
 * the array, within which the order means nothing. One whose key goes up by one changes places with
 * the last of its level and is then the first of the next, or a level of its own.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_PROFILE_RANKING_H
#define SLUICE_PICK_POOL_PROFILE_RANKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/random.h"

/* Embedded in what is ranked. */
struct ranked {
    uint32_t pos; /* in the array */
    uint32_t level;
};

struct ranking_level {
    uint32_t key;
    uint32_t begin; /* its stretch; of a level that is not in use, the next such */
    uint32_t end;
};

/* Zeroed memory is an empty ranking. */
struct ranking {
    struct ranked **order;
    struct ranking_level *levels;
    uint32_t n, cap;
    uint32_t unused; /* the first level that is not in use */
};

void ranking_fini(struct ranking *ranking);
/* Makes room for `n` in all. Returns: false when out of memory, and nothing has changed. */
bool ranking_reserve(struct ranking *ranking, size_t n) __attribute__((warn_unused_result));

/* There is room for it, and it is not in. Takes as many steps as there are levels above `key`. */
void ranking_insert(struct ranking *ranking, struct ranked *item, uint32_t key);
/* It is in. Takes as many steps as there are levels above its own. */
void ranking_remove(struct ranking *ranking, struct ranked *item);
/* By one; a key of 0 is not lowered, one of UINT32_MAX not raised. */
void ranking_increment(struct ranking *ranking, struct ranked *item);
void ranking_decrement(struct ranking *ranking, struct ranked *item);
static inline uint32_t ranking_key(const struct ranking *ranking, const struct ranked *item) {
    return ranking->levels[item->level].key;
}

/* The `most` lowest, or all there are, lowest first, at `out`; which of equal ones, and in which
 * order, the dice say. Returns: how many. */
size_t ranking_find_lowest(struct ranking *ranking, struct prng *prng, size_t most,
                           struct ranked **out);

#endif
