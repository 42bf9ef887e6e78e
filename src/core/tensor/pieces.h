/* Bytes that lie in several pieces, put one behind the other. */
#ifndef SLUICE_CORE_TENSOR_PIECES_H
#define SLUICE_CORE_TENSOR_PIECES_H

#include "core/tensor/tensor.h"

/* `out` has `room` bytes, which they don't exceed. Returns: how many there were. What is a
 * request's payload the caller counts (METRIC_COPIED_BYTES_TOTAL). */
size_t pieces_copy(const struct piece *pieces, size_t n, void *out, size_t capacity);

#endif
