/* SipHash-2-4 with 128 bits, a keyed hash that stands up to those who choose what is hashed:
 * without the key nobody finds two inputs that meet, so that the hash can stand for what was hashed
 * even where a mix-up would show one user another's answer. It takes its input piece by piece, and
 * half a nanosecond a byte: where speed counts more and nothing is given away, keyed_hash.h is
 * faster. */
#ifndef SLUICE_BASE_SIPHASH_H
#define SLUICE_BASE_SIPHASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t low, high;
};

struct siphash_value {
    uint64_t low, high; /* the first 8 bytes of the 16, little-endian, and the last */
};

/* Under way. What it is of is all bytes that were added, wherever one piece ended. */
struct siphash {
    uint64_t v[4];
    unsigned char rest[8]; /* of a word that is not full yet */
    uint64_t n_bytes;
};

/* Fills it with what nobody can guess. */
void siphash_key_init(struct siphash_key *key);

void siphash_begin(struct siphash *hash, const struct siphash_key *key);
/* `data` may be NULL when n_bytes is 0. */
void siphash_add(struct siphash *hash, const void *data, size_t n_bytes);
void siphash_add_u64(struct siphash *hash, uint64_t value);
struct siphash_value siphash_end(struct siphash *hash);

static inline bool siphash_equal(struct siphash_value a, struct siphash_value b) {
    return a.low == b.low && a.high == b.high;
}

#endif
