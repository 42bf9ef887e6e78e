/* The calls of ensembles. No instance runs them: serve/ensemble, which is above the scheduler, runs
 * the graph of inner inferences, and completes the call here. All of a call is done on its worker.
 * Queue, batches and warm-up are those of the members. */
#ifndef SLUICE_SERVE_SCHEDULER_ENSEMBLE_CALL_H
#define SLUICE_SERVE_SCHEDULER_ENSEMBLE_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/infer.h"
#include "serve/scheduler/call.h"
#include "serve/scheduler/statistics/statistics.h"
#include "sluice/backend.h"

/* What runs ensembles. */
struct ensemble_ops {
    /* The version is opened, and not served yet. `user`: of version_options. *state is passed to
     * the others. Returns: ST_NO_MEMORY. Thread: the loading thread. */
    enum status (*open)(const struct model_version *version, void *user, void **state,
                        struct error *err);
    /* No call runs any more. Thread: any. */
    void (*close)(void *state);
    /* Runs the call, which ensemble_call_end completes, possibly before `run` returns. Thread: the
     * call's worker, as for the next. */
    void (*run)(struct call *call, void *state);
    /* The call runs, and is cancelled: it is completed afterwards, not before this returns. */
    void (*cancel)(struct call *call);
};

/* The call's user data of serve/ensemble, between `run` and ensemble_call_end. */
void ensemble_call_set_run(struct call *call, void *run);
void *ensemble_call_run(const struct call *call);

/* The request with the shapes that the members see: those of `reshape` where there is one. Inputs
 * have the index of the ensemble's inputs. */
const sluice_request *ensemble_call_request(const struct call *call);
/* Returns: the index of the ensemble's output that is the response's output `i`, of
 * request.n_wanted. */
size_t ensemble_call_output(const struct call *call, size_t i);
/* Returns: the shape that the members make of that output, with the batch dimension where the
 * ensemble has one: that of `reshape`, or the one that clients see. */
struct shape ensemble_call_inner_shape(const struct call *call, size_t output);
/* The shape that clients see of an output that has shape `given`; memory is in `arena`. Returns:
 * ST_BACKEND_FAILED where a reshape does not fit; ST_NO_MEMORY. */
enum status ensemble_call_shape(const struct call *call, size_t output, struct shape given,
                                struct arena *arena, struct shape *out,
                                struct error *err) SLUICE_MUST_USE;

/* The request of a decoupled ensemble has a response before the last: passes it to the front end,
 * which releases it. Where the call takes no such responses, it is released at once. */
void ensemble_call_send(struct call *call, struct infer_response *response);
/* Completes the call. call->response.error is set, or its outputs and parameters are, whose bytes
 * `release` frees (NULL: there are none) on any thread. `compute`: the sums over the members.
 * `later`: `done` runs after this returns. The call may be freed when this returns. */
void ensemble_call_end(struct call *call, void (*release)(void *cookie), void *cookie,
                       const struct statistics_compute *compute, bool later);

#endif
