/* The hash of a call's contents (call_cache.c): SipHash-2-4 with 128 bits, from OpenSSL. Clients
 * choose the input, and a collision would show one user another's answer, so a keyed hash is needed
 * that resists collisions (keyed_hash of core/base/hash.h is faster, but weaker). Input is added in
 * pieces; it costs half a nanosecond per byte. */
#ifndef SLUICE_SERVE_SCHEDULER_CACHE_CALL_HASH_H
#define SLUICE_SERVE_SCHEDULER_CACHE_CALL_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/compiler.h"
#include "core/base/hash.h"

enum { CALL_HASH_KEY_BYTES = 16 };

struct evp_mac_ctx_st;

/* A hash in progress. How the bytes are divided into pieces makes no difference. */
struct call_hash {
    struct evp_mac_ctx_st *mac; /* NULL: out of memory */
    bool failed;
};

/* An empty hash with its key, which others are copied from. Returns: false when OpenSSL lacks
 * SipHash. Owns: its context until call_hash_fini. */
bool call_hash_init(struct call_hash *keyed,
                    const unsigned char key[CALL_HASH_KEY_BYTES]) SLUICE_MUST_USE;
/* A zeroed, uninitialized one is allowed. */
void call_hash_fini(struct call_hash *keyed);

/* Owns: its context until call_hash_final. Thread: any; threads may share `keyed`. */
void call_hash_begin(struct call_hash *hash, const struct call_hash *keyed);
/* `data` may be NULL when n_bytes is 0. */
void call_hash_add(struct call_hash *hash, const void *data, size_t n_bytes);
void call_hash_add_u64(struct call_hash *hash, uint64_t value);
/* Returns: false when the hash could not be computed. */
bool call_hash_final(struct call_hash *hash, struct keyed_hash *out) SLUICE_MUST_USE;

#endif
