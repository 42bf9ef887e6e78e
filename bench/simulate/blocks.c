/* A hash table with chains, which grows with its content; the hashes are mixed already. */
#include "blocks.h"

#include <stdlib.h>

#include "events.h"

enum { FIRST_BUCKETS = 1 << 10 };

void sim_blocks_init(struct sim_blocks *blocks) {
    *blocks = (struct sim_blocks){.mask = FIRST_BUCKETS - 1};
    TAILQ_INIT(&blocks->by_use);
    blocks->buckets = calloc(FIRST_BUCKETS, sizeof(struct sim_block *));
    if (!blocks->buckets) {
        sim_no_memory();
    }
}

void sim_blocks_fini(struct sim_blocks *blocks) {
    struct sim_block *block;
    while ((block = sim_blocks_oldest(blocks))) {
        TAILQ_REMOVE(&blocks->by_use, block, link);
        free(block);
    }
    free(blocks->buckets);
}

static struct sim_block **slot_of(const struct sim_blocks *blocks, uint64_t hash) {
    struct sim_block **slot = &blocks->buckets[hash & blocks->mask];
    while (*slot && (*slot)->hash != hash) {
        slot = &(*slot)->next_in_bucket;
    }
    return slot;
}

static void grow(struct sim_blocks *blocks) {
    uint64_t n = (blocks->mask + 1) * 2;
    struct sim_block **buckets = calloc(n, sizeof(struct sim_block *)), *block;
    if (!buckets) {
        sim_no_memory();
    }
    free(blocks->buckets);
    blocks->buckets = buckets;
    blocks->mask = n - 1;
    TAILQ_FOREACH(block, &blocks->by_use, link) {
        block->next_in_bucket = buckets[block->hash & blocks->mask];
        buckets[block->hash & blocks->mask] = block;
    }
}

struct sim_block *sim_blocks_find(const struct sim_blocks *blocks, uint64_t hash) {
    return *slot_of(blocks, hash);
}

struct sim_block *sim_blocks_use(struct sim_blocks *blocks, uint64_t hash) {
    struct sim_block *block = sim_blocks_find(blocks, hash);
    if (block) {
        TAILQ_REMOVE(&blocks->by_use, block, link);
        TAILQ_INSERT_TAIL(&blocks->by_use, block, link);
        return block;
    }
    if (blocks->n > blocks->mask) {
        grow(blocks);
    }
    block = calloc(1, sizeof(*block));
    if (!block) {
        sim_no_memory();
    }
    block->hash = hash;
    *slot_of(blocks, hash) = block;
    TAILQ_INSERT_TAIL(&blocks->by_use, block, link);
    blocks->n++;
    return block;
}

void sim_blocks_remove(struct sim_blocks *blocks, struct sim_block *block) {
    *slot_of(blocks, block->hash) = block->next_in_bucket;
    TAILQ_REMOVE(&blocks->by_use, block, link);
    blocks->n--;
    free(block);
}
