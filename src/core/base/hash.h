/* Hashes of bytes, for tables; not for secrets. hash_text takes a seed. The keyed hash is for texts
 * that peers choose: without the secret key it is infeasible to find two texts with one hash, or
 * many that fall into one slot of a table. Its 128 bits can stand for the text: of a million texts
 * no two meet. */
#ifndef SLUICE_CORE_BASE_HASH_H
#define SLUICE_CORE_BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

uint64_t hash_text(struct str text, uint64_t seed);

enum { HASH_KEY_BYTES = 192 };

struct hash_key {
    unsigned char bytes[HASH_KEY_BYTES];
};

struct keyed_hash {
    uint64_t low, high; /* all bits of both are mixed */
};

/* Fills it with what nobody can guess. */
void hash_key_init(struct hash_key *key);
/* Thread: any. */
struct keyed_hash keyed_hash_of(const struct hash_key *key, struct str text);

static inline bool keyed_hash_eq(struct keyed_hash a, struct keyed_hash b) {
    return a.low == b.low && a.high == b.high;
}

#endif
