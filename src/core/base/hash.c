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

/* Of a whole piece: all of the library's function is in it, of which little is left for this
 * length. */
__attribute__((flatten)) static uint64_t hash_piece(const char *piece, uint64_t seed) {
    return XXH3_64bits_withSeed(piece, PIECE_BYTES, seed);
}

uint64_t hash_block(struct str block, uint64_t before, uint64_t seed) {
    const char *at = block.ptr;
    size_t n = block.len;
    for (; n >= PIECE_BYTES; at += PIECE_BYTES, n -= PIECE_BYTES) {
        before = join_hashes(before, hash_piece(at, seed));
    }
    return n == 0 ? before : join_hashes(before, hash_text(str_make(at, n), seed));
}

uint64_t hash_text(struct str text, uint64_t seed) {
    return XXH3_64bits_withSeed(text.len > 0 ? text.ptr : "", text.len, seed);
}
