/* Warming a model up: what its first requests would otherwise pay (memory, kernels chosen for their
 * shapes) is paid by samples before the model is ready. They are in no statistics. */
#ifndef SLUICE_MODEL_WARMUP_H
#define SLUICE_MODEL_WARMUP_H

#include "base/status.h"
#include "model/version.h"

/* Runs every sample of the configuration, as often as it says, on every instance of the version.
 * The instances are open, and nobody else has them yet.
 * Returns: the first failure, naming the sample and the instance. Thread: the one that loads; it
 * runs a loop of its own meanwhile. */
enum status warmup_run(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));

#endif
