/* Converts ONNX Runtime's output values to results. */
#ifndef SLUICE_ONNXRUNTIME_RESULTS_H
#define SLUICE_ONNXRUNTIME_RESULTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/results.h"
#include "onnxruntime/ort.h"
#include "onnxruntime/prealloc.h"
#include "sluice/backend.h"

/* The outputs of a successful run. */
struct run_outputs {
    OrtValue **values;                             /* `n` values that Run made, or NULL: */
    const struct prealloc_output *const *prealloc; /* the preallocated ones; NULL: Run made it */
    const sluice_tensor_info *const *infos;        /* descriptions of the outputs */
    size_t n;
    size_t n_requests;
    uint64_t n_rows;             /* of all requests */
    const struct gather *gather; /* may contain the inputs */
};

/* Checks the values and describes them. With several requests each must have n_rows as its first
 * dimension.
 * Owns: takes the values that Run made, also on failure. On success *out has n_requests
 * references. */
sluice_status results_make(const struct ort *ort, const struct run_outputs *run_outputs,
                           struct results **out, sluice_error *error);

#endif
