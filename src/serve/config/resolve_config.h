/* Combines a model's configuration with the backend's description of the model: the specification
 * that clients see, and its mapping to the model's own tensors. An error names both sides of a
 * contradiction. */
#ifndef SLUICE_SERVE_CONFIG_RESOLVE_CONFIG_H
#define SLUICE_SERVE_CONFIG_RESOLVE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/config/config.h"
#include "sluice/backend.h"

/* An input or output of the backend. */
struct plan_tensor {
    uint32_t index; /* index into the model's inputs or outputs */
    bool reshaped;  /* the model receives shape `reshape`, clients see the specification's shape */
    struct shape reshape; /* full shape with the batch dimension; as many -1 as the
                             specification's */
    /* An output of one element that the model describes without dimensions: where it is returned
     * without, clients see the specification's shape. */
    bool may_be_scalar;
};

/* An input that the server fills. */
struct plan_control {
    uint32_t index; /* index into the model's inputs */
    const struct model_control *control;
};

/* A tensor that the server keeps between the requests of a sequence. */
struct plan_state {
    uint32_t input, output; /* indices into the model's inputs and outputs */
    const struct model_state *state;
    struct tensor_spec spec;  /* of the output: name, datatype, and full shape */
    struct shape first_shape; /* of the first value as the model gets it; none is -1 */
};

struct batch_layout; /* serve/config/batch_layout.h */

struct model_plan {
    struct model_spec spec;
    const struct plan_tensor *inputs;  /* parallel to spec.inputs */
    const struct plan_tensor *outputs; /* parallel to spec.outputs */
    const uint32_t *input_order; /* indices into spec.inputs, ordered by the model's input index */
    size_t max_output_rank;      /* over all outputs, before and after a reshape */
    const struct plan_control *controls; /* by index, ascending */
    size_t n_controls;
    const struct plan_state *states;
    size_t n_states;
    const struct batch_layout *layout; /* of batches of unequal shapes; NULL: shapes are equal */
};

/* Completes `config` in place (max_batch_size, batch_reason, platform, inputs and outputs) and
 * fills `plan`. `info` was checked by model_info_check. Arrays that config points to are replaced,
 * not changed.
 * Returns: ST_BAD_MODEL, ST_NO_MEMORY. Owns: everything new is in `arena`. */
enum status resolve_config(struct arena *arena, struct model_config *config,
                           const sluice_model_info *info, uint64_t version,
                           uint64_t default_max_batch_size, struct model_plan *plan,
                           struct error *err) SLUICE_MUST_USE;

/* Checks the backend's description against the interface: names, datatypes, ranks, dimensions, no
 * duplicates. Returns: ST_BACKEND_FAILED. */
enum status model_info_check(const sluice_model_info *info, struct error *err) SLUICE_MUST_USE;

/* Reshaping of a tensor between the client's shape (`dims`) and the model's (`reshape`): the bytes
 * stay, the shape changes. Both have the same number of -1, and the fixed dimensions between two of
 * them have equal products, so the i-th -1 of one is the i-th of the other.
 *
 * Returns: whether the shapes have the same number of -1 and equal products between them. */
bool reshape_is_valid(struct shape from, struct shape to);
/* Writes to `out` (to.rank numbers) the shape that corresponds to `actual`. Returns: false when
 * `actual` does not match `from`. */
bool reshape_apply(struct shape from, struct shape to, struct shape actual, int64_t *out);

#endif
