/* Content codings of HTTP bodies: which one a request's body has, which one an answer may have. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_CODING_H
#define SLUICE_SERVE_FRONTEND_HTTP_CODING_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "net/server/http/server.h"

/* Reads Content-Encoding: gzip, x-gzip, deflate, identity or none. Returns: ST_UNKNOWN_ENCODING for
 * anything else, several codings included. */
enum status http_coding_of_body(const struct http_head *head, enum http_coding *out,
                                struct error *err) __attribute__((warn_unused_result));
/* The best of gzip, deflate and identity by Accept-Encoding's weights (RFC 9110, 12.5.3): the
 * highest q wins, the first named on ties; without the field, or when nothing fits, identity. */
enum http_coding http_coding_of_answer(const struct http_head *head);
/* "gzip", "deflate". */
const char *http_coding_name(enum http_coding coding);

/* Compresses the pieces, one after the other, into one block of `arena`. `coding` is gzip or
 * deflate.
 * Returns: false when there is no memory for that. */
bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) __attribute__((warn_unused_result));

#endif
