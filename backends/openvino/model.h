/* A loaded model and its instances. */
#ifndef SLUICE_OPENVINO_MODEL_H
#define SLUICE_OPENVINO_MODEL_H

#include <openvino/c/ov_compiled_model.h>
#include <openvino/c/ov_model.h>
#include <openvino/c/ov_tensor.h>

#include "common/batch.h"
#include "common/gather.h"
#include "common/onnx_external.h"
#include "common/results.h"
#include "openvino/options.h"
#include "openvino/ov.h"
#include "openvino/request_pool.h"
#include "openvino/signature.h"
#include "sluice/backend.h"

/* Each instance has its own compiled model, which has one stream and runs one request at a time. */
struct sluice_model {
    const struct ov *ov;
    ov_model_t *model;
    ov_compiled_model_t *spare; /* compiled in model_open, for the first instance */
    struct options options;
    struct onnx_file onnx; /* of an .onnx file, while it is loaded */
    struct signature signature;
    int follows_shapes; /* sluice_model_info.time_follows_shapes */
};

struct sluice_instance {
    const struct sluice_model *model;
    struct request_pool *pool;
    struct gather gather;
    ov_tensor_t **inputs; /* the tensors of a run, one per model input */
    struct output_map output_map;
    struct batch batch;
};

/* Functions of sluice_backend. `ov` must outlive the model. */
sluice_status model_open(const struct ov *ov, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error);
void model_close(sluice_model *model);
sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error);
void instance_close(sluice_instance *instance);

#endif
