/* Shapes: at most SHAPE_MAX_RANK dimensions, every product overflow-checked. In the shape of a
 * request or a response each dimension is >= 0 (0: an empty tensor); in a model's specification -1
 * is any size. */
#ifndef SLUICE_CORE_TENSOR_SHAPE_H
#define SLUICE_CORE_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/tensor/datatype.h"

enum { SHAPE_MAX_RANK = 64 };

struct shape {
    const int64_t *dims; /* borrowed: from the request's arena or the model */
    size_t rank;
};

/* The number of elements; 1 for rank 0. Returns: false when a dimension is negative or the product
 * does not fit 63 bits (a 0 anywhere makes it 0, whatever the others are). */
bool shape_elements(struct shape shape, uint64_t *out);
/* Elements times element size. Returns: false on overflow or for BYTES, which has no fixed size. */
bool shape_bytes(struct shape shape, enum datatype datatype, uint64_t *out);
/* Does `shape` match `spec`, where -1 matches any size? */
bool shape_matches(struct shape shape, struct shape spec);
bool shape_eq(struct shape a, struct shape b);

/* Enough for a shape's text; longer ones end in "…]". */
enum { SHAPE_TEXT_BYTES = 256 };
/* Prints "[1,-1,16]" into `out`, NUL-terminated. Returns: `out`. */
const char *shape_print(struct shape shape, char out[SHAPE_TEXT_BYTES]);

#endif
