/* Infer requests of an instance. One holds the outputs of a run in its own memory: while they are
 * on their way to a client the next run takes another. */
#ifndef SLUICE_OPENVINO_LANE_H
#define SLUICE_OPENVINO_LANE_H

#include <pthread.h>
#include <stddef.h>

#include <openvino/c/ov_compiled_model.h>
#include <openvino/c/ov_infer_request.h>

#include "sluice/backend.h"

struct lane {
    struct lane *next; /* of those that are idle */
    struct lanes *lanes;
    ov_infer_request_t *request;
};

/* Outlives its instance for as long as a lane is out. */
struct lanes {
    ov_compiled_model_t *compiled;
    pthread_mutex_t lock; /* over what follows; held for a few instructions */
    struct lane *idle;
    size_t n_idle;
    size_t n_refs; /* one for each lane that is out, one for the instance */
};

/* Takes the compiled model, also when it fails. Returns: NULL when there is no memory. */
struct lanes *lanes_new(ov_compiled_model_t *compiled);
/* The instance has gone. */
void lanes_close(struct lanes *lanes);

/* Owns: on success *lane until lane_give. Thread: one at a time. */
sluice_status lane_take(struct lanes *lanes, struct lane **lane, sluice_error *error);
/* `n_bytes`: of the outputs it holds. An unusually large one is not kept. Thread: any. */
void lane_give(struct lane *lane, size_t n_bytes);

#endif
