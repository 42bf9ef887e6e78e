/* The requests that a model is warmed up with: made from what model_warmup says in its
 * configuration. Whether they fit the model is infer_check's business. */
#ifndef SLUICE_SERVE_SCHEDULER_WARMUP_SAMPLE_H
#define SLUICE_SERVE_SCHEDULER_WARMUP_SAMPLE_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/tensor/infer.h"
#include "serve/config/config.h"

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
