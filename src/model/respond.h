/* The way back: what a backend answers becomes the response of a call. */
#ifndef SLUICE_MODEL_RESPOND_H
#define SLUICE_MODEL_RESPOND_H

#include "model/call.h"
#include "sluice/backend.h"

/* The host functions `respond`, `is_cancelled` and `computed` of sluice/backend.h. */
void host_respond(const sluice_request *request, const sluice_response *response);
int host_is_cancelled(const sluice_request *request);
void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns);

/* Checks the outputs of `response` against the call and puts them, and the parameters, into
 * call->response; their bytes stay the backend's. Returns: ST_BACKEND_FAILED saying what is wrong
 * with them. Thread: any. */
enum status answer_take(struct call *call, const sluice_response *response, struct error *err)
    __attribute__((warn_unused_result));

#endif
