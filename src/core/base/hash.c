/* XXH3. */
#include "core/base/hash.h"

#define XXH_INLINE_ALL /* no library to load for a function */
#include <xxhash.h>

enum { PIECE_BYTES = 128 };

uint64_t hash_block(struct str text, uint64_t seed) {
    for (; text.len > PIECE_BYTES;
         text = str_make(text.ptr + PIECE_BYTES, text.len - PIECE_BYTES)) {
        seed = XXH3_64bits_withSeed(text.ptr, PIECE_BYTES, seed);
    }
    return hash_text(text, seed);
}

uint64_t hash_text(struct str text, uint64_t seed) {
    return XXH3_64bits_withSeed(text.len > 0 ? text.ptr : "", text.len, seed);
}
