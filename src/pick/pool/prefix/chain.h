/* The hashes of a text's blocks, computed as the text arrives, so that a long one is neither stored
 * nor hashed at once. Each hash includes the blocks before it: equal hashes mean equal beginnings.
 * They begin with a seed, so that clients cannot create collisions.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_POOL_PREFIX_CHAIN_H
#define SLUICE_PICK_POOL_PREFIX_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"

enum { PREFIX_MAX_BLOCK_BYTES = 4096 };

/* Which part of a prompt is hashed. */
struct prefix_blocks {
    uint32_t block_bytes; /* 1 to PREFIX_MAX_BLOCK_BYTES */
    uint32_t most;        /* number of blocks; the text after them is ignored */
};

struct prefix_chain {
    struct arena *arena;
    struct prefix_blocks blocks;
    uint64_t seed;
    uint64_t last;    /* the last hash; without any, the seed */
    uint64_t *hashes; /* in the arena */
    uint32_t n, cap;
    char *rest; /* the beginning of a block, in the arena; NULL: none yet */
    uint32_t n_rest;
    bool ended; /* no text is added any more: it has ended, or there was no memory for more */
};

/* The hashes are in `arena`. */
void prefix_chain_init(struct prefix_chain *chain, struct arena *arena, struct prefix_blocks blocks,
                       uint64_t seed);
/* Adds the hashes of the blocks that end in `text`. */
void prefix_chain_add(struct prefix_chain *chain, struct str text);
/* The text has ended: what is left is a block, too. */
void prefix_chain_end(struct prefix_chain *chain);

#endif
