/* The errors of loading a model, in words that say what to do. */
#ifndef SLUICE_ONNXRUNTIME_LOAD_CHECK_H
#define SLUICE_ONNXRUNTIME_LOAD_CHECK_H

#include "onnxruntime/ort.h"

/* Checks the result of creating a session from the file `path`, and frees it; NULL is success.
 * Returns: SLUICE_OK, or the corresponding status. Thread: any. */
sluice_status ort_check_load(const struct ort *ort, OrtStatus *result, const char *path,
                             sluice_error *error);

#endif
