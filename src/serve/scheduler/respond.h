/* The way back: what a backend answers becomes the response of a call. */
#ifndef SLUICE_SERVE_SCHEDULER_RESPOND_H
#define SLUICE_SERVE_SCHEDULER_RESPOND_H

#include "serve/scheduler/call.h"
#include "sluice/backend.h"

/* The host functions `respond`, `is_cancelled` and `computed` of sluice/backend.h. */
void host_respond(const sluice_request *request, const sluice_response *response);
int host_is_cancelled(const sluice_request *request);
void host_computed(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                   uint64_t ended_ns);

/* Gives outputs that nobody will send back. */
void respond_give_back(const sluice_response *response);

/* From here on call->response owns what its outputs point to, which `release` (may be NULL) gives
 * back. */
void respond_hold(struct call *call, void (*release)(void *cookie), void *cookie);

/* Where an answer goes, and the room there is for it. */
struct answer {
    struct call *call;
    struct infer_response *response;
    struct tensor *outputs; /* as many as are wanted */
    struct piece *pieces;   /* one each */
    int64_t *dims;          /* plan.max_output_rank each */
    struct arena **extra;   /* made when more is needed than that; the caller's to free */
};

/* Checks the outputs of `response` against the call and puts them, and the parameters, into
 * answer->response; their bytes stay the backend's. Returns: ST_BACKEND_FAILED saying what is wrong
 * with them. Thread: any. */
enum status answer_take(const struct answer *answer, const sluice_response *response,
                        struct error *err) __attribute__((warn_unused_result));

#endif
