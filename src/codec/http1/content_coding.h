/* The content codings of HTTP bodies (RFC 9110, 8.4.1): gzip and deflate, compressed and
 * decompressed piece by piece with zlib, sans I/O. The decompressor is strict: a wrong checksum,
 * bytes after the end of the text and a text that is cut off are errors. Several gzip members in a
 * row are one text (RFC 1952, 2.2); deflate is the zlib format (RFC 9110, 8.4.1.2) or, as some
 * clients send it, raw. The caller limits how much is decompressed by the capacity that it
 * gives. */
#ifndef SLUICE_CODEC_HTTP1_CONTENT_CODING_H
#define SLUICE_CODEC_HTTP1_CONTENT_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum http_coding { HTTP_IDENTITY, HTTP_GZIP, HTTP_DEFLATE };

/* ---- decompression --------------------------------------------------------------------------- */

struct inflate;

/* `coding` is HTTP_GZIP or HTTP_DEFLATE. Returns: NULL when out of memory. Owns: the caller, until
 * inflate_free. */
struct inflate *inflate_new(enum http_coding coding);
void inflate_free(struct inflate *codec);

/* Consumes bytes of `in` and writes at most `capacity` bytes to `out`. Returns when `in` is empty
 * and all output for it was written, or when `out` is full: call it again then (also with an empty
 * `in`), until *n_out is below `capacity`. Returns: ST_BAD_ENCODING, ST_NO_MEMORY. */
enum status inflate_step(struct inflate *codec, struct str *in, void *out, size_t capacity,
                         size_t *n_out, struct error *err) SLUICE_MUST_USE;
/* At the end of the input. Returns: ST_BAD_ENCODING when the text was cut off, or empty. */
enum status inflate_finish(struct inflate *codec, struct error *err) SLUICE_MUST_USE;

/* How much to decompress before others get their turn: INFLATE_SLICE_BYTES of output take some 0.2
 * ms. The output of some input is not known before, so each call of the decompressor gets as many
 * bytes as give the rest of the slice at the highest ratio that is expected: deflate's own at
 * first, then that of the calls before, which counts half in each. */
enum { INFLATE_SLICE_BYTES = 64 * 1024 };

struct inflate_slice {
    uint64_t left; /* bytes of output; at 0 the slice is used */
    size_t ratio;
};

struct inflate_slice inflate_slice_start(uint64_t n_bytes);
/* Returns: how many bytes the next call of the decompressor may get: 1 to 512. */
size_t inflate_slice_input(const struct inflate_slice *slice);
void inflate_slice_count(struct inflate_slice *slice, size_t n_in, uint64_t n_out);

/* ---- compression ----------------------------------------------------------------------------- */

struct deflate;

/* `coding` is HTTP_GZIP or HTTP_DEFLATE; `level` 1 (fast) to 9 (small). Returns: NULL when out of
 * memory. Owns: the caller, until deflate_free. */
struct deflate *deflate_new(enum http_coding coding, int level);
void deflate_free(struct deflate *codec);

/* Returns: the most output bytes for `n_bytes` of input, fed at once or in pieces; SIZE_MAX on
 * overflow. */
size_t deflate_bound(struct deflate *codec, size_t n_bytes);

/* Consumes bytes of `in` and writes at most `capacity` bytes to `out`; with `last` also the end of
 * the compressed text. Returns when `in` is empty or `out` is full. Returns: true when all of `in`
 * was consumed and, with `last`, the text is complete; false: call it again with more capacity. */
bool deflate_step(struct deflate *codec, struct str *in, bool last, void *out, size_t capacity,
                  size_t *n_out);
/* As deflate_step of all of `in`; looks at arena_is_cancelled at times. Returns: false also when it
 * was. `arena` may be NULL. */
bool deflate_piece(struct deflate *codec, const struct arena *arena, struct str in, bool last,
                   void *out, size_t capacity, size_t *n_out);

#endif
