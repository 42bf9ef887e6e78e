/* Base64 (RFC 4648, 4). */
#ifndef SLUICE_CORE_BASE_BASE64_H
#define SLUICE_CORE_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Prints `bytes` without padding. */
void base64_print(struct buf *out, struct str bytes);
/* Returns: whether base64_parse accepts it. */
bool base64_is_valid(struct str text);
/* Parses text with or without padding. The caller has the words for an error. Returns:
 * ST_BAD_REQUEST, and *bad is the offset of a byte that is wrong; ST_NO_MEMORY. Owns: in
 * `arena`. */
enum status base64_parse(struct arena *arena, struct str text, struct str *out,
                         size_t *bad) SLUICE_MUST_USE;

/* The same into `bytes`, which has room for text.len / 4 * 3 + 3. Returns: false for a text that
 * base64_is_valid refuses. */
bool base64_decode(struct str text, char *bytes, struct str *out);

#endif
