/* Items of MIP as tensor elements and back: what one input of one element of the batch says in JSON
 * or text becomes elements of a tensor; one output of one element of the batch becomes an item.
 * Pictures are not its matter (picture/).
 *
 * `dims` below is the shape of one element of the batch, without the batch dimension; a dimension
 * of -1 is any size. */
#ifndef SLUICE_CODEC_MIP_ITEM_H
#define SLUICE_CODEC_MIP_ITEM_H

#include "codec/kserve/request.h"
#include "codec/mip/packet.h"
#include "core/base/buf.h"
#include "core/tensor/tensor.h"

/* Reading fills datatype, shape (dims.rank dimensions, all of them known) and bytes of `out`, and
 * leaves its name alone. `what` is how messages call the item: "input \"x\" of batch element 2";
 * paths start with it. */

/* JSON (MIP item type 2) into elements of `datatype`: a number, string or boolean for one element,
 * a (nested) array otherwise. Its nesting is `dims`, checked dimension by dimension. Also taken are
 * missing or extra dimensions of size 1 at the front (a missing -1 is 1), and, where at most one
 * dimension is -1, one flat array with the right number of elements. Behind an empty array
 * dimensions of -1 are 0. For BYTES a string is an element; where dims can hold one element ([],
 * [1], [-1], …) and there is one, an object is too, as its own JSON text, word for word. Numbers as
 * in the v2 JSON: out of range, fractions for integers, NaN for integers are refused, nothing is
 * narrowed silently.
 * Returns: ST_BAD_JSON, ST_BAD_FIELD with the path, ST_BAD_SHAPE (nesting and counts) with the
 * path, ST_BODY_TOO_LARGE (limits->max_json_size), ST_TOO_DEEP, ST_TOO_MANY_ELEMENTS,
 * ST_NO_MEMORY.
 * Owns: in `arena`, aligned to 16 bytes; out->shape's dimensions too. */
enum status mip_item_read_json(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) __attribute__((warn_unused_result));

/* TEXT (MIP item type 1): UTF-8, one BYTES element with its length before it, for `dims` that hold
 * or can hold one element ([], [1], [-1], [1,1], …): that it is. For another datatype or more
 * elements the text is read as JSON, as the protocol's own readers do. Returns: ST_BAD_FIELD for
 * what is not UTF-8, and what mip_item_read_json returns. */
enum status mip_item_read_text(struct arena *arena, struct str text, const char *what,
                               enum datatype datatype, struct shape dims,
                               const struct json_limits *limits, struct tensor *out,
                               struct error *err) __attribute__((warn_unused_result));

/* One element's output, of the shape of `tensor` (which has no batch dimension), appended to `out`
 * as JSON, nested as the shape is; a shape without dimensions is a bare value. NaN and infinities
 * as the bare words Python's readers take. Returns: ST_BAD_OUTPUT for BYTES that are not UTF-8, for
 * bytes that don't fit the shape, and for a shape of very many empty rows; ST_NO_MEMORY. */
enum status mip_item_print_json(struct buf *out, const struct tensor *tensor, struct error *err)
    __attribute__((warn_unused_result));

/* The item one output becomes: TEXT where it is one BYTES element (a view of the tensor's bytes,
 * which must be UTF-8: else ST_BAD_OUTPUT), JSON in `arena` otherwise. */
enum status mip_item_of_tensor(struct arena *arena, const struct tensor *tensor,
                               struct mip_item *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
