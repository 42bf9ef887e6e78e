/* Reshaping between what clients see (`dims`) and what the model sees (`reshape`) of one tensor:
 * the bytes stay, the shape changes. Both have as many -1, and the dimensions between two of them
 * have the same product, so that the i-th -1 of one is the i-th of the other. */
#ifndef SLUICE_SERVE_CONFIG_RESHAPE_H
#define SLUICE_SERVE_CONFIG_RESHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/tensor/shape.h"

/* Do the two keep the element count, stretch by stretch? */
bool reshape_is_valid(struct shape from, struct shape to);
/* Writes to `out` (to.rank numbers) the shape that `actual` has on the other side. Returns: false
 * when `actual` does not fit `from`. */
bool reshape_apply(struct shape from, struct shape to, struct shape actual, int64_t *out);

#endif
