/* Conversion of MIP items: JSON or text of one input and one batch element to elements of a
 * tensor, and one output of one batch element to an item. Images are decoded by serve/picture.
 *
 * `dims` below is the shape of one batch element, without the batch dimension; -1: any size. */
#ifndef SLUICE_CODEC_MIP_ITEM_H
#define SLUICE_CODEC_MIP_ITEM_H

#include "codec/kserve/request.h"
#include "codec/mip/packet.h"
#include "core/base/buf.h"
#include "core/tensor/tensor.h"

/* Reading fills datatype, shape (dims.rank dimensions, all known) and bytes of `out`; its name
 * is not changed. `what` names the item in error texts: "input \"x\" of batch element 2"; paths
 * start with it. */

/* JSON (MIP item type 2) to elements of `datatype`: a number, string or boolean for one element,
 * a (nested) array otherwise, whose nesting must match `dims`, dimension by dimension. Also
 * accepted are missing or extra dimensions of size 1 at the front (a missing -1 is 1), and,
 * where at most one dimension is -1, one flat array with the right number of elements. After an
 * empty array dimensions of -1 are 0. For BYTES a string is an element; where dims can hold one
 * element ([], [1], [-1], …), one object is too, as its own JSON text, unchanged. Numbers as in
 * the v2 JSON: out of range, fractions and NaN for integers are errors. Returns: ST_BAD_JSON,
 * ST_BAD_FIELD with the path, ST_BAD_SHAPE (nesting and counts) with the path, ST_BODY_TOO_LARGE
 * (limits->max_json_size), ST_TOO_DEEP, ST_TOO_MANY_ELEMENTS, ST_NO_MEMORY. Owns: in `arena`,
 * aligned to 16 bytes; out->shape's dimensions too. */
enum status mip_item_read_json(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) SLUICE_MUST_USE;

/* TEXT (MIP item type 1), UTF-8: for BYTES and `dims` that can hold one element ([], [1], [-1],
 * [1,1], …) the text is that element, framed by its length. For other datatypes or more elements
 * the text is read as JSON, as the protocol's reference implementation does. Returns:
 * ST_BAD_FIELD for text that is not UTF-8, and as mip_item_read_json. */
enum status mip_item_read_text(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) SLUICE_MUST_USE;

/* Appends `tensor`, the output of one batch element (without batch dimension), as JSON, nested
 * as its shape; a shape without dimensions is a bare value. Returns: ST_BAD_OUTPUT for BYTES that
 * are not UTF-8, for bytes that don't fit the shape, and for a shape of more than 65536 empty
 * rows; ST_NO_MEMORY. */
enum status mip_item_print_json(struct buf *out, const struct tensor *tensor,
                                enum v2_non_finite non_finite, struct error *err) SLUICE_MUST_USE;

/* Makes the item of an output: TEXT for one BYTES element (a view of the tensor's bytes, which
 * must be UTF-8: else ST_BAD_OUTPUT), JSON in `arena` otherwise. */
enum status mip_item_of_tensor(struct arena *arena, const struct tensor *tensor,
                               enum v2_non_finite non_finite, struct mip_item *out,
                               struct error *err) SLUICE_MUST_USE;

#endif
