/* A pool of the infer requests of an instance. A request's own memory contains the outputs of its
 * run: until they are sent, the next run uses another request. */
#ifndef SLUICE_OPENVINO_REQUEST_POOL_H
#define SLUICE_OPENVINO_REQUEST_POOL_H

#include <pthread.h>
#include <stddef.h>

#include <openvino/c/ov_compiled_model.h>
#include <openvino/c/ov_infer_request.h>

#include "sluice/backend.h"

struct pooled_request {
    struct pooled_request *next; /* in the list of idle ones */
    struct request_pool *pool;
    ov_infer_request_t *request;
};

/* Outlives its instance until every request is returned. */
struct request_pool {
    ov_compiled_model_t *compiled;
    pthread_mutex_t lock; /* protects the fields below; held for a few instructions */
    struct pooled_request *idle;
    size_t n_idle;
    size_t n_refs; /* one per request in use, one for the instance */
};

/* Owns: takes the compiled model, also on failure. Returns: NULL when out of memory. */
struct request_pool *request_pool_new(ov_compiled_model_t *compiled);
/* Drops the instance's reference. */
void request_pool_unref(struct request_pool *pool);

/* Owns: on success *pooled until request_pool_put. Thread: one at a time. */
sluice_status request_pool_get(struct request_pool *pool, struct pooled_request **pooled,
                               sluice_error *error);
/* `n_bytes`: the size of its outputs; a request with unusually large ones is freed. Thread: any. */
void request_pool_put(struct pooled_request *pooled, size_t n_bytes);

#endif
