/* A prompt as the hashes of its blocks, each with those before it in it: equal hashes mean equal
 * beginnings, of the same model. The first has the model's name and the table's seed in it, so that
 * nobody outside can make prompts whose hashes meet.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PREFIX_CHAIN_H
#define SLUICE_PICK_POOL_PREFIX_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum { PREFIX_MAX_BLOCK_BYTES = 4096 };

/* What is hashed of prompts. */
struct prefix_blocks {
    uint32_t block_bytes; /* 1 to PREFIX_MAX_BLOCK_BYTES */
    uint32_t most;        /* blocks; what is behind them does not count */
};

/* The hashes of the whole blocks of `head` and, behind it, `text`; both are as much of the prompt
 * as there is. `out` has room for blocks.most. Returns: how many. */
uint32_t prefix_chain_hash(struct prefix_blocks blocks, uint64_t seed, struct str model,
                           struct str head, struct str text, uint64_t *out);

#endif
