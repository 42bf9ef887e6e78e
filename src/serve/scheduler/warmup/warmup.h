/* Warm-up: sample requests pay for lazy initialization (memory, kernels chosen by shape) before the
 * model is ready. They are excluded from statistics. */
#ifndef SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H
#define SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "serve/config/config.h"
#include "serve/scheduler/version.h"

/* Runs every configured sample `count` times on every instance of the version. The instances are
 * open and not yet used.
 * Returns: the first error, which names the sample and the instance. Thread: the loading thread,
 * which runs an event loop meanwhile. */
enum status warmup_run(struct model_version *version, struct error *err) SLUICE_MUST_USE;

/* The model that a sample is made for. */
struct warmup_target {
    const struct model_config *config; /* names the files; NULL: in tests */
    struct str directory;              /* the model's directory, with its folder "warmup" */
    uint64_t max_batch_size;           /* 0: the model does not batch */
};

/* Makes the inputs that `sample` names, with all rows: zeros; a fixed pseudo-random sequence
 * (floats from 0 to 1, whole numbers from 0 to 127); or the bytes of a file in the layout of binary
 * tensor data, which contains one row (repeated) or all rows.
 * Returns: ST_BAD_CONFIG, ST_IO, ST_NO_MEMORY. Owns: *out is in `arena`. May block. */
enum status warmup_sample_make(struct arena *arena, const struct model_warmup *sample,
                               const struct warmup_target *target, struct infer_input **out,
                               struct error *err) SLUICE_MUST_USE;

#endif
