/* XXH3. */
#include "core/base/hash.h"

#define XXH_INLINE_ALL /* no library to load for a function */
#include <xxhash.h>

enum { PIECE_BYTES = 128 };

/* Two different hashes of a piece give different results, and so do two hashes before it. */
static uint64_t join_hashes(uint64_t before, uint64_t piece) {
    uint64_t mixed = (before ^ piece) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 32;
}

uint64_t hash_block(struct str block, uint64_t before, uint64_t seed) {
    for (; block.len > PIECE_BYTES;
         block = str_make(block.ptr + PIECE_BYTES, block.len - PIECE_BYTES)) {
        before = join_hashes(before, XXH3_64bits_withSeed(block.ptr, PIECE_BYTES, seed));
    }
    return join_hashes(before, hash_text(block, seed));
}

uint64_t hash_text(struct str text, uint64_t seed) {
    return XXH3_64bits_withSeed(text.len > 0 ? text.ptr : "", text.len, seed);
}
