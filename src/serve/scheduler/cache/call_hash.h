/* The hash that a call is known by (call_cache.c): SipHash-2-4 with 128 bits, OpenSSL's. It stands
 * up to those who choose what is hashed: without the key nobody finds two inputs that meet, so that
 * it can stand for what was hashed even where a mix-up would show one user another's answer
 * (core/base/keyed_hash.h is faster, and promises less). It takes its input piece by piece, and
 * half a nanosecond a byte. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_CALL_HASH_H
#define SLUICE_SERVE_SCHEDULER_CACHE_CALL_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/keyed_hash.h"

enum { CALL_HASH_KEY_BYTES = 16 };

struct evp_mac_ctx_st;

/* Under way. What it is of is all bytes that were added, wherever one piece ended. */
struct call_hash {
    struct evp_mac_ctx_st *mac; /* NULL: memory was out */
    bool failed;
};

/* One of nothing yet, with its key, from which others begin. Returns: false when OpenSSL has none.
 * Owns: what is in it until call_hash_fini. */
bool call_hash_init(struct call_hash *keyed, const unsigned char key[CALL_HASH_KEY_BYTES])
    __attribute__((warn_unused_result));
/* One that was never initialized, all zero, is allowed. */
void call_hash_fini(struct call_hash *keyed);

/* Owns: what is in it until call_hash_final. Thread: any; `keyed` may be any number of threads'. */
void call_hash_begin(struct call_hash *hash, const struct call_hash *keyed);
/* `data` may be NULL when n_bytes is 0. */
void call_hash_add(struct call_hash *hash, const void *data, size_t n_bytes);
void call_hash_add_u64(struct call_hash *hash, uint64_t value);
/* Returns: false: it could not be computed. */
bool call_hash_final(struct call_hash *hash, struct keyed_hash *out)
    __attribute__((warn_unused_result));

#endif
