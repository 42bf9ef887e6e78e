/* What a model's config.pbtxt may say to OpenVINO, under the names that the reference server's
 * backend and OpenVINO itself use. */
#ifndef SLUICE_OPENVINO_OPTIONS_H
#define SLUICE_OPENVINO_OPTIONS_H

#include <stddef.h>

#include <openvino/c/ov_property.h>

#include "sluice/backend.h"

enum { OPTIONS_MAX = 16, OPTION_BYTES = 16 };

/* Properties to compile a model with; never moves: they point into it. */
struct options {
    ov_property_t properties[OPTIONS_MAX];
    size_t n;
    char values[OPTIONS_MAX][OPTION_BYTES];
};

/* From what the server gives (threads) and args->params, which win. A key that is not known is a
 * warning in the log. Returns: SLUICE_INVALID_ARGUMENT with a sentence that names the key. */
sluice_status options_init(struct options *options, const sluice_host *host,
                           const sluice_model_args *args, sluice_error *error);

#endif
