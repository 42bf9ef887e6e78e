/* SipHash-2-4, the variant with 128 bits, after the paper by Aumasson and Bernstein and the
 * reference's note on longer outputs. */
#include "base/siphash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { WORD_BYTES = 8, WORD_ROUNDS = 2, END_ROUNDS = 4 };

/* Fewer than 256 bytes come at once, or not at all. */
void siphash_key_init(struct siphash_key *key) {
    if (getrandom(key, sizeof(*key), 0) != (ssize_t)sizeof(*key)) {
        abort();
    }
}

void siphash_begin(struct siphash *hash, const struct siphash_key *key) {
    *hash = (struct siphash){
        .v = {key->low ^ UINT64_C(0x736f6d6570736575),
              key->high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee, /* 0xee: 128 bits are wanted */
              key->low ^ UINT64_C(0x6c7967656e657261), key->high ^ UINT64_C(0x7465646279746573)},
    };
}

static inline uint64_t rotate(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

static inline void rounds(uint64_t v[4], int n) {
    for (int i = 0; i < n; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static inline void add_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    rounds(v, WORD_ROUNDS);
    v[0] ^= word;
}

/* Little-endian, as this machine is. */
static inline uint64_t word_at(const unsigned char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Whole words, with the state in registers. Returns: behind them. */
static const unsigned char *add_words(struct siphash *hash, const unsigned char *at, size_t n) {
    uint64_t v[4] = {hash->v[0], hash->v[1], hash->v[2], hash->v[3]};
    for (; n > 0; n--, at += WORD_BYTES) {
        add_word(v, word_at(at));
    }
    memcpy(hash->v, v, sizeof(v));
    return at;
}

void siphash_add(struct siphash *hash, const void *data, size_t n_bytes) {
    if (n_bytes == 0) {
        return;
    }
    const unsigned char *at = data;
    size_t kept = hash->n_bytes % WORD_BYTES;
    hash->n_bytes += n_bytes;
    if (kept > 0) {
        size_t n = n_bytes < WORD_BYTES - kept ? n_bytes : WORD_BYTES - kept;
        memcpy(hash->rest + kept, at, n);
        if (kept + n < WORD_BYTES) {
            return;
        }
        add_word(hash->v, word_at(hash->rest));
        at += n;
        n_bytes -= n;
    }
    at = add_words(hash, at, n_bytes / WORD_BYTES);
    memcpy(hash->rest, at, n_bytes % WORD_BYTES);
}

void siphash_add_u64(struct siphash *hash, uint64_t value) {
    siphash_add(hash, &value, sizeof(value));
}

static uint64_t fold(const uint64_t v[4]) {
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct siphash_value siphash_end(struct siphash *hash) {
    size_t kept = hash->n_bytes % WORD_BYTES;
    memset(hash->rest + kept, 0, WORD_BYTES - kept);
    add_word(hash->v, word_at(hash->rest) | hash->n_bytes << 56);
    struct siphash_value value;
    hash->v[2] ^= 0xee;
    rounds(hash->v, END_ROUNDS);
    value.low = fold(hash->v);
    hash->v[1] ^= 0xdd;
    rounds(hash->v, END_ROUNDS);
    value.high = fold(hash->v);
    return value;
}
