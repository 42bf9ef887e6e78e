/* Hashes of bytes, for tables; not for secrets. hash_text takes a seed; fnv1a_of never changes. The
 * keyed hash is for texts that peers choose: without its secret key it is infeasible to find texts
 * with equal hashes, or many that fall into one slot of a table. It has 128 bits, so that it can
 * stand for the text: among a million texts no two hashes are equal. */
#ifndef SLUICE_CORE_BASE_HASH_H
#define SLUICE_CORE_BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Thread: any. */
uint64_t hash_text(struct str text, uint64_t seed);
/* The hash of a block of a text of which the hash of the blocks before it is `before`. It is the
 * last step only that takes `before`, so that the blocks of a text can be hashed at the same time
 * by the parts of a processor; and as XXH3 has a short way for up to 128 bytes, longer blocks are
 * hashed in pieces. Thread: any. */
uint64_t hash_block(struct str block, uint64_t before, uint64_t seed);

/* FNV-1a, for a number that must be the same in every version and on every machine. */
#define FNV1A_BASIS UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv1a_add(uint64_t hash, uint64_t byte) {
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}
static inline uint64_t fnv1a_of(struct str text) {
    uint64_t hash = FNV1A_BASIS;
    for (size_t i = 0; i < text.len; i++) {
        hash = fnv1a_add(hash, (unsigned char)text.ptr[i]);
    }
    return hash;
}

enum { HASH_KEY_BYTES = 192 };

struct hash_key {
    unsigned char bytes[HASH_KEY_BYTES];
};

struct keyed_hash {
    uint64_t low, high; /* every bit of both depends on the whole text */
};

/* Fills the key with unpredictable bytes. */
void hash_key_init(struct hash_key *key);
/* Thread: any. */
struct keyed_hash keyed_hash_of(const struct hash_key *key, struct str text);

static inline bool keyed_hash_eq(struct keyed_hash a, struct keyed_hash b) {
    return a.low == b.low && a.high == b.high;
}

#endif
