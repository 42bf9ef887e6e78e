/* Our datatypes and ONNX's, one row each. */
#ifndef SLUICE_ONNXRUNTIME_DATATYPE_H
#define SLUICE_ONNXRUNTIME_DATATYPE_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

#include "sluice/backend.h"

struct datatype {
    sluice_datatype ours;
    ONNXTensorElementDataType theirs;
    size_t n_bytes; /* of an element; 0 for BYTES */
};

/* `ours` is valid: checked by the server. */
const struct datatype *datatype_of_ours(sluice_datatype ours);
/* Returns: NULL when clients have no such datatype. */
const struct datatype *datatype_of_theirs(ONNXTensorElementDataType theirs);
/* ONNX's name of an element type that is not supported: "float8e5m2". */
const char *datatype_word(ONNXTensorElementDataType theirs);

#endif
