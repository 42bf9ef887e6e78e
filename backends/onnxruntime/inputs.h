/* The inputs of a batch as ONNX Runtime's values. */
#ifndef SLUICE_ONNXRUNTIME_INPUTS_H
#define SLUICE_ONNXRUNTIME_INPUTS_H

#include <stddef.h>

#include "common/gather.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* Makes one value per input that requests[0] has; the others must have the same ones, and shapes
 * that differ in the first dimension only (which the values sum up). A value is a view: of the
 * request's own bytes where a single request has them in one piece, of `gather` otherwise; strings
 * are copied. Owns: on success values[0 … *n) until inputs_release. names are borrowed from the
 * requests. */
sluice_status inputs_make(const struct ort *ort, struct gather *gather,
                          const sluice_request *const *requests, size_t n_requests,
                          const char **names, OrtValue **values, size_t *n, sluice_error *error);
void inputs_release(const struct ort *ort, OrtValue **values, size_t n);

#endif
