/* The datatypes a tensor can have, by the names of the Open Inference Protocol. Rows are in
 * datatype.def. */
#ifndef SLUICE_CORE_TENSOR_DATATYPE_H
#define SLUICE_CORE_TENSOR_DATATYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/str.h"

#define DATATYPE(name, id, bytes, config) DT_##name = (id),
enum datatype {
    DT_INVALID = 0,
#include "core/tensor/datatype.def"
    DT_COUNT_
};
#undef DATATYPE

/* Case-sensitive, as the protocol writes it ("FP32"). Returns: DT_INVALID for anything else. */
enum datatype datatype_parse(struct str name);
/* "TYPE_FP32"; TYPE_STRING is BYTES. */
enum datatype datatype_parse_config(struct str name);
const char *datatype_name(enum datatype datatype);        /* "FP32" */
const char *datatype_config_name(enum datatype datatype); /* "TYPE_FP32" */
/* Bytes of an element, which is also its alignment; 0 for BYTES. */
size_t datatype_size(enum datatype datatype);
bool datatype_is_float(enum datatype datatype); /* FP16, BF16, FP32, FP64 */

#endif
