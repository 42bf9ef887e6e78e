/* Properties of OpenVINO in a model's config.pbtxt, under the names that Triton's backend and
 * OpenVINO use. */
#ifndef SLUICE_OPENVINO_OPTIONS_H
#define SLUICE_OPENVINO_OPTIONS_H

#include <stddef.h>

#include <openvino/c/ov_property.h>

#include "sluice/backend.h"

enum { OPTIONS_MAX = 16, OPTION_BYTES = 16 };

/* Properties to compile a model with. Never moved: they point into it. */
struct options {
    ov_property_t properties[OPTIONS_MAX];
    size_t n;
    char values[OPTIONS_MAX][OPTION_BYTES];
};

/* Built from the server's defaults (threads) and args->params, which override them. An unknown key
 * is logged as a warning. Returns: SLUICE_INVALID_ARGUMENT with a text that names the key. */
sluice_status options_init(struct options *options, const sluice_host *host,
                           const sluice_model_args *args, sluice_error *error);

#endif
