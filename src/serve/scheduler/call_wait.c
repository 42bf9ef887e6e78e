/* A call in the queue: how it gets there, and how it leaves it without having been executed. Only
 * its own worker drops it, so that a call that waits needs no watching by anyone else: an alarm of
 * the worker rings when its time is over, whether or not an instance will ever come to look. */
#include <stddef.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/timer.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/inline_queue.h"
#include "serve/scheduler/partial_response.h"
#include "serve/scheduler/version.h"

static bool set_queue_timer(struct call *call) {
    uint64_t due_ns = queue_deadline_next_ns(&call->queue_deadline);
    return due_ns == UINT64_MAX || timer_start(worker_timers(call->worker), &call->timer, due_ns);
}

/* The call is out of the queue, and this is its end. */
static void reject_queued(struct call *call, enum metric reason) {
    struct model_version *version = call->version;
    metric_add(reason, 1);
    call_reject(call);
    version_leave(version);
}

void call_expire(struct call *call) {
    char name[TENSOR_NAME_TEXT_BYTES];
    struct error *err = &call->response.error;
    uint64_t waited_us = (call->queue_deadline.expires_ns - call->queued_ns) / 1000;
    tensor_name_print(call->version->plan.spec.name, name);
    if (call->queue_deadline.expires_ns == call->request->deadline_ns) {
        error_set(err, ST_DEADLINE_EXCEEDED,
                  "the request's deadline passed while it waited for an instance of model %s",
                  name);
        reject_queued(call, METRIC_DROPPED_DEADLINE);
    } else {
        error_set(err, ST_QUEUE_TIMEOUT,
                  "the request waited %llu us for an instance of model %s, which is as long as it "
                  "may (its parameter timeout, or default_timeout_microseconds in the model's "
                  "configuration)",
                  (unsigned long long)waited_us, name);
        reject_queued(call, METRIC_DROPPED_QUEUE_TIMEOUT);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct call *call = (struct call *)(void *)((char *)timer - offsetof(struct call, timer));
    struct scheduler *scheduler = &call->version->scheduler;
    bool over = queue_deadline_passed(&call->queue_deadline, clock_now_ns());
    if (!over && (!scheduler_deprioritize(scheduler, call) || set_queue_timer(call))) {
        return; /* an instance was faster, or it waits on, behind the others */
    }
    if (scheduler_remove(scheduler, call)) {
        call_expire(call);
    }
}

enum status call_apply_policy(struct call *call, uint64_t now_ns, struct error *err) {
    const struct queue_policy *policy = &call->version->scheduler.policy;
    enum status st = queue_policy_apply(policy, call->request, now_ns, &call->queue_deadline, err);
    if (st == ST_OK && call->version->scheduler.sequences) {
        st = sequence_params_parse(&call->version->config, call->request, &call->sequence_params,
                                   err);
    }
    if (st == ST_DEADLINE_EXCEEDED) {
        metric_add(METRIC_DROPPED_DEADLINE, 1);
    }
    return st;
}

static enum status enqueue_call(struct call *call, struct error *err) {
    call->timer.on_expire = on_timer_expired;
    if (!set_queue_timer(call)) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the request's timeout");
    }
    enum status st = scheduler_push(&call->version->scheduler, call, err);
    if (st == ST_QUEUE_FULL) {
        metric_add(METRIC_DROPPED_QUEUE_FULL, 1);
    }
    return st; /* where it is refused, call_reject clears the alarm */
}

bool call_enqueue(struct call *call) {
    struct model_version *version = call->version;
    if (enqueue_call(call, &call->response.error) == ST_OK) {
        return true;
    }
    call->queued_ns = 0;
    call_set_state(call, CALL_ANSWERED);
    version_leave(version);
    call_reject(call);
    return false;
}

/* Returns: false when a backend has it. */
static bool remove_from_queues(struct call *call) {
    if (call_state(call) == CALL_INLINE_QUEUED) {
        inline_queue_remove(call);
        return true;
    }
    return scheduler_remove(&call->version->scheduler, call);
}

void call_cancel(struct call *call) {
    atomic_store_explicit(&call->cancelled, true, memory_order_relaxed);
    response_stream_stop(call->stream);
    if (remove_from_queues(call)) {
        error_set(&call->response.error, ST_CANCELLED, "the client went away while it waited");
        reject_queued(call, METRIC_DROPPED_CANCELLED);
    }
}
