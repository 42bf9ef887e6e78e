/* What a model itself adds to its configuration (sluice_model_info.adds_config), as the
 * auto_complete_config of models in Python does. */
#ifndef SLUICE_SERVE_CONFIG_CONFIG_ADD_H
#define SLUICE_SERVE_CONFIG_CONFIG_ADD_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/config/config.h"
#include "sluice/backend.h"

/* Adds the inputs and outputs of `info` that `config` does not have, and sets max_batch_size,
 * decoupled and dynamic batching. `info` was checked by model_info_check. Arrays that config points
 * to are replaced, not changed. Returns: ST_BAD_MODEL where both have a tensor and differ in its
 * datatype or dimensions; ST_NO_MEMORY. Owns: everything new is in `arena`. */
enum status config_add(struct arena *arena, struct model_config *config,
                       const sluice_model_info *info, struct error *err) SLUICE_MUST_USE;

#endif
