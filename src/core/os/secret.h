/* Secrets in memory: comparing and overwriting them. Digests are compared, so that the time of a
 * comparison depends on neither the bytes nor the length of a secret.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_OS_SECRET_H
#define SLUICE_CORE_OS_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/str.h"

/* SHA-256. */
struct secret_digest {
    unsigned char bytes[32];
};

/* Returns: the digest of `text`. */
struct secret_digest secret_digest_of(struct str text);
/* Takes the same time wherever they differ. */
bool secret_digest_equal(const struct secret_digest *a, const struct secret_digest *b);
/* Overwrites memory that is about to be freed; the compiler does not remove it. */
void secret_wipe(void *data, size_t n_bytes);

#endif
