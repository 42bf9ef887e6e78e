/* A call: one request on its way through a model and back. It is embedded in what the front end
 * keeps per request; the scheduler queues it, an instance (or the worker itself) runs it, and
 * `done` brings it back to the worker it came from. */
#ifndef SLUICE_SERVE_SCHEDULER_CALL_H
#define SLUICE_SERVE_SCHEDULER_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/keyed_hash.h"
#include "core/event/worker.h"
#include "core/tensor/infer.h"
#include "serve/config/queue_policy.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/model_version.h"
#include "sluice/backend.h"

/* What a call may be. call_set_state is the only one that changes it. */
enum call_state {
    CALL_NEW,           /* not (or no longer) with the model */
    CALL_INLINE_QUEUED, /* waits on its worker for the end of the turn; may be taken back */
    CALL_QUEUED,        /* waits for an instance; may be taken back */
    CALL_RUNNING,       /* the backend has it and gave no answer yet */
    CALL_PARTIAL,       /* the backend gave an answer and said that it was not the last */
    CALL_ANSWERED,      /* the last answer came; `done` runs next */
};

/* Was the answer looked for in the response cache? */
enum call_cached { CALL_NOT_CACHED, CALL_CACHE_MISS, CALL_CACHE_HIT };

struct call {
    /* set by the front end */
    struct infer_request *request; /* checked (infer_check) and aligned; lives until `done` */
    struct worker *worker;         /* where `done` runs */
    bool run_immediately; /* if it runs on its worker, don't put it off: its answer leaves together
                             with
                     those of other requests of its connection, if it comes now */
    void (*done)(
        struct call *call); /* exactly once; may run before call_submit or call_cancel returns.
                                        `response` is filled and must be released by the receiver;
                               the
                                        call must live until that */
    /* Of a decoupled model: each answer but the last, as it comes, before `done`; the receiver
     * releases it, whenever it is through with it, which lets the backend go on. NULL: nobody wants
     * them. */
    void (*on_partial_response)(struct call *call, struct infer_response *response);
    /* filled for `done`; of a decoupled model without outputs when nothing came with the end */
    struct infer_response response;
    uint64_t queued_ns, started_ns, finished_ns; /* monotonic; queued 0: refused before; started 0:
                                                    never ran */
    enum call_cached cached;                     /* CALL_CACHE_HIT: it never ran */
    uint64_t compute_start_ns, compute_end_ns;   /* within that, as the backend says; 0: it says
                                                  nothing */

    /* the scheduler's own */
    struct model_version *version;
    struct call *next, *prev;             /* in the queue */
    struct queue_deadline queue_deadline; /* how it waits there */
    struct timer timer;                   /* while it does: rings when its time is over */
    struct call *order_prev, *order_next; /* among those whose answers leave in order */
    bool in_order;                        /* it is one of those */
    bool response_ready;                  /* it was answered, and goes when those before it have */
    struct sequence_params sequence_params; /* of a model with sequences: which, and where in
                                                    it */
    struct sequence *sequence;              /* while it waits; and, oldest, until it was answered */
    struct call *sequence_prev, *sequence_next; /* of that sequence, while it waits */
    uint64_t arrival;                           /* among all of them */
    bool is_padding;             /* it is nobody's: it fills a row (padding_request.h) */
    struct worker_msg msg;       /* brings the call back to its worker */
    sluice_request abi;          /* the request as the backend sees it */
    struct keyed_hash cache_key; /* unless CALL_NOT_CACHED */
    uint64_t cache_ns;           /* how long looking, and storing, took */
    size_t input_bytes;
    uint32_t instance; /* which executes, or executed, it */
    struct tensor
        *outputs; /* room for the answer, prepared on the worker's thread: one per wanted output */
    struct piece *output_pieces; /* one each */
    int64_t *output_dims;        /* plan.max_output_rank each */
    atomic_bool cancelled;
    _Atomic(enum call_state) state;
    bool running_inline;  /* call_submit executes it right now; touched by the worker's thread
                            only */
    bool answered_inline; /* the last answer came during that */
    bool release_unrefs_version; /* the reference on `version` goes with the response */
    void (*backend_release)(void *cookie);
    void *backend_cookie;
    uint64_t n_answers;             /* of a decoupled model, given so far */
    uint64_t answered_ns;           /* when it had given the last of them */
    bool partial_lost;              /* an answer before the last was, for want of memory */
    struct response_stream *stream; /* of the answers that are on their way (partial_response.h);
                                          NULL: one answer */
    struct arena *extra_arena;      /* what an answer needs beyond the prepared room */
};

/* Sends the request to the model: it runs on this worker, at the end of its turn, when the model is
 * cheap and an instance is idle, else it queues. Refusals (QUEUE_FULL, NOT_READY) also come through
 * `done`. Takes over the caller's reference on `version`, which is given back when `done` has
 * returned and the response is released.
 * Thread: call->worker's. */
void call_submit(struct call *call, struct model_version *version);
/* Nobody waits any more: a queued call is dropped at once (`done` with ST_CANCELLED), a running one
 * is left to end, its answer comes to `done` as ever; of a decoupled model no further `part` is
 * begun. Must not be used after `done`. Thread:
 * call->worker's. */
void call_cancel(struct call *call);

/* ---- internal to serve/scheduler ------------------------------------------------------------- */

static inline enum call_state call_state(struct call *call) {
    return atomic_load_explicit(&call->state, memory_order_acquire);
}

enum {
    CALL_INLINE_MAX_BYTES =
        64 * 1024 /* a model that was measured to be fast was not measured with more */
};

/* The one setter: asserts that the step is one of
 *     NEW → PUT_OFF → QUEUED → RUNNING, each of the first three left out or not,
 *     RUNNING → HELD → ANSWERED, RUNNING → ANSWERED,
 *     NEW, PUT_OFF or QUEUED → ANSWERED (refused, late, cancelled). */
void call_set_state(struct call *call, enum call_state to);

/* What a call is before anything has happened to it; what the front end sets is left alone. */
void call_init(struct call *call, struct model_version *version);
/* Makes `call->abi` from `call->request`, and room for the answer, all in the request's arena.
 * Returns: ST_NO_MEMORY. Thread: the worker's, whose arena it is. */
enum status call_prepare(struct call *call, struct error *err) __attribute__((warn_unused_result));

/* Into the queue, from which an instance takes it, or call_cancel, or the end of its time;
 * scheduler_notify has to follow. The version was entered. Returns: false: the queue is full, or
 * memory out, and this was the call's end. Thread: the worker's. */
bool call_enqueue(struct call *call);
/* The end of a call whose time was over before it was executed, which is CALL_ANSWERED. */
void call_expire(struct call *call);
/* Hands an answered call over to the front end, to which it belongs from then on. Thread: the
 * worker's. */
void call_deliver(struct call *call);
/* The backend's last answer is in call->response (or an error is): brings the call back to its
 * worker. The call must not be touched after this. Thread: any. */
void call_complete(struct call *call);

#endif
