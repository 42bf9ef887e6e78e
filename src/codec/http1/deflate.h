/* Makes gzip and deflate (the zlib format) piece by piece, sans I/O (zlib). */
#ifndef SLUICE_CODEC_HTTP1_DEFLATE_H
#define SLUICE_CODEC_HTTP1_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/http1/content_coding.h"
#include "core/base/str.h"

struct deflate;

/* `coding` is HTTP_GZIP or HTTP_DEFLATE; `level` 1 (fast) to 9 (small). Returns: NULL when out of
 * memory. Owns: the caller, until deflate_free. */
struct deflate *deflate_new(enum http_coding coding, int level);
void deflate_free(struct deflate *codec);

/* The most bytes that come out of `n_bytes` fed in one go or in pieces; SIZE_MAX when that is more
 * than a size can say. */
size_t deflate_bound(struct deflate *codec, size_t n_bytes);

/* Consumes from `in` and writes at most `room` bytes to `out`; with `last` also what ends the text.
 * It returns when `in` is empty or the room is full. Returns: true when all of `in` was consumed
 * and, with `last`, the text is complete; false: call it again with more room. */
bool deflate_step(struct deflate *codec, struct str *in, bool last, void *out, size_t capacity,
                  size_t *n_out);

#endif
