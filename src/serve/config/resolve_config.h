/* What a model's configuration says and what the backend knows of the model become one: the
 * specification that the protocols see, and how it maps to what the backend sees. Contradictions
 * are refused with both sides of them. */
#ifndef SLUICE_SERVE_CONFIG_RESOLVE_CONFIG_H
#define SLUICE_SERVE_CONFIG_RESOLVE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/config/config.h"
#include "sluice/backend.h"

/* One input or output on the backend's side. */
struct plan_tensor {
    uint32_t index;       /* among the model's inputs or outputs */
    bool reshaped;        /* the model sees `reshape` where clients see the specification's shape */
    struct shape reshape; /* full, with the batch dimension; as many -1 as the specification */
};

/* An input that the server fills. */
struct plan_control {
    uint32_t index; /* among the model's inputs */
    const struct model_control *control;
};

struct model_plan {
    struct model_spec spec;
    const struct plan_tensor *inputs;  /* as spec.inputs */
    const struct plan_tensor *outputs; /* as spec.outputs */
    const uint32_t
        *input_order;       /* indices into spec.inputs, by rising index of the model's inputs */
    size_t max_output_rank; /* of all outputs, either side of a reshape */
    const struct plan_control *controls; /* by rising index */
    size_t n_controls;
};

/* Completes `config` in place (max_batch_size, batch_reason, platform, inputs and outputs) and
 * makes `plan` of it. `info` was checked by model_info_check. What config points to is not changed;
 * everything new is in `arena`. Returns: ST_BAD_MODEL, ST_NO_MEMORY. */
enum status resolve_config(struct arena *arena, struct model_config *config,
                           const sluice_model_info *info, uint64_t version,
                           uint64_t default_max_batch_size, struct model_plan *plan,
                           struct error *err) __attribute__((warn_unused_result));

/* Did the backend describe its model as the interface demands: names, datatypes, ranks, dimensions,
 * no duplicates? Returns: ST_BACKEND_FAILED. */
enum status model_info_check(const sluice_model_info *info, struct error *err)
    __attribute__((warn_unused_result));

#endif
