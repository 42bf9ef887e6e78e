/* The elements of a BYTES tensor: each is a 4-byte little-endian length and that many bytes
 * (binary-tensor-data, "Binary Tensor Request"). In memory a BYTES tensor has this same form
 * everywhere in Sluice. */
#ifndef SLUICE_CORE_TENSOR_BYTES_H
#define SLUICE_CORE_TENSOR_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"

enum { BYTES_LENGTH_BYTES = 4 /* in front of each element */ };

/* Iterates over the elements. Starts with `rest` = the tensor's bytes. Returns: true with *element
 * (a view) and `rest` advanced; false at the end or, with `rest` not empty, at a broken frame. */
bool bytes_next(struct str *rest, struct str *element);
/* Checks the framing of every element and that there are exactly `expected` of them. `tensor` is
 * the name in messages. Returns: ST_BAD_DATA with the index of the broken element and the
 * reason. */
enum status bytes_check(struct str data, uint64_t expected, struct str tensor, struct error *err);
/* Writes the 4-byte length at `out`. */
void bytes_encode_length(void *out, uint32_t length);

#endif
