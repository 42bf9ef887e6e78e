/* Control inputs: inputs that carry a request's position in its sequence to the model. */
#ifndef SLUICE_SERVE_CONFIG_SEQUENCE_CONTROL_H
#define SLUICE_SERVE_CONFIG_SEQUENCE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "serve/config/resolve_config.h"
#include "serve/config/sequence_params.h"
#include "sluice/backend.h"

/* Returns: the control at that index of the model's inputs; NULL: a client's input. */
const struct plan_control *control_find(const struct model_plan *plan, uint32_t index);
/* Adds the control inputs to `inputs`, which has capacity for them, in the model's order. `params`
 * NULL: for a padding request. Returns: false when out of memory. */
bool controls_fill(struct arena *arena, const struct model_plan *plan,
                   const struct sequence_params *params, sluice_input *inputs,
                   size_t *n) SLUICE_MUST_USE;

#endif
