/* Does the nesting of a JSON value fit the dimensions that a model says? */
#ifndef SLUICE_CODEC_MIP_ITEM_SHAPE_H
#define SLUICE_CODEC_MIP_ITEM_SHAPE_H

#include "codec/json/tree.h"
#include "core/tensor/shape.h"

/* Holds `dims` (-1: any size) one element, or can it: [], [1], [-1], [1,-1], …? */
bool mip_item_shape_is_single(struct shape dims);

/* Finds the shape of the tree's root under `dims` (-1: any size), whose places it fills in `out`,
 * dims.rank of them. The arrays' sizes fit the dimensions one by one from the last; in front both
 * sides may have more that are 1 (a -1 there becomes 1). Behind an empty array, whose further
 * nesting can't be seen, dimensions of -1 become 0. Else one flat array fits, where at most one
 * dimension is -1, with as many elements as there are to be. Arrays of one depth are all of one
 * size. Returns: ST_BAD_SHAPE with the path of what does not fit. */
enum status mip_item_shape_fit(const struct json_tree *tree, struct shape dims, int64_t *out,
                               struct error *err) __attribute__((warn_unused_result));

#endif
