/* Infer requests of an instance. One holds the outputs of a run in its own memory: while they are
 * on their way to a client the next run takes another. */
#ifndef SLUICE_OPENVINO_LANE_H
#define SLUICE_OPENVINO_LANE_H

#include <pthread.h>
#include <stddef.h>

#include <openvino/c/ov_compiled_model.h>
#include <openvino/c/ov_infer_request.h>

#include "sluice/backend.h"

struct pooled_request {
    struct pooled_request *next; /* of those that are idle */
    struct request_pool *pool;
    ov_infer_request_t *request;
};

/* Outlives its instance for as long as a lane is out. */
struct request_pool {
    ov_compiled_model_t *compiled;
    pthread_mutex_t lock; /* over what follows; held for a few instructions */
    struct pooled_request *idle;
    size_t n_idle;
    size_t n_refs; /* one for each lane that is out, one for the instance */
};

/* Takes the compiled model, also when it fails. Returns: NULL when there is no memory. */
struct request_pool *request_pool_new(ov_compiled_model_t *compiled);
/* The instance has gone. */
void request_pool_unref(struct request_pool *pool);

/* Owns: on success *lane until lane_give. Thread: one at a time. */
sluice_status request_pool_get(struct request_pool *pool, struct pooled_request **pooled,
                               sluice_error *error);
/* `n_bytes`: of the outputs it holds. An unusually large one is not kept. Thread: any. */
void request_pool_put(struct pooled_request *pooled, size_t n_bytes);

#endif
