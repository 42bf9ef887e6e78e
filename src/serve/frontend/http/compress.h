/* An answer's body, compressed whole. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_COMPRESS_H
#define SLUICE_SERVE_FRONTEND_HTTP_COMPRESS_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/tensor/tensor.h"
#include "net/server/http/server.h"

/* Compresses the pieces, one after the other, into one block of `arena`. `coding` is gzip or
 * deflate.
 * Returns: false when there is no memory for that. */
bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) __attribute__((warn_unused_result));

#endif
