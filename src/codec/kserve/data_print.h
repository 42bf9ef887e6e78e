/* Tensor data as the text of a JSON array: flat, in the order of memory. */
#ifndef SLUICE_CODEC_KSERVE_DATA_PRINT_H
#define SLUICE_CODEC_KSERVE_DATA_PRINT_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* Appends "[…]". Integers in full; floats so that parsing gives the same bits, non-finite ones as
 * NaN, Infinity, -Infinity; BOOL as true and false; BYTES as strings. The tensor's bytes may lie in
 * several pieces, at any alignment; its size must fit its shape. Returns: ST_BAD_DATA, naming the
 * element, for a BYTES element that is not UTF-8 or whose framing is broken; ST_NO_MEMORY. */
enum status v2_data_print(struct buf *out, const struct tensor *tensor, struct error *err)
    __attribute__((warn_unused_result));

#endif
