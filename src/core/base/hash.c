/* XXH3. */
#include "core/base/hash.h"

#define XXH_INLINE_ALL /* no library to load for a function */
#include <xxhash.h>

uint64_t hash_text(struct str text, uint64_t seed) {
    return XXH3_64bits_withSeed(text.len > 0 ? text.ptr : "", text.len, seed);
}
