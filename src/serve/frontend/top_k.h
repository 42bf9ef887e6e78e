/* The best of many numbers: the greatest first, of equal ones that with the lower index; NaN comes
 * behind all others. Numbers of 64 bits are compared as what they are, not as doubles. */
#ifndef SLUICE_SERVE_FRONTEND_TOP_K_H
#define SLUICE_SERVE_FRONTEND_TOP_K_H

#include <stddef.h>
#include <stdint.h>

#include "core/tensor/datatype.h"

struct top_k_item {
    uint64_t rank; /* the greater, the better */
    size_t index;
};

/* Element `i` at `data`, which needs no alignment; of any datatype but BOOL and BYTES (NaN). */
double top_k_value(enum datatype datatype, const char *data, size_t i);

/* Of the `n` elements at `data` finds the best `max`, which is at most `n`, or all of them, and
 * puts them into `out` in their order. The time is that of n log max. */
void top_k_find(enum datatype datatype, const char *data, size_t n, size_t max,
                struct top_k_item *out);

#endif
