/* Turns a backend's answers into the response of a call. */
#ifndef SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H
#define SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H

#include "serve/scheduler/call_run.h"
#include "sluice/backend.h"

/* The host functions `respond`, `is_cancelled` and `computed` of sluice/backend.h. */
void host_respond(const sluice_request *request, const sluice_response *response);
int host_is_cancelled(const sluice_request *request);
void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns);

/* Releases outputs that are not sent. */
void backend_response_release(const sluice_response *response);

/* call->response now owns its outputs' bytes, which `release` (may be NULL) frees. */
void call_hold_outputs(struct call *call, void (*release)(void *cookie), void *cookie);

/* The destination of an answer and the memory for its description. */
struct response_target {
    struct call *call;
    struct infer_response *response;
    struct tensor *outputs;     /* one per wanted output */
    struct piece *pieces;       /* one per output */
    int64_t *dims;              /* plan.max_output_rank per output */
    struct arena **extra_arena; /* created when that memory is too small; the caller frees it */
};

/* Checks the outputs of `response` against the call and stores them, and the parameters, in
 * target->response; the bytes remain the backend's. Returns: ST_BACKEND_FAILED with the defect;
 * ST_OUTPUT_TOO_LARGE.
 * Thread: any. */
enum status response_target_store(const struct response_target *target,
                                  const sluice_response *response,
                                  struct error *err) SLUICE_MUST_USE;

#endif
