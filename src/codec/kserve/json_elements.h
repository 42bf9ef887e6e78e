/* Tensor data from a JSON array: flat, or nested in any way, read depth first. Only the number
 * of elements is checked against the shape, as servers of this protocol do. */
#ifndef SLUICE_CODEC_KSERVE_JSON_ELEMENTS_H
#define SLUICE_CODEC_KSERVE_JSON_ELEMENTS_H

#include "codec/json/tree.h"
#include "core/tensor/tensor.h"

/* Reads `array` as the elements of `tensor`, whose datatype and shape (every dimension >= 0, a
 * product of `n_elements`) are set; fills its pieces. Returns: BAD_DATA with the path for
 * another number of elements; BAD_FIELD for an element of another datatype or out of its range.
 * Owns: in the tree's arena, aligned to 16 bytes. */
enum status v2_data_read(const struct json_tree *tree, yyjson_val *array, uint64_t n_elements,
                         struct tensor *tensor, struct error *err) SLUICE_MUST_USE;

/* The same for any value; a value that is not an array is one element. The caller has counted
 * `n_elements` elements in `value`, so memory is bounded by the size of the text. */
enum status v2_data_read_counted(const struct json_tree *tree, yyjson_val *value,
                                 uint64_t n_elements, struct tensor *tensor,
                                 struct error *err) SLUICE_MUST_USE;

/* Checks `shape`, read from `val`: the product of its dimensions must be below 2^63 and within
 * limits->max_tensor_elements. Returns: ST_BAD_SHAPE, ST_TOO_MANY_ELEMENTS. */
enum status v2_shape_count(const struct json_tree *tree, yyjson_val *val, struct shape shape,
                           const struct json_limits *limits, uint64_t *n_elements,
                           struct error *err) SLUICE_MUST_USE;

/* Reads `text`, a JSON array (flat or nested in any way) without a request around it, as the
 * data of `tensor`, whose name, datatype and shape (every dimension >= 0) are set; fills its
 * pieces. The rules are those of `inputs[].data` in a request. Returns: as v2_request_decode;
 * paths start with "data". Owns: the bytes are in `arena`. */
enum status v2_data_text_parse(struct arena *arena, struct str text,
                               const struct json_limits *limits, struct tensor *tensor,
                               struct error *err) SLUICE_MUST_USE;

#endif
