/* XXH3 with a secret, from the library libxxhash. Apart from hash.c: libsluice uses hash_text only,
 * and does not load that library. */
#include "core/base/hash.h"

#include <assert.h>
#include <xxhash.h>

#include "core/base/random.h"

static_assert(HASH_KEY_BYTES >= XXH3_SECRET_SIZE_MIN, "XXH3 wants as much");

void hash_key_init(struct hash_key *key) {
    random_fill(key->bytes, sizeof(key->bytes));
}

struct keyed_hash keyed_hash_of(const struct hash_key *key, struct str text) {
    XXH128_hash_t hash = XXH3_128bits_withSecret(text.len > 0 ? text.ptr : "", text.len, key->bytes,
                                                 sizeof(key->bytes));
    return (struct keyed_hash){hash.low64, hash.high64};
}
