/* XXH3 with a secret of its own. */
#include "base/keyed_hash.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

static_assert(HASH_KEY_BYTES >= XXH3_SECRET_SIZE_MIN, "XXH3 wants as much");

/* Fewer than 256 bytes come at once, or not at all. */
void hash_key_init(struct hash_key *key) {
    if (getrandom(key->bytes, sizeof(key->bytes), 0) != (ssize_t)sizeof(key->bytes)) {
        abort();
    }
}

struct keyed_hash keyed_hash_of(const struct hash_key *key, struct str text) {
    XXH128_hash_t hash = XXH3_128bits_withSecret(text.len > 0 ? text.ptr : "", text.len, key->bytes,
                                                 sizeof(key->bytes));
    return (struct keyed_hash){hash.low64, hash.high64};
}
