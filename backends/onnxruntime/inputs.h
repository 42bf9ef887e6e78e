/* The inputs of a batch as ONNX Runtime's values. */
#ifndef SLUICE_ONNXRUNTIME_INPUTS_H
#define SLUICE_ONNXRUNTIME_INPUTS_H

#include <stddef.h>

#include "common/gather.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* Makes one value per input of requests[0]; the others have the same inputs, with shapes that
 * differ in the first dimension only (the values have their sum). A value is a view of the
 * request's own bytes when a single request has them contiguous, else of `gather`; strings are
 * copied.
 * Owns: on success values[0 … *n) until inputs_release. names are borrowed from the requests. */
sluice_status inputs_make(const struct ort *ort, struct gather *gather,
                          const sluice_request *const *requests, size_t n_requests,
                          const char **names, OrtValue **values, size_t *n, sluice_error *error);
void inputs_release(const struct ort *ort, OrtValue **values, size_t n);

#endif
