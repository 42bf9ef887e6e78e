/* Runs ensembles: a call of an ensemble is a graph of inner inferences, one for each step, on the
 * call's worker. A step starts as soon as its tensors are there, so that branches run at the same
 * time. Tensors go from step to step, and into the response, by reference.
 *
 * The repository opens an ensemble as a version of the built-in backend below, which has no
 * instances; the scheduler passes its calls to the functions here. docs/decisions/ has the reasons.
 */
#ifndef SLUICE_SERVE_ENSEMBLE_ENSEMBLE_H
#define SLUICE_SERVE_ENSEMBLE_ENSEMBLE_H

#include "serve/scheduler/ensemble_call.h"
#include "sluice/backend.h"

/* For repository_options.builtin: the name "ensemble", under which versions are opened. It executes
 * nothing. */
extern const sluice_backend ensemble_backend;
/* For repository_options.ensemble_ops, whose `user` is the repository of the members. */
extern const struct ensemble_ops ensemble_ops;

#endif
