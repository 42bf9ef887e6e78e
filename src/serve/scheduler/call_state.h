/* The states of a call, and its ends: what scheduler.c, instance.c, inline_queue.c and
 * host_callbacks.c share of call.c. */
#ifndef SLUICE_SERVE_SCHEDULER_CALL_STATE_H
#define SLUICE_SERVE_SCHEDULER_CALL_STATE_H

#include "serve/scheduler/call.h"

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

/* How would it wait, if it has to? Fills call->patience.
 * Returns: as queue_policy_apply does. Thread: the worker's. */
enum status call_apply_policy(struct call *call, uint64_t now_ns, struct error *err)
    __attribute__((warn_unused_result));
/* Into the queue, from which an instance takes it, or call_cancel, or the end of its time;
 * scheduler_notify has to follow. The version was entered. Returns: false: the queue is full, or
 * memory out, and this was the call's end. Thread: the worker's. */
bool call_enqueue(struct call *call);
/* The end of a call whose time was over before it was executed, which is CALL_ANSWERED. */
void call_expire(struct call *call);
/* Hands an answered call over to the front end, to which it belongs from then on. Thread: the
 * worker's. */
void call_deliver(struct call *call);
/* Ends a call that the backend has never seen; response.error says why. It is gone afterwards.
 * Thread: the worker's. */
void call_reject(struct call *call);

/* The backend's last answer is in call->response (or an error is): brings the call back to its
 * worker. The call must not be touched after this. Thread: any. */
void call_complete(struct call *call);

#endif
