/* A loaded model and its instances. */
#ifndef SLUICE_ONNXRUNTIME_MODEL_H
#define SLUICE_ONNXRUNTIME_MODEL_H

#include "common/batch.h"
#include "common/gather.h"
#include "common/results.h"
#include "onnxruntime/options.h"
#include "onnxruntime/ort.h"
#include "onnxruntime/signature.h"
#include "sluice/backend.h"

/* One session for all instances: its Run may be called from several threads at the same time, and
 * the weights are there once. */
struct sluice_model {
    const struct ort *ort;
    OrtSession *session;
    struct options options;
    struct signature signature;
};

/* What one execution needs, made once. The arrays have as many members as the model has inputs or
 * outputs. */
struct sluice_instance {
    const struct sluice_model *model;
    struct gather gather;
    const char **input_names; /* what is handed to Run */
    OrtValue **input_values;
    const char **output_names;
    OrtValue **output_values;
    const sluice_tensor_info **infos; /* of what Run gives */
    struct shares shares;
    struct batch batch;
};

/* The functions of sluice_backend of the same name. `ort` must outlive the model. */
sluice_status model_open(const struct ort *ort, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error);
void model_close(sluice_model *model);
sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error);
void instance_close(sluice_instance *instance);

#endif
