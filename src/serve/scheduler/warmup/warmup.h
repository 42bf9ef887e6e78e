/* Warming a model up: what its first requests would otherwise pay (memory, kernels chosen for their
 * shapes) is paid by samples before the model is ready. They are in no statistics. */
#ifndef SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H
#define SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "serve/config/config.h"
#include "serve/scheduler/version.h"

/* Runs every sample of the configuration, as often as it says, on every instance of the version.
 * The instances are open, and nobody else has them yet.
 * Returns: the first failure, naming the sample and the instance. Thread: the one that loads; it
 * runs a loop of its own meanwhile. */
enum status warmup_run(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));

/* What a sample is made for. */
struct warmup_target {
    struct str directory;    /* the model's, with its folder "warmup" */
    uint64_t max_batch_size; /* 0: the model does not batch */
};

/* Makes the inputs of `sample`, as many as it names, with all their rows: zeros, the same random
 * numbers every time (floats from 0 to 1, whole numbers from 0 to 127), or the bytes of a file,
 * which holds one row, to be repeated, or all of them, in the layout of binary tensor data.
 * Returns: ST_BAD_CONFIG, ST_IO, ST_NO_MEMORY. Owns: *out lives in `arena`. May block. */
enum status warmup_sample_make(struct arena *arena, const struct model_warmup *sample,
                               const struct warmup_target *target, struct infer_input **out,
                               struct error *err) __attribute__((warn_unused_result));

#endif
