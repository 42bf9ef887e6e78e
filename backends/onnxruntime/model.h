/* A loaded model, its parameters (options.c), and its instances, which execute batches
 * (instance.c). */
#ifndef SLUICE_ONNXRUNTIME_MODEL_H
#define SLUICE_ONNXRUNTIME_MODEL_H

#include <stdatomic.h>
#include <stddef.h>

#include "common/signature.h"
#include "onnxruntime/ort.h"
#include "sluice/backend.h"

/* Parameters of config.pbtxt, under the names that Triton's backend and ONNX Runtime use. */
struct options {
    OrtSessionOptions *session;
    OrtRunOptions *run;
};

/* Built from the server's defaults (threads, spinning) and args->params, which override them. An
 * unknown key is logged as a warning. Returns: SLUICE_INVALID_ARGUMENT with a text that names the
 * key. Owns: on success *options until options_fini. */
sluice_status options_init(struct options *options, const struct ort *ort,
                           const sluice_model_args *args, sluice_error *error);
void options_fini(struct options *options, const struct ort *ort);

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

/* Functions of sluice_backend (instances: instance.c). `ort` must outlive the model. */
sluice_status model_open(const struct ort *ort, const sluice_model_args *args, sluice_model **model,
                         sluice_error *error);
void model_close(sluice_model *model);
sluice_status instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                            sluice_error *error);
void instance_close(sluice_instance *instance);
/* Every request is answered on return. */
void execute(sluice_instance *instance, const sluice_request *const *requests, size_t n);

#endif
