/* A model's configuration as the answer of ModelConfig (proto/model_config.proto). */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_CONFIG_H
#define SLUICE_SERVE_FRONTEND_GRPC_CONFIG_H

#include "core/base/buf.h"
#include "serve/config/config.h"

/* Appends a ModelConfigResponse: what was configured, completed from the model, defaults filled
 * in. */
void grpc_config_encode(struct buf *out, const struct model_config *config);

#endif
