/* A call: one inference request on its way through a model version. It is embedded in the front
 * end's request; the scheduler queues it, an instance (or the worker itself) runs it, and `done`
 * returns it on the worker that submitted it. */
#ifndef SLUICE_SERVE_SCHEDULER_CALL_H
#define SLUICE_SERVE_SCHEDULER_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/hash.h"
#include "core/event/helper_pool.h"
#include "core/event/worker.h"
#include "core/tensor/infer.h"
#include "serve/config/queue_policy.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/model_version.h"
#include "sluice/backend.h"

/* States of a call. Only call_set_state changes them. */
enum call_state {
    CALL_NEW,           /* not (or no longer) submitted */
    CALL_INLINE_QUEUED, /* waits on its worker for the end of the event-loop iteration; can be
                           removed */
    CALL_QUEUED,        /* waits for an instance; can be removed */
    CALL_RUNNING,       /* in the backend, without an answer yet */
    CALL_PARTIAL,       /* the backend answered with final = 0 */
    CALL_ANSWERED,      /* the final answer arrived; `done` runs next */
};

/* The result of the response cache lookup. */
enum call_cached { CALL_NOT_CACHED, CALL_CACHE_MISS, CALL_CACHE_HIT };

TAILQ_HEAD(call_list, call);

struct call {
    /* set by the front end */
    struct infer_request *request; /* checked (infer_check) and aligned; lives until `done` */
    struct worker *worker;         /* where `done` runs */
    struct helper_pool *helpers;   /* where large inputs are hashed; NULL: on the worker */
    struct fair_client client;     /* for helpers */
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
     * the response when it is sent, which lets the backend continue (partial_response.h). NULL:
     * partial responses are dropped. */
    void (*on_partial_response)(struct call *call, struct infer_response *response);
    /* filled for `done`; without outputs when a decoupled model's final response had none */
    struct infer_response response;
    uint64_t queued_ns, started_ns, finished_ns; /* monotonic; queued 0: refused before queueing;
                                                    started 0: never ran */
    enum call_cached cached;                     /* CALL_CACHE_HIT: not executed */
    uint64_t compute_start_ns, compute_end_ns;   /* reported by the backend; 0: not reported */

    /* private to the scheduler */
    struct model_version *version;
    TAILQ_ENTRY(call) queue_link;           /* in the queue */
    struct queue_deadline queue_deadline;   /* how it waits there */
    struct timer timer;                     /* runs at the next time of queue_deadline */
    TAILQ_ENTRY(call) order_link;           /* list of calls with preserve_ordering */
    bool preserve_ordering;                 /* the call is in that list */
    bool response_ready;                    /* answered, waits for earlier calls */
    struct sequence_params sequence_params; /* sequence batching: its sequence and position */
    struct sequence *sequence;              /* while queued; strategy oldest: until answered */
    TAILQ_ENTRY(call) sequence_link;        /* waiting calls of that sequence */
    uint64_t arrival;                       /* arrival number, to order sequences */
    bool is_padding;                        /* fills an empty row; no client (padding_request.h) */
    struct worker_msg msg;                  /* returns the call to its worker */
    sluice_request backend_request;         /* the request as the backend sees it */
    struct keyed_hash cache_key;            /* valid unless CALL_NOT_CACHED */
    struct lookup *lookup;                  /* while its inputs are hashed on a helper thread */
    uint64_t cache_ns;                      /* time for lookup and store */
    size_t input_bytes;
    uint64_t shapes;             /* of shape_times_shapes_of */
    uint32_t instance;           /* index of the instance that executes it */
    struct tensor *outputs;      /* of the answer, allocated on the worker: one per wanted output */
    struct piece *output_pieces; /* one per output */
    int64_t *output_dims;        /* plan.max_output_rank per output */
    atomic_bool cancelled;
    _Atomic(enum call_state) state;
    bool running_inline;  /* the worker executes it now; read and written by the worker only */
    bool answered_inline; /* the final answer arrived meanwhile */
    bool release_unrefs_version; /* releasing the response drops the reference on `version` */
    void (*backend_release)(void *cookie);
    void *backend_cookie;
    uint64_t n_answers;             /* decoupled: responses so far */
    uint64_t answered_ns;           /* time of the latest response */
    bool is_stored;                 /* in the response cache, or the cache has refused it */
    bool partial_lost;              /* a partial response was lost for lack of memory */
    bool reader_slow;               /* ended: the client read slowly while others waited */
    struct response_stream *stream; /* bounds the partial responses in flight
                                       (partial_response.h); NULL: not decoupled */
    struct arena *extra_arena;      /* for an answer that exceeds the prepared memory */
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

/* ---- internal to serve/scheduler ------------------------------------------------------------- */

static inline enum call_state call_state(struct call *call) {
    return atomic_load_explicit(&call->state, memory_order_acquire);
}

enum {
    CALL_INLINE_MAX_BYTES =
        64 * 1024 /* of inputs: the execution times of a fast model were measured with at most so
                     many */
};

/* Changes the state. Asserts that the transition is one of
 *     NEW → INLINE_QUEUED → QUEUED → RUNNING, each of the first three optional,
 *     RUNNING → PARTIAL → ANSWERED, RUNNING → ANSWERED,
 *     NEW, INLINE_QUEUED or QUEUED → ANSWERED (refused, expired, cancelled). */
void call_set_state(struct call *call, enum call_state to);

/* Initializes the scheduler's members; those set by the front end are unchanged. */
void call_init(struct call *call, struct model_version *version);
/* Makes call->backend_request from call->request and allocates memory for the answer, all in the
 * request's arena. Returns: ST_NO_MEMORY. Thread: the worker's. */
enum status call_prepare(struct call *call, struct error *err) SLUICE_MUST_USE;

/* Queues the call for an instance; the caller has entered the version, and calls scheduler_notify
 * afterwards. Returns: false when the queue is full or memory is out; the call is completed then.
 * Thread: the worker's. */
bool call_enqueue(struct call *call);
/* Completes a call in CALL_ANSWERED that expired before it was executed. */
void call_expire(struct call *call);
/* Passes an answered call to the front end, which owns it from then on. Thread: the worker's. */
void call_deliver(struct call *call);
/* The final answer (or an error) is in call->response: returns the call to its worker. The call
 * must not be used afterwards. Thread: any. */
void call_complete(struct call *call);

#endif
