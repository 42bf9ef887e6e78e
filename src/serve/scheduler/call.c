/* The way of a call: in, either onto an instance on its worker or into the queue, and back to its
 * worker.
 *
 * Two counts keep a version alive under a call. `n_in_flight` spans from call_submit to the answer
 * and is what version_stop waits for; the reference spans until `done` has returned and the
 * answer's bytes were given back. No lock is taken on the way of a call that runs on its worker. */
#include "serve/scheduler/call.h"

#include <assert.h>

#include "core/event/clock.h"
#include "serve/scheduler/cache/call_cache.h"
#include "serve/scheduler/call_here.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/part.h"
#include "serve/scheduler/version.h"

void call_move(struct call *call, enum call_state to) {
    static const bool allowed[][CALL_ANSWERED + 1] = {
        [CALL_NEW] = {[CALL_PUT_OFF] = true,
                      [CALL_QUEUED] = true,
                      [CALL_RUNNING] = true,
                      [CALL_ANSWERED] = true},
        [CALL_PUT_OFF] = {[CALL_QUEUED] = true, [CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_QUEUED] = {[CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_RUNNING] = {[CALL_HELD] = true, [CALL_ANSWERED] = true},
        [CALL_HELD] = {[CALL_ANSWERED] = true},
        [CALL_ANSWERED] = {[CALL_NEW] = false},
    };
    assert(allowed[atomic_load_explicit(&call->state, memory_order_relaxed)][to]);
    atomic_store_explicit(&call->state, to, memory_order_release);
}

void call_finish(struct call *call) {
    struct model_version *version = call->version;
    if (call->cached == CALL_MISSED) {
        call_cache_store_copy(call);
    }
    if (call->queued_ns > 0) {
        statistics_count_call(&version->statistics, call);
    }
    alarm_clear(worker_alarms(call->worker), &call->alarm);
    flow_unref(call->flow);
    call->flow = NULL;
    bool held = call->response.release != NULL;
    call->release_unrefs = held;
    call->done(call);
    if (!held) {
        model_version_unref(version);
    }
}

static void on_worker(struct worker_msg *msg) {
    call_finish((struct call *)(void *)((char *)msg - offsetof(struct call, msg)));
}

void call_answer(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_move(call, CALL_ANSWERED);
    /* Only on the worker's own thread may on_worker be looked at. */
    if (worker_is_current(call->worker) && call->on_worker) {
        call->answered = true; /* call_here.c goes on when the backend has returned */
        return;
    }
    struct model_version *version = call->version;
    if (call->sequence) {
        scheduler_sequence_goes_on(&version->scheduler, call);
    }
    if (call->in_order) {
        scheduler_send_in_order(&version->scheduler, call);
        return;
    }
    worker_post(call->worker, &call->msg);
    version_leave(version); /* the last that this thread touches of it */
}

void call_refuse(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_finish(call);
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
    call->cached = CALL_NOT_CACHED;
    call->cache_ns = 0;
    call->next = call->prev = call->before = call->behind = NULL;
    call->alarm = (struct alarm){0};
    call->in_order = call->may_leave = false;
    call->ask = (struct sequence_ask){.start = true, .end = true};
    call->sequence = NULL;
    call->earlier = call->later = NULL;
    call->filler = false;
    call->msg = (struct worker_msg){.run = on_worker};
    call->on_worker = call->answered = call->release_unrefs = false;
    call->backend_release = NULL;
    call->backend_cookie = NULL;
    call->extra = NULL;
    call->flow = NULL;
    call->n_answers = call->answered_ns = 0;
    call->lost = false;
    atomic_init(&call->cancelled, false);
    atomic_init(&call->state, CALL_NEW);
}

/* A known answer goes at once, unless others have to go before it. */
static void answer_known(struct call *call) {
    struct model_version *version = call->version;
    if (version->config.preserve_ordering) {
        scheduler_pass_in_order(&version->scheduler, call);
        return;
    }
    version_leave(version);
    call_finish(call);
}

void call_submit(struct call *call, struct model_version *version) {
    call_init(call, version);
    struct error *err = &call->response.error;
    assert(worker_is_current(call->worker));
    uint64_t now_ns = clock_now_ns();
    if (call_admit(call, now_ns, err) != ST_OK || call_prepare(call, err) != ST_OK ||
        flow_new(call, err) != ST_OK || !version_enter(version, err)) {
        call_move(call, CALL_ANSWERED);
        call_refuse(call);
        return;
    }
    call->queued_ns = now_ns;
    if (version->cache.cache && call_cache_find(call)) {
        answer_known(call);
        return;
    }
    if (!call_here(call) && call_enqueue(call)) {
        scheduler_notify(&version->scheduler, 1);
    }
}
