/* The way of a call: in, either onto an instance right here or into the queue, and back to its
 * worker.
 *
 * Two counts keep a version alive under a call. `n_in_flight` spans from call_submit to the answer
 * and is what version_stop waits for; the reference spans until `done` has returned and the
 * answer's bytes were given back. No lock is taken on the way of a call that runs on its worker. */
#include "model/call.h"

#include <assert.h>

#include "base/metric.h"
#include "loop/clock.h"
#include "model/call_state.h"
#include "model/version.h"

void call_move(struct call *call, enum call_state to) {
    static const bool allowed[][CALL_ANSWERED + 1] = {
        [CALL_NEW] = {[CALL_QUEUED] = true, [CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_QUEUED] = {[CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_RUNNING] = {[CALL_HELD] = true, [CALL_ANSWERED] = true},
        [CALL_HELD] = {[CALL_ANSWERED] = true},
        [CALL_ANSWERED] = {[CALL_NEW] = false},
    };
    assert(allowed[atomic_load_explicit(&call->state, memory_order_relaxed)][to]);
    atomic_store_explicit(&call->state, to, memory_order_release);
}

/* Hands the call over to the front end. It is gone afterwards. */
static void finish(struct call *call) {
    struct model_version *version = call->version;
    if (call->queued_ns > 0) {
        statistics_count_call(&version->statistics, call);
    }
    alarm_clear(worker_alarms(call->worker), &call->alarm);
    bool held = call->response.release != NULL;
    call->release_unrefs = held;
    call->done(call);
    if (!held) {
        model_version_unref(version);
    }
}

static void on_worker(struct worker_msg *msg) {
    finish((struct call *)(void *)((char *)msg - offsetof(struct call, msg)));
}

void call_answer(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_move(call, CALL_ANSWERED);
    /* Only on the worker's own thread may on_worker be looked at. */
    if (worker_is_current(call->worker) && call->on_worker) {
        call->answered = true; /* run_here goes on when the backend has returned */
        return;
    }
    struct model_version *version = call->version;
    if (call->in_order) {
        scheduler_send_in_order(&version->scheduler, call);
        return;
    }
    worker_post(call->worker, &call->msg);
    version_leave(version); /* the last that this thread touches of it */
}

void call_refuse(struct call *call) {
    call->finished_ns = clock_now_ns();
    finish(call);
}

static bool may_run_here(struct call *call) {
    struct model_version *version = call->version;
    switch (version->run_on) {
    case RUN_ON_WORKER:
        return true;
    case RUN_ON_INSTANCE:
        return false;
    case RUN_AUTO:
        break;
    }
    return pace_is_cheap(&version->pace) && call->input_bytes <= CALL_CHEAP_BYTES;
}

/* Executes on the calling worker if that is allowed and an instance is idle. Whoever waits in the
 * queue goes first. Returns: false when the call has to queue. */
static bool run_here(struct call *call) {
    struct model_version *version = call->version;
    struct instance *instance = NULL;
    if (may_run_here(call) && scheduler_is_empty(&version->scheduler)) {
        instance = instance_claim(version);
    }
    if (!instance) {
        return false;
    }
    metric_add(METRIC_INLINE_EXECUTIONS_TOTAL, 1);
    call->on_worker = true;
    call_move(call, CALL_RUNNING);
    instance_execute(instance, &call, 1, call->queued_ns);
    /* Only this thread's loop could run `done`, so the call is still there. */
    uint64_t ended_ns = call->answered ? call->finished_ns : clock_now_ns();
    instance_executed(instance, ended_ns);
    instance_release(instance);
    call->on_worker = false;
    if (version->run_on == RUN_AUTO) {
        pace_add(&version->pace, ended_ns - call->queued_ns);
    }
    if (call->answered) {
        version_leave(version); /* first: its answer may say how many run */
        finish(call);
    }
    return true;
}

void call_init(struct call *call, struct model_version *version) {
    call->version = version;
    call->response.error.status = ST_OK;
    call->response.error.text[0] = '\0';
    call->response.params = (struct params){NULL, 0};
    call->response.outputs = NULL;
    call->response.n_outputs = 0;
    call->response.release = NULL;
    call->response.cookie = NULL;
    call->queued_ns = call->started_ns = call->finished_ns = 0;
    call->computing_ns = call->computed_ns = 0;
    call->next = call->prev = call->before = call->behind = NULL;
    call->alarm = (struct alarm){0};
    call->in_order = call->may_leave = false;
    call->msg = (struct worker_msg){.run = on_worker};
    call->on_worker = call->answered = call->release_unrefs = false;
    call->backend_release = NULL;
    call->backend_cookie = NULL;
    call->extra = NULL;
    atomic_init(&call->cancelled, false);
    atomic_init(&call->state, CALL_NEW);
}

void call_submit(struct call *call, struct model_version *version) {
    call_init(call, version);
    struct error *err = &call->response.error;
    assert(worker_is_current(call->worker));
    uint64_t now_ns = clock_now_ns();
    if (call_admit(call, now_ns, err) != ST_OK || call_prepare(call, err) != ST_OK ||
        !version_enter(version, err)) {
        call_move(call, CALL_ANSWERED);
        call_refuse(call);
        return;
    }
    call->queued_ns = now_ns;
    if (run_here(call)) {
        return;
    }
    if (call_enqueue(call, err) != ST_OK) {
        call->queued_ns = 0;
        call_move(call, CALL_ANSWERED);
        version_leave(version);
        call_refuse(call);
    }
}
