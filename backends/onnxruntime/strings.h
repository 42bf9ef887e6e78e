/* Converts BYTES tensors to ONNX Runtime's string tensors and back without loss: an element may be
 * empty and contain NULs. */
#ifndef SLUICE_ONNXRUNTIME_STRINGS_H
#define SLUICE_ONNXRUNTIME_STRINGS_H

#include <stddef.h>

#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* Makes a string tensor of shape `dims` from the elements of input `index` of every request, in
 * order. Owns: on success *value until ReleaseValue. Returns: NULL or ONNX Runtime's error. */
OrtStatus *string_tensor_new(const struct ort *ort, const sluice_request *const *requests,
                             size_t n_requests, size_t index, const int64_t *dims,
                             OrtValue **value);

/* Writes a string tensor of `count` elements as BYTES. Owns: on success *block, to be freed. */
sluice_status string_tensor_read(const struct ort *ort, const OrtValue *value, size_t count,
                                 unsigned char **block, size_t *n_bytes, sluice_error *error);

#endif
