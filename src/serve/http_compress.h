/* An answer's body, compressed whole. */
#ifndef SLUICE_SERVE_HTTP_COMPRESS_H
#define SLUICE_SERVE_HTTP_COMPRESS_H

#include <stdbool.h>

#include "base/arena.h"
#include "net/http_server.h"
#include "tensor/tensor.h"

/* Compresses the pieces, one after the other, into one block of `arena`. `coding` is gzip or
 * deflate.
 * Returns: false when there is no memory for that. */
bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) __attribute__((warn_unused_result));

#endif
