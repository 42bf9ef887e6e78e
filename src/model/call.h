/* A call: one request on its way through a model and back. It is embedded in what the front end keeps
 * per request; the scheduler queues it, an instance (or the worker itself) runs it, and `done` brings it
 * back to the worker it came from. */
#ifndef SLUICE_MODEL_CALL_H
#define SLUICE_MODEL_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop/worker.h"
#include "model/repository.h"
#include "sluice/backend.h"
#include "tensor/infer.h"

struct call {
    /* set by the front end */
    struct infer_request *request; /* checked (infer_check) and aligned; lives until `done` */
    struct worker *worker;         /* where `done` runs */
    void (*done)(struct call *call); /* exactly once; may run before call_submit returns; `response`
                                        is filled and must be released by the receiver */
    /* filled for `done` */
    struct infer_response response;
    uint64_t queued_ns, started_ns, finished_ns; /* monotonic */

    /* the scheduler's own */
    struct model_version *version;
    struct call *next;
    struct worker_msg msg;
    sluice_request abi;
    atomic_bool cancelled;
    atomic_int state;
};

/* Sends the request to the model: runs on this worker when the model is cheap and an instance is idle,
 * else queues. Refusals (QUEUE_FULL, NOT_READY) also come through `done`. Takes over the caller's
 * reference on `version`: the version stays until `done` has returned and the response was released
 * (outputs are the backend's memory). Thread: call->worker's. */
void call_submit(struct call *call, struct model_version *version);
/* Nobody waits any more: a queued call is dropped at once (`done` with ST_CANCELLED), a running one is
 * left to end, its answer comes to `done` as ever. Thread: call->worker's. */
void call_cancel(struct call *call);

#endif
