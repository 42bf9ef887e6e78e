/* Ensembles: models whose requests run through a graph of other models, their members. Each step of
 * `ensemble_scheduling` runs one member; tensors that have names in the ensemble lead from its
 * inputs by way of the steps to its outputs. A step runs as soon as its tensors are there.
 *
 * The graph itself is checked when config.pbtxt is read. Whether it fits the members is checked
 * against their specifications, when the ensemble is loaded and whenever a member changes. */
#ifndef SLUICE_SERVE_CONFIG_ENSEMBLE_H
#define SLUICE_SERVE_CONFIG_ENSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

struct model_config;

/* What an ensemble's platform, and its backend, is called. */
#define ENSEMBLE_PLATFORM "ensemble"

enum { ENSEMBLE_MAX_STEPS = 1000, ENSEMBLE_MAX_TENSORS = 4096 };

/* An entry of input_map or output_map. */
struct ensemble_map {
    struct str name; /* of the member's input or output */
    size_t tensor;   /* index among the ensemble's tensors */
};

struct ensemble_step {
    struct str place; /* ".../config.pbtxt:12: ensemble_scheduling.step[1]", for messages */
    struct str model;
    struct str version; /* decimal digits; ptr NULL: the highest that is ready */
    const struct ensemble_map *inputs, *outputs;
    size_t n_inputs, n_outputs;
};

/* An index is SIZE_MAX where there is none. */
struct ensemble_tensor {
    struct str name;
    size_t input;    /* among the ensemble's inputs */
    size_t output;   /* among the ensemble's outputs */
    size_t made_by;  /* the step that makes it; none: it is an input */
    size_t *used_by; /* steps, each once for each of its inputs that the tensor is */
    size_t n_used_by;
};

/* Without steps: the model is no ensemble. */
struct model_ensemble {
    const struct ensemble_step *steps;
    size_t n_steps;
    const struct ensemble_tensor *tensors;
    size_t n_tensors;
    uint64_t max_inflight_requests; /* of each step at a time, over all requests; 0: no limit */
};

/* Returns: the specification of the step's member; NULL, with the reason in `err`, when it is not
 * ready. It is valid until ensemble_check returns. */
typedef const struct model_spec *ensemble_find_fn(void *user, const struct ensemble_step *step,
                                                  struct error *err);
/* Checks that the graph fits the members: names, datatypes, shapes, batch sizes, inputs that a
 * member needs. Dimensions of -1 fit any. As in Triton a tensor may lead from a member that batches
 * to one that does not, or the other way round, where the whole shapes fit. *decoupled: whether a
 * member gives any number of responses, and so the ensemble.
 * Returns: ST_BAD_MODEL; ST_NO_MEMORY; what `find` says. Thread: any. */
enum status ensemble_check(const struct model_config *config, ensemble_find_fn *find, void *user,
                           bool *decoupled, struct error *err) SLUICE_MUST_USE;

/* Returns: whether the sizes are equal, or one of them is -1, for each dimension. */
bool ensemble_shapes_agree(struct shape a, struct shape b);

#endif
