/* Options of ONNX Runtime in a model's config.pbtxt, under the names that Triton's backend and ONNX
 * Runtime use. */
#ifndef SLUICE_ONNXRUNTIME_OPTIONS_H
#define SLUICE_ONNXRUNTIME_OPTIONS_H

#include "onnxruntime/ort.h"
#include "sluice/backend.h"

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

#endif
