/* A call: one inference request on its way through a model version. It is embedded in the front
 * end's request; the scheduler queues it, an instance (or the worker itself) runs it, and `done`
 * returns it on the worker that submitted it. What the scheduler itself keeps of it is in
 * call_run.h. */
#ifndef SLUICE_SERVE_SCHEDULER_CALL_H
#define SLUICE_SERVE_SCHEDULER_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/event/helper_pool.h"
#include "core/event/worker.h"
#include "core/tensor/infer.h"
#include "serve/scheduler/model_version.h"

/* The result of the response cache lookup. */
enum call_cached { CALL_NOT_CACHED, CALL_CACHE_MISS, CALL_CACHE_HIT };

struct call_run; /* what only the scheduler reads and writes */

struct call {
    /* set by the front end */
    /* Checked (infer_check) and aligned; with its arena, it lives until `response` is released. */
    struct infer_request *request;
    struct worker *worker;       /* where `done` runs */
    struct helper_pool *helpers; /* where large inputs are hashed; NULL: on the worker */
    struct fair_client client;   /* for helpers */
    /* An inline call normally waits for the end of the event-loop iteration to share a batch. True:
     * run it now, because its answer is sent together with others of its connection. */
    bool run_immediately;
    /* The client's requests fail of late: it shares batches only with others of which that is
     * true, because a batch that fails is run again in parts. */
    bool batch_apart;
    /* Identifies the requests of one stream of a client, which wait for each other; NULL: none. */
    const void *request_stream;
    /* Runs exactly once, possibly before call_submit or call_cancel returns. The receiver releases
     * `response`; the call must live until then. */
    void (*done)(struct call *call);
    /* Decoupled models: runs for each response but the last, before `done`. The receiver releases
     * the response when it is sent, which lets the backend continue (partial_response.c). NULL:
     * partial responses are dropped. */
    void (*on_partial_response)(struct call *call, struct infer_response *response);
    /* filled for `done`; without outputs when a decoupled model's final response had none */
    struct infer_response response;
    uint64_t queued_ns, started_ns, finished_ns; /* monotonic; queued 0: refused before queueing;
                                                    started 0: never ran */
    enum call_cached cached;                     /* CALL_CACHE_HIT: not executed */
    uint64_t compute_start_ns, compute_end_ns;   /* reported by the backend; 0: not reported */

    struct call_run *run; /* the scheduler's part, in the request's arena: call_run.h */
};

/* Submits the request. A cheap model runs on this worker at the end of the event-loop iteration
 * when an instance is idle; otherwise the call is queued for an instance. Refusals (QUEUE_FULL,
 * NOT_READY) are also reported through `done`.
 * Owns: takes the caller's reference on `version`, which is dropped when `done` has returned and
 * the response is released.
 * Thread: call->worker's. */
void call_submit(struct call *call, struct model_version *version);
/* Cancels the call. A queued call is removed at once (`done` with ST_CANCELLED); a running one
 * continues and its answer is delivered to `done`; a decoupled model's partial responses stop. Not
 * after `done`.
 * Thread: call->worker's. */
void call_cancel(struct call *call);
/* Returns: whether the call was cancelled, also by the scheduler, because its client reads slowly.
 * From call_submit until `done`. Thread: any. */
bool call_was_cancelled(const struct call *call);

#endif
