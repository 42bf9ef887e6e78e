/* The k greatest of n numbers: the greatest first, equal ones in order of their index, NaN last.
 * 64-bit integers are compared exactly, not as doubles. */
#ifndef SLUICE_SERVE_FRONTEND_TOP_K_H
#define SLUICE_SERVE_FRONTEND_TOP_K_H

#include <stddef.h>
#include <stdint.h>

#include "core/tensor/datatype.h"

struct top_k_item {
    uint64_t rank; /* greater is better */
    size_t index;
};

/* Element `i` at `data`, which needs no alignment. Returns: NaN for BOOL and BYTES. */
double top_k_value(enum datatype datatype, const char *data, size_t i);

/* Finds the greatest `max` of the `n` elements at `data`; `max` is at most `n`. `out` has them in
 * their order. Takes O(n log max). */
void top_k_find(enum datatype datatype, const char *data, size_t n, size_t max,
                struct top_k_item *out);

#endif
