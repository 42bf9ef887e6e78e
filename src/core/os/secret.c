/* Digests, comparison and overwriting of secrets, by OpenSSL's functions, which the compiler cannot
 * optimise away. */
#include "core/os/secret.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

struct secret_digest secret_digest_of(struct str text) {
    struct secret_digest digest;
    _Static_assert(sizeof(digest.bytes) == SHA256_DIGEST_LENGTH, "a digest of SHA-256");
    SHA256((const unsigned char *)text.ptr, text.len, digest.bytes);
    return digest;
}

bool secret_digest_equal(const struct secret_digest *a, const struct secret_digest *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

void secret_wipe(void *data, size_t n_bytes) {
    OPENSSL_cleanse(data, n_bytes);
}
