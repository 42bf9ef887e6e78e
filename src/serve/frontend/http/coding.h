/* Content codings of HTTP bodies: the coding of a request, the choice for a response, and its
 * compression. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_CODING_H
#define SLUICE_SERVE_FRONTEND_HTTP_CODING_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "net/server/http/server.h"

/* Parses Content-Encoding: gzip, x-gzip, deflate, identity or absent. Returns: ST_UNKNOWN_ENCODING
 * for any other value, several codings included. */
enum status http_coding_of_body(const struct http_head *head, enum http_coding *out,
                                struct error *err) SLUICE_MUST_USE;
/* Chooses gzip, deflate or identity by the weights of Accept-Encoding (RFC 9110, 12.5.3): the
 * highest q wins, on ties the first listed; identity without the field or when no coding is
 * acceptable. */
enum http_coding http_coding_of_answer(const struct http_head *head);
/* "gzip", "deflate". */
const char *http_coding_name(enum http_coding coding);

/* Compresses the pieces into one block of `arena`. `coding` is gzip or deflate. Returns: false when
 * out of memory. */
bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) SLUICE_MUST_USE;

#endif
