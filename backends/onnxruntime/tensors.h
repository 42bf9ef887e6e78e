/* Tensors between requests and ONNX Runtime's values: datatypes, inputs, outputs. */
#ifndef SLUICE_ONNXRUNTIME_TENSORS_H
#define SLUICE_ONNXRUNTIME_TENSORS_H

#include <stddef.h>

#include <onnxruntime_c_api.h>

#include "common/batch.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* A datatype of ours and ONNX's, one row each. */
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

/* Makes one value per input of requests[0]; the others have the same inputs, with shapes that
 * differ in the first dimension only (the values have their sum). A value is a view of the
 * request's own bytes when a single request has them contiguous, else of `gather`; strings are
 * copied.
 * Owns: on success values[0 … *n) until inputs_release. names are borrowed from the requests. */
sluice_status inputs_make(const struct ort *ort, struct gather *gather,
                          const sluice_request *const *requests, size_t n_requests,
                          const char **names, OrtValue **values, size_t *n, sluice_error *error);
void inputs_release(const struct ort *ort, OrtValue **values, size_t n);

/* Describes a value of a successful run in `result`, which has it: numbers stay in its memory,
 * strings are copied. `gather` may contain the inputs. */
sluice_status output_read(const struct ort *ort, struct result *result,
                          const sluice_tensor_info *info, const struct gather *gather,
                          sluice_error *error);

#endif
