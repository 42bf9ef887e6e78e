/* SipHash by OpenSSL's MAC. Each hash starts as a copy of a keyed context, so a call needs neither
 * a lookup by name nor a lock. */
#include "serve/scheduler/cache/call_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <string.h>

static bool give_key(EVP_MAC_CTX *mac, const unsigned char *key) {
    size_t size = sizeof(struct keyed_hash);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                           OSSL_PARAM_construct_end()};
    return EVP_MAC_init(mac, key, CALL_HASH_KEY_BYTES, params) == 1;
}

bool call_hash_init(struct call_hash *keyed, const unsigned char key[CALL_HASH_KEY_BYTES]) {
    EVP_MAC *siphash = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    keyed->mac = siphash ? EVP_MAC_CTX_new(siphash) : NULL;
    EVP_MAC_free(siphash);
    keyed->failed = !keyed->mac || !give_key(keyed->mac, key);
    return !keyed->failed;
}

void call_hash_fini(struct call_hash *keyed) {
    EVP_MAC_CTX_free(keyed->mac);
    keyed->mac = NULL;
}

void call_hash_begin(struct call_hash *hash, const struct call_hash *keyed) {
    hash->mac = EVP_MAC_CTX_dup(keyed->mac);
    hash->failed = !hash->mac;
}

void call_hash_add(struct call_hash *hash, const void *data, size_t n_bytes) {
    if (!hash->failed && EVP_MAC_update(hash->mac, data, n_bytes) != 1) {
        hash->failed = true;
    }
}

void call_hash_add_u64(struct call_hash *hash, uint64_t value) {
    call_hash_add(hash, &value, sizeof(value));
}

bool call_hash_final(struct call_hash *hash, struct keyed_hash *out) {
    unsigned char bytes[sizeof(*out)];
    size_t n_bytes = 0;
    bool ended = !hash->failed && EVP_MAC_final(hash->mac, bytes, &n_bytes, sizeof(bytes)) == 1 &&
                 n_bytes == sizeof(bytes);
    call_hash_fini(hash);
    if (ended) {
        memcpy(out, bytes, sizeof(bytes));
    }
    return ended;
}
