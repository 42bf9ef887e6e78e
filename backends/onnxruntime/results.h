/* What a run gave: ONNX Runtime's output values as results. */
#ifndef SLUICE_ONNXRUNTIME_RESULTS_H
#define SLUICE_ONNXRUNTIME_RESULTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/results.h"
#include "onnxruntime/ort.h"
#include "onnxruntime/prealloc.h"
#include "sluice/backend.h"

/* What is known of a run that ended well. */
struct run_outputs {
    OrtValue **values;                             /* `n` that Run made, or: */
    const struct prealloc_output *const *prealloc; /* those that were there; NULL: Run made it */
    const sluice_tensor_info *const *infos;        /* how the model describes each */
    size_t n;
    size_t n_requests;
    uint64_t n_rows;             /* over all requests */
    const struct gather *gather; /* where the inputs may lie */
};

/* Looks at the values. With several requests each must have n_rows as its first dimension.
 * Owns: takes the values that Run made, also on failure. On success *out holds n_requests
 * references. */
sluice_status results_make(const struct ort *ort, const struct run_outputs *run_outputs,
                           struct results **out, sluice_error *error);

#endif
