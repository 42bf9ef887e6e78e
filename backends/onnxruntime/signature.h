/* The inputs and outputs of a model as ONNX Runtime reports them, in the interface's structs. */
#ifndef SLUICE_ONNXRUNTIME_SIGNATURE_H
#define SLUICE_ONNXRUNTIME_SIGNATURE_H

#include <stddef.h>

#include "common/block.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

struct signature {
    /* required inputs, then overridable initializers as optional inputs */
    sluice_tensor_info *inputs;
    size_t n_inputs;
    sluice_tensor_info *outputs;
    size_t n_outputs;
    struct block *blocks;
};

/* Reads a session's signature. A required input or an output that is not a tensor of one of our
 * datatypes is refused (SLUICE_UNSUPPORTED) with a remedy; an optional one is left out. Owns: on
 * success everything in *signature until signature_fini. */
sluice_status signature_init(struct signature *signature, const struct ort *ort,
                             const OrtSession *session, sluice_error *error);
void signature_fini(struct signature *signature);

#endif
