/* Turns a backend's answers into the responses of a call. Internal to serve/scheduler. */
#ifndef SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H
#define SLUICE_SERVE_SCHEDULER_HOST_CALLBACKS_H

#include "serve/scheduler/call_run.h"
#include "serve/scheduler/statistics/count.h"
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

/* Returns: ST_BACKEND_FAILED when the output is not the wanted one, or its datatype, dimensions and
 * bytes do not go together. */
enum status backend_output_check(const sluice_output *output, uint32_t wanted,
                                 const struct tensor_spec *spec, struct error *err) SLUICE_MUST_USE;

/* Finds the output in the request's `wanted` from *place on. Returns: ST_BACKEND_FAILED when it is
 * not there. */
enum status backend_output_find(const sluice_request *request, const char *backend,
                                const sluice_output *output, size_t *place,
                                struct error *err) SLUICE_MUST_USE;

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

/* ---- partial_response.c ---------------------------------------------------------------------- */

/* Delivers the responses of a decoupled model to the front end one by one, with a limit on those in
 * flight, and ends the calls of clients that read slowly while others wait. */

/* The responses in flight of one call. It may outlive the call, until its last bytes are
 * released. */
struct response_stream;

/* The limits per call; a single response may exceed them. A client lags when it does not take
 * that many within version->slow_reader_timeout_ns. */
enum { RESPONSE_STREAM_MAX_BYTES = 4 * 1024 * 1024, RESPONSE_STREAM_MAX_RESPONSES = 1024 };

TAILQ_HEAD(response_stream_list, response_stream);

/* Creates call->stream, submitted at `now_ns`, where the model is decoupled and on_partial_response
 * is set. Returns: ST_NO_MEMORY. Thread: the worker's. */
enum status response_stream_new(struct call *call, uint64_t now_ns,
                                struct error *err) SLUICE_MUST_USE;
/* Called when the call is complete, before `done`: the stream then lives until its last response is
 * released. NULL is allowed. */
void response_stream_close(struct response_stream *stream);
/* The call runs on the instance with that index. NULL is allowed. Thread: the instance's. */
void response_stream_run(struct response_stream *stream, uint32_t instance);
/* The model has answered at `now_ns`: the call does not wait. NULL is allowed. Thread: any. */
void response_stream_answered(struct response_stream *stream, uint64_t now_ns);
/* Called when the call is cancelled: wakes a backend that is blocked in `respond`, and drops
 * further responses. NULL is allowed. Thread: any. */
void response_stream_stop(struct response_stream *stream);

/* Delivers a partial response to call->on_partial_response on the worker. Blocks while the limits
 * on responses in flight are reached, unless the client lags and other calls wait for this
 * thread: the call is ended then (CALL_LOST_READER, and it is cancelled for the backend).
 * Owns: the outputs' bytes, also when the call was cancelled. Thread: the backend's. Returns: the
 * outcome for statistics. */
enum statistics_outcome partial_response_send(struct call *call, const sluice_response *response);

#endif
