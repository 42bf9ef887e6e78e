/* A loaded model and its instances. */
#ifndef SLUICE_ONNXRUNTIME_MODEL_H
#define SLUICE_ONNXRUNTIME_MODEL_H

#include <stdatomic.h>

#include "common/batch.h"
#include "common/gather.h"
#include "common/results.h"
#include "onnxruntime/options.h"
#include "onnxruntime/ort.h"
#include "onnxruntime/prealloc.h"
#include "onnxruntime/signature.h"
#include "sluice/backend.h"

/* One session for all instances: its Run may be called from several threads at the same time, and
 * the weights are there once. */
struct sluice_model {
    const struct ort *ort;
    OrtSession *session;
    struct options options;
    struct signature signature;
    atomic_int shape_mismatch; /* an output had another shape than the model says: none is early any
                                  more */
};

/* What one execution needs, made once. The arrays have as many members as the model has inputs or
 * outputs. */
struct sluice_instance {
    struct sluice_model *model;
    struct gather gather;
    struct prealloc prealloc;
    const char **input_names; /* what is handed to Run */
    OrtValue **input_values;
    const char **output_names;
    OrtValue **output_values;
    const struct prealloc_output **prealloc_outputs; /* NULL: Run makes it */
    const sluice_tensor_info **infos;                /* of what Run gives */
    struct output_map output_map;
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
