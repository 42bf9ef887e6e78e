/* A part of what is sent, received or hashed, where it lies. Read only; the owner is said where it
 * is used. */
#ifndef SLUICE_CORE_BASE_PIECE_H
#define SLUICE_CORE_BASE_PIECE_H

#include <stddef.h>

struct piece {
    const void *data;
    size_t n_bytes;
};

/* Copies the bytes of `n` pieces one after the other to `out`, which has `capacity` bytes and is
 * large enough. Returns: bytes copied. Where they are a request's payload, the caller counts them
 * (METRIC_COPIED_BYTES_TOTAL). */
size_t pieces_copy(const struct piece *pieces, size_t n, void *out, size_t capacity);

#endif
