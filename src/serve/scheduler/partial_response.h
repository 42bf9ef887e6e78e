/* The answers of a decoupled model, which are any number, on their way to a front end: each travels
 * by itself, and what is under way at once is bounded. For the files of this room only. */
#ifndef SLUICE_SERVE_SCHEDULER_PARTIAL_RESPONSE_H
#define SLUICE_SERVE_SCHEDULER_PARTIAL_RESPONSE_H

#include "serve/scheduler/call.h"
#include "serve/scheduler/statistics/count.h"
#include "sluice/backend.h"

/* What is under way of one call. It outlives the call, as its last bytes may. */
struct response_stream;

enum {
    RESPONSE_STREAM_MAX_BYTES = 4 * 1024 * 1024,
    RESPONSE_STREAM_MAX_RESPONSES = 1024
}; /* at
                                                                                               most,
                                                                                               or a

      single answer */

/* Makes call->flow where the model is decoupled and somebody wants the answers. Returns:
 * ST_NO_MEMORY. Thread: the worker's. */
enum status response_stream_new(struct call *call, struct error *err)
    __attribute__((warn_unused_result));
/* The call has ended. NULL is allowed. */
void response_stream_unref(struct response_stream *stream);
/* Nobody waits any more: who waits for room gets none, and nothing is sent. NULL is allowed.
 * Thread: any. */
void response_stream_stop(struct response_stream *stream);

/* An answer that is not the last goes to call->part, on the worker, as soon as there is room: until
 * then this blocks. Owns: the outputs' bytes, also when nobody waits any more. Thread: the
 * backend's.
 * Returns: what became of it. */
enum statistics_outcome partial_response_send(struct call *call, const sluice_response *response);

#endif
