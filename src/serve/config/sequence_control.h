/* The inputs by which a model is told where in its sequence a request is. */
#ifndef SLUICE_SERVE_CONFIG_SEQUENCE_CONTROL_H
#define SLUICE_SERVE_CONFIG_SEQUENCE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "serve/config/resolve_config.h"
#include "serve/config/sequence_params.h"
#include "sluice/backend.h"

/* Returns: the control that is the model's input of that index; NULL: it is a client's. */
const struct plan_control *control_find(const struct model_plan *plan, uint32_t index);
/* Adds the controls to the inputs, which have room for them, in the model's order. `ask` NULL: of a
 * filler. Returns: false when out of memory. */
bool controls_fill(struct arena *arena, const struct model_plan *plan,
                   const struct sequence_params *params, sluice_input *inputs, size_t *n)
    __attribute__((warn_unused_result));

#endif
