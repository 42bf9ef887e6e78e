/* A set of block hashes in the order of their last use, with a number for each: the KV cache of a
 * simulated engine, and the tables of upstream's picker.
 *
 * Thread: one at a time. */
#ifndef SLUICE_BENCH_SIMULATE_BLOCKS_H
#define SLUICE_BENCH_SIMULATE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct sim_block {
    uint64_t hash;
    uint64_t value;
    struct sim_block *next_in_bucket;
    TAILQ_ENTRY(sim_block) link;
};

TAILQ_HEAD(sim_block_list, sim_block);

struct sim_blocks {
    struct sim_block **buckets;
    uint64_t mask; /* number of buckets, a power of two, less 1 */
    uint64_t n;
    struct sim_block_list by_use; /* the least recently used one first */
};

/* Each that allocates ends the program when out of memory. */
void sim_blocks_init(struct sim_blocks *blocks);
void sim_blocks_fini(struct sim_blocks *blocks);

/* Returns: NULL: it is not in the set. */
struct sim_block *sim_blocks_find(const struct sim_blocks *blocks, uint64_t hash);
/* Finds it, or adds it with the value 0; it becomes the most recently used one. */
struct sim_block *sim_blocks_use(struct sim_blocks *blocks, uint64_t hash);
void sim_blocks_remove(struct sim_blocks *blocks, struct sim_block *block);
/* Returns: NULL: the set is empty. */
static inline struct sim_block *sim_blocks_oldest(const struct sim_blocks *blocks) {
    return TAILQ_FIRST(&blocks->by_use);
}

#endif
