/* What a model's config.pbtxt may say to ONNX Runtime, under the names that the reference server's
 * backend and ONNX Runtime itself use. */
#ifndef SLUICE_ONNXRUNTIME_OPTIONS_H
#define SLUICE_ONNXRUNTIME_OPTIONS_H

#include "onnxruntime/ort.h"
#include "sluice/backend.h"

struct options {
    OrtSessionOptions *session;
    OrtRunOptions *run;
};

/* Makes both from what the server gives (threads, spinning) and args->params, which win. A key that
 * is not known is a warning in the log. Returns: SLUICE_INVALID_ARGUMENT with a sentence that names
 * the key. Owns: on success *options until options_fini. */
sluice_status options_init(struct options *options, const struct ort *ort,
                           const sluice_model_args *args, sluice_error *error);
void options_fini(struct options *options, const struct ort *ort);

#endif
