/* The values of the settings that begin with "mip.": one strict reader for each kind, from text to
 * its place in struct mip_settings. They say what was expected and what came; whose setting it is
 * says the caller. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_VALUES_H
#define SLUICE_SERVE_FRONTEND_MIP_VALUES_H

#include "serve/frontend/mip/settings.h"

/* Returns: ST_BAD_CONFIG. */
typedef enum status mip_value_read(struct str value, struct mip_settings *out, struct error *err);

mip_value_read mip_value_color, mip_value_fit, mip_value_filter, mip_value_scale, mip_value_mean,
    mip_value_std, mip_value_layout, mip_value_size, mip_value_pad, mip_value_softmax,
    mip_value_top_k, mip_value_labels;

#endif
