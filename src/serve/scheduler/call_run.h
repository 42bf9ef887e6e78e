/* What the scheduler keeps of a call: where it waits, in which state it is, the request as the
 * backend sees it, and the memory for its answer. Internal to serve/scheduler and, for reports, to
 * serve/repository; front ends use call.h. */
#ifndef SLUICE_SERVE_SCHEDULER_CALL_RUN_H
#define SLUICE_SERVE_SCHEDULER_CALL_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/hash.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "serve/config/queue_policy.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/call.h"
#include "serve/scheduler/statistics/statistics.h"
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

/* Where preserve_ordering puts a call. */
enum call_order {
    CALL_NOT_ORDERED,
    CALL_IN_ORDER,       /* in the scheduler's list of ordered calls */
    CALL_READY_IN_ORDER, /* the same, and answered: it waits for earlier calls */
};

/* Whether the worker executes a call itself. Read and written by the worker only. */
enum call_inline {
    CALL_NOT_INLINE,
    CALL_RUNS_INLINE,
    CALL_ANSWERED_INLINE, /* the final answer arrived before the execution returned */
};

/* Whose request it is. */
enum call_role {
    CALL_OF_CLIENT,
    CALL_PADDING, /* fills an empty row (padding_request.h) */
    CALL_JOINT,   /* those of a batch as one, for the backend (joint/joint_request.h) */
};

/* Why a decoupled model's call ends with an error of the server's. */
enum call_loss {
    CALL_LOST_NOTHING,
    CALL_LOST_PARTIAL, /* a partial response was lost for lack of memory */
    CALL_LOST_READER,  /* the client read slowly while others waited */
};

TAILQ_HEAD(call_list, call);

/* In the arena of the call's request: the response, which it may own, is released before that. */
struct call_run {
    struct call *call;
    struct model_version *version;        /* a reference, until it is released */
    TAILQ_ENTRY(call) queue_link;         /* in the queue */
    struct queue_deadline queue_deadline; /* how it waits there */
    struct timer timer;                   /* runs at the next time of queue_deadline */
    TAILQ_ENTRY(call) order_link;         /* list of calls with preserve_ordering */
    enum call_order order;
    struct sequence_params sequence_params; /* sequence batching: its sequence and position */
    struct sequence *sequence;              /* while queued; strategy oldest: until answered */
    TAILQ_ENTRY(call) sequence_link;        /* waiting calls of that sequence */
    uint64_t arrival;                       /* arrival number, to order sequences */
    struct state_tensor *states;            /* one per state of the model; NULL: none */
    uint32_t n_iterations;                  /* iterative sequence: earlier executions */
    enum call_role role;
    struct worker_msg msg;          /* returns the call to its worker */
    sluice_request backend_request; /* the request as the backend sees it */
    size_t n_client_outputs;     /* of backend_request.wanted, the first ones; others are states */
    struct keyed_hash cache_key; /* valid unless CALL_NOT_CACHED */
    struct lookup *lookup;       /* while its inputs are hashed on a helper thread */
    uint64_t cache_ns;           /* time for lookup and store */
    size_t input_bytes;
    uint64_t shapes;             /* of shape_times_shapes_of */
    uint32_t instance;           /* index of the instance that executes it */
    struct tensor *outputs;      /* of the answer, allocated on the worker: one per wanted output */
    struct piece *output_pieces; /* one per output */
    int64_t *output_dims;        /* plan.max_output_rank per output */
    atomic_bool cancelled;
    _Atomic(enum call_state) state;
    enum call_inline on_worker;
    bool release_unrefs_version; /* releasing the response drops the reference on `version` */
    void (*backend_release)(void *cookie);
    void *backend_cookie;
    uint64_t n_answers;         /* decoupled: responses so far */
    uint64_t answered_ns;       /* time of the latest response */
    uint64_t first_answered_ns; /* and of the first one */
    bool is_stored;             /* in the response cache, or the cache has refused it */
    enum call_loss loss;
    struct response_stream *stream; /* bounds the partial responses in flight
                                       (partial_response.c); NULL: not decoupled */
    struct arena *extra_arena;      /* for an answer that exceeds the prepared memory */
    void *ensemble_run;             /* ensemble_call.h; NULL: not running, or no ensemble */
    bool has_ensemble_compute;      /* an ensemble's call has ended */
    struct statistics_compute ensemble_compute; /* of its members */
};

static inline enum call_state call_state(struct call *call) {
    return atomic_load_explicit(&call->run->state, memory_order_acquire);
}

enum {
    CALL_INLINE_MAX_BYTES =
        64 * 1024 /* of inputs: the execution times of a fast model were measured with at most so
                     many */
};

/* Changes the state. Asserts that the transition is one of
 *     NEW → INLINE_QUEUED → QUEUED → RUNNING, each of the first three optional,
 *     RUNNING → PARTIAL → ANSWERED, RUNNING → ANSWERED,
 *     RUNNING or PARTIAL → QUEUED (an iterative sequence is executed again),
 *     NEW, INLINE_QUEUED or QUEUED → ANSWERED (refused, expired, cancelled). */
void call_set_state(struct call *call, enum call_state to);

/* Makes call->run, in the request's arena, and clears the result; what the front end has set is
 * unchanged. Returns: ST_NO_MEMORY. Thread: the worker's. */
enum status call_init(struct call *call, struct model_version *version,
                      struct error *err) SLUICE_MUST_USE;
/* Makes backend_request from call->request and allocates memory for the answer, all in the
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

/* ---- inline_queue.c -------------------------------------------------------------------------- */

/* Inline execution: calls of a fast model wait on the worker that read them for the end of its
 * event-loop iteration (core/event/loop_iteration.h) and run there in batches, by the same rules as
 * in the scheduler's queue. Calls that cannot run then (no idle instance, older calls queued, the
 * iteration's time spent) move to the scheduler's queue.
 *
 * Thread: the worker's. */

/* Queues the call inline, or runs it now where run_immediately is set; the call may be completed
 * and freed on return. Returns: false when the call has to be queued at the scheduler. */
bool call_run_inline(struct call *call) SLUICE_MUST_USE;
/* Removes a call in CALL_INLINE_QUEUED, which becomes CALL_ANSWERED. */
void inline_queue_remove(struct call *call);

#endif
