/* Datatypes in both worlds: ours and ONNX's, one row each. */
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

/* `ours` is valid: the server has checked it. */
const struct datatype *datatype_of_ours(sluice_datatype ours);
/* Returns: NULL when clients have no such datatype. */
const struct datatype *datatype_of_theirs(ONNXTensorElementDataType theirs);
/* ONNX's word for an element type that can't be served: "float8e5m2". */
const char *datatype_word(ONNXTensorElementDataType theirs);

#endif
