/* Undoes gzip and deflate piece by piece, sans I/O (zlib). Strict: a checksum that is wrong, bytes
 * behind the end and an end that never comes are errors. Several gzip members in a row are one text
 * (RFC 1952, 2.2); deflate is the zlib format (RFC 9110, 8.4.1.2) or, as some clients send it, raw.
 * It refuses to decide how much may come out: the caller gives it room. */
#ifndef SLUICE_CODEC_HTTP1_INFLATE_H
#define SLUICE_CODEC_HTTP1_INFLATE_H

#include <stddef.h>

#include "codec/http1/content_coding.h"
#include "core/base/status.h"
#include "core/base/str.h"

struct inflate;

/* `coding` is HTTP_GZIP or HTTP_DEFLATE. Returns: NULL when out of memory. Owns: the caller, until
 * inflate_free. */
struct inflate *inflate_new(enum http_coding coding);
void inflate_free(struct inflate *codec);

/* Consumes from `in` and writes at most `room` bytes to `out`. It returns when `in` is empty and
 * all that it means was written, or when the room is full: then call it again (with an empty `in`
 * too), until *n_out is below `room`. Returns: ST_BAD_ENCODING, ST_NO_MEMORY. */
enum status inflate_step(struct inflate *codec, struct str *in, void *out, size_t capacity,
                         size_t *n_out, struct error *err) __attribute__((warn_unused_result));
/* The input ended. Returns: ST_BAD_ENCODING when it was cut off, or empty. */
enum status inflate_finish(struct inflate *codec, struct error *err)
    __attribute__((warn_unused_result));

#endif
