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

/* One session for all instances: its Run is thread-safe, and the weights are in memory once. */
struct sluice_model {
    const struct ort *ort;
    OrtSession *session;
    struct options options;
    struct signature signature;
    size_t max_output_bytes;   /* 0: no limit */
    int follows_shapes;        /* sluice_model_info.time_follows_shapes */
    atomic_int shape_mismatch; /* an output had another shape than described: no output is
                                  preallocated any more */
};

/* Memory for executions, allocated once. Each array has one member per input or output of the
 * model. */
struct sluice_instance {
    struct sluice_model *model;
    struct gather gather;
    struct prealloc prealloc;
    const char **input_names; /* arguments of Run */
    OrtValue **input_values;
    const char **output_names;
    OrtValue **output_values;
    const struct prealloc_output **prealloc_outputs; /* NULL: Run allocates it */
    const sluice_tensor_info **infos;                /* descriptions of Run's outputs */
    struct output_map output_map;
    struct batch batch;
};

/* Functions of sluice_backend. `ort` must outlive the model. */
sluice_status model_open(const struct ort *ort, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error);
void model_close(sluice_model *model);
sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error);
void instance_close(sluice_instance *instance);

#endif
