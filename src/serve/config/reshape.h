/* Reshaping of a tensor between the client's shape (`dims`) and the model's (`reshape`): the bytes
 * stay, the shape changes. Both have the same number of -1, and the fixed dimensions between two of
 * them have equal products, so the i-th -1 of one is the i-th of the other. */
#ifndef SLUICE_SERVE_CONFIG_RESHAPE_H
#define SLUICE_SERVE_CONFIG_RESHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/tensor/shape.h"

/* Returns: whether the shapes have the same number of -1 and equal products between them. */
bool reshape_is_valid(struct shape from, struct shape to);
/* Writes to `out` (to.rank numbers) the shape that corresponds to `actual`. Returns: false when
 * `actual` does not match `from`. */
bool reshape_apply(struct shape from, struct shape to, struct shape actual, int64_t *out);

#endif
