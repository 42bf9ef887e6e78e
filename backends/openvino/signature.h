/* The inputs and outputs of a model as OpenVINO reports them, in the interface's structs. */
#ifndef SLUICE_OPENVINO_SIGNATURE_H
#define SLUICE_OPENVINO_SIGNATURE_H

#include <stddef.h>

#include <openvino/c/ov_model.h>

#include "common/block.h"
#include "openvino/ov.h"
#include "sluice/backend.h"

struct signature {
    sluice_tensor_info *inputs;
    size_t n_inputs;
    sluice_tensor_info *outputs;
    size_t n_outputs;
    struct block *blocks;
};

/* Reads a model's signature. A tensor of unknown rank or of another datatype is refused
 * (SLUICE_UNSUPPORTED) with a remedy. Owns: on success everything in *signature until
 * signature_fini. */
sluice_status signature_init(struct signature *signature, const ov_model_t *model,
                             sluice_error *error);
void signature_fini(struct signature *signature);

#endif
