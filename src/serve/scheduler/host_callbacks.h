/* The way back: what a backend answers becomes the response of a call. */
#ifndef SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H
#define SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H

#include "serve/scheduler/call.h"
#include "sluice/backend.h"

/* The host functions `respond`, `is_cancelled` and `computed` of sluice/backend.h. */
void host_respond(const sluice_request *request, const sluice_response *response);
int host_is_cancelled(const sluice_request *request);
void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns);

/* Gives outputs that nobody will send back. */
void backend_response_release(const sluice_response *response);

/* From here on call->response owns what its outputs point to, which `release` (may be NULL) gives
 * back. */
void call_hold_outputs(struct call *call, void (*release)(void *cookie), void *cookie);

/* Where an answer goes, and the room there is for it. */
struct response_target {
    struct call *call;
    struct infer_response *response;
    struct tensor *outputs;     /* as many as are wanted */
    struct piece *pieces;       /* one each */
    int64_t *dims;              /* plan.max_output_rank each */
    struct arena **extra_arena; /* made when more is needed than that; the caller's to free */
};

/* Checks the outputs of `response` against the call and puts them, and the parameters, into
 * answer->response; their bytes stay the backend's. Returns: ST_BACKEND_FAILED saying what is wrong
 * with them. Thread: any. */
enum status response_target_store(const struct response_target *target,
                                  const sluice_response *response, struct error *err)
    __attribute__((warn_unused_result));

#endif
