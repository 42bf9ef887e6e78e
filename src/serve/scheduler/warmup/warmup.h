/* Warming a model up: what its first requests would otherwise pay (memory, kernels chosen for their
 * shapes) is paid by samples before the model is ready. They are in no statistics. */
#ifndef SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H
#define SLUICE_SERVE_SCHEDULER_WARMUP_WARMUP_H

#include "core/base/status.h"
#include "serve/scheduler/version.h"

/* Runs every sample of the configuration, as often as it says, on every instance of the version.
 * The instances are open, and nobody else has them yet.
 * Returns: the first failure, naming the sample and the instance. Thread: the one that loads; it
 * runs a loop of its own meanwhile. */
enum status warmup_run(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));

#endif
