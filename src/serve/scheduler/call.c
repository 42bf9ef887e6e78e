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
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/inline_queue.h"
#include "serve/scheduler/partial_response.h"
#include "serve/scheduler/version.h"

void call_set_state(struct call *call, enum call_state to) {
    static const bool allowed[][CALL_ANSWERED + 1] = {
        [CALL_NEW] = {[CALL_INLINE_QUEUED] = true,
                      [CALL_QUEUED] = true,
                      [CALL_RUNNING] = true,
                      [CALL_ANSWERED] = true},
        [CALL_INLINE_QUEUED] =
            {[CALL_QUEUED] = true, [CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_QUEUED] = {[CALL_RUNNING] = true, [CALL_ANSWERED] = true},
        [CALL_RUNNING] = {[CALL_PARTIAL] = true, [CALL_ANSWERED] = true},
        [CALL_PARTIAL] = {[CALL_ANSWERED] = true},
        [CALL_ANSWERED] = {[CALL_NEW] = false},
    };
    assert(allowed[atomic_load_explicit(&call->state, memory_order_relaxed)][to]);
    atomic_store_explicit(&call->state, to, memory_order_release);
}

void call_deliver(struct call *call) {
    struct model_version *version = call->version;
    if (call->cached == CALL_CACHE_MISS) {
        call_cache_store_copy(call);
    }
    if (call->queued_ns > 0) {
        statistics_count_call(&version->statistics, call);
    }
    timer_stop(worker_timers(call->worker), &call->timer);
    response_stream_unref(call->stream);
    call->stream = NULL;
    bool held = call->response.release != NULL;
    call->release_unrefs_version = held;
    call->done(call);
    if (!held) {
        model_version_unref(version);
    }
}

static void on_completion(struct worker_msg *msg) {
    call_deliver((struct call *)(void *)((char *)msg - offsetof(struct call, msg)));
}

void call_complete(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_set_state(call, CALL_ANSWERED);
    /* Only on the worker's own thread may on_worker be looked at. */
    if (worker_is_current(call->worker) && call->running_inline) {
        call->answered_inline = true; /* inline_queue.c goes on when the backend has returned */
        return;
    }
    struct model_version *version = call->version;
    if (call->sequence) {
        scheduler_sequence_resume(&version->scheduler, call);
    }
    if (call->in_order) {
        scheduler_complete_in_order(&version->scheduler, call);
        return;
    }
    worker_post(call->worker, &call->msg);
    version_leave(version); /* the last that this thread touches of it */
}

void call_reject(struct call *call) {
    call->finished_ns = clock_now_ns();
    call_deliver(call);
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
    call->compute_start_ns = call->compute_end_ns = 0;
    call->cached = CALL_NOT_CACHED;
    call->cache_ns = 0;
    call->next = call->prev = call->order_prev = call->order_next = NULL;
    call->timer = (struct timer){0};
    call->in_order = call->response_ready = false;
    call->sequence_params = (struct sequence_params){.start = true, .end = true};
    call->sequence = NULL;
    call->sequence_prev = call->sequence_next = NULL;
    call->is_padding = false;
    call->msg = (struct worker_msg){.run = on_completion};
    call->running_inline = call->answered_inline = call->release_unrefs_version = false;
    call->backend_release = NULL;
    call->backend_cookie = NULL;
    call->extra_arena = NULL;
    call->stream = NULL;
    call->n_answers = call->answered_ns = 0;
    call->partial_lost = false;
    atomic_init(&call->cancelled, false);
    atomic_init(&call->state, CALL_NEW);
}

/* A known answer goes at once, unless others have to go before it. */
static void deliver_cached(struct call *call) {
    struct model_version *version = call->version;
    if (version->config.preserve_ordering) {
        scheduler_complete_unqueued_in_order(&version->scheduler, call);
        return;
    }
    version_leave(version);
    call_deliver(call);
}

void call_submit(struct call *call, struct model_version *version) {
    call_init(call, version);
    struct error *err = &call->response.error;
    assert(worker_is_current(call->worker));
    uint64_t now_ns = clock_now_ns();
    if (call_apply_policy(call, now_ns, err) != ST_OK || call_prepare(call, err) != ST_OK ||
        response_stream_new(call, err) != ST_OK || !version_enter(version, err)) {
        call_set_state(call, CALL_ANSWERED);
        call_reject(call);
        return;
    }
    call->queued_ns = now_ns;
    if (version->cache.cache && call_cache_find(call)) {
        deliver_cached(call);
        return;
    }
    if (!call_run_inline(call) && call_enqueue(call)) {
        scheduler_notify(&version->scheduler, 1);
    }
}
