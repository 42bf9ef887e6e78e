/* A model's configuration as JSON: proto3's mapping of ModelConfig with the fields' own names. */
#ifndef SLUICE_SERVE_FRONTEND_CONFIG_JSON_H
#define SLUICE_SERVE_FRONTEND_CONFIG_JSON_H

#include "core/base/buf.h"
#include "serve/config/config.h"

/* Appends it: what was configured, completed from the model, defaults filled in. Scalars and lists
 * are there also when empty, messages only when set; enums are names, 64-bit numbers are numbers.
 * Clause: model configuration extension. */
void config_json_print(struct buf *out, const struct model_config *config);

#endif
