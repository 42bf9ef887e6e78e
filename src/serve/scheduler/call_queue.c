/* A call in the queue: how it gets there, and how it leaves it without having been executed. Only
 * its own worker drops it, so that a call that waits needs no watching by anyone else: an alarm of
 * the worker rings when its time is over, whether or not an instance will ever come to look. */
#include <stddef.h>

#include "core/base/metric/metric.h"
#include "core/event/alarm.h"
#include "core/event/clock.h"
#include "serve/scheduler/call_here.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/part.h"
#include "serve/scheduler/version.h"

static bool set_alarm(struct call *call) {
    uint64_t due_ns = patience_next_ns(&call->patience);
    return due_ns == UINT64_MAX || alarm_set(worker_alarms(call->worker), &call->alarm, due_ns);
}

/* The call is out of the queue, and this is its end. */
static void drop(struct call *call, enum metric reason) {
    struct model_version *version = call->version;
    metric_add(reason, 1);
    call_refuse(call);
    version_leave(version);
}

void call_drop_late(struct call *call) {
    char name[TENSOR_NAME_TEXT_BYTES];
    struct error *err = &call->response.error;
    uint64_t waited_us = (call->patience.expires_ns - call->queued_ns) / 1000;
    tensor_name_print(call->version->plan.spec.name, name);
    if (call->patience.expires_ns == call->request->deadline_ns) {
        error_set(err, ST_DEADLINE_EXCEEDED,
                  "the request's deadline passed while it waited for an instance of model %s",
                  name);
        drop(call, METRIC_DROPPED_DEADLINE);
    } else {
        error_set(err, ST_QUEUE_TIMEOUT,
                  "the request waited %llu us for an instance of model %s, which is as long as it "
                  "may (its parameter timeout, or default_timeout_microseconds in the model's "
                  "configuration)",
                  (unsigned long long)waited_us, name);
        drop(call, METRIC_DROPPED_QUEUE_TIMEOUT);
    }
}

static void on_alarm(struct alarm *alarm) {
    struct call *call = (struct call *)(void *)((char *)alarm - offsetof(struct call, alarm));
    struct scheduler *scheduler = &call->version->scheduler;
    bool over = patience_is_over(&call->patience, clock_now_ns());
    if (!over && (!scheduler_yield(scheduler, call) || set_alarm(call))) {
        return; /* an instance was faster, or it waits on, behind the others */
    }
    if (scheduler_remove(scheduler, call)) {
        call_drop_late(call);
    }
}

enum status call_admit(struct call *call, uint64_t now_ns, struct error *err) {
    const struct policy *policy = &call->version->scheduler.policy;
    enum status st = policy_apply(policy, call->request, now_ns, &call->patience, err);
    if (st == ST_OK && call->version->scheduler.sequences) {
        st = sequence_ask_read(&call->version->config, call->request, &call->ask, err);
    }
    if (st == ST_DEADLINE_EXCEEDED) {
        metric_add(METRIC_DROPPED_DEADLINE, 1);
    }
    return st;
}

static enum status enqueue(struct call *call, struct error *err) {
    call->alarm.ring = on_alarm;
    if (!set_alarm(call)) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the request's timeout");
    }
    enum status st = scheduler_push(&call->version->scheduler, call, err);
    if (st == ST_QUEUE_FULL) {
        metric_add(METRIC_DROPPED_QUEUE_FULL, 1);
    }
    return st; /* where it is refused, call_refuse clears the alarm */
}

bool call_enqueue(struct call *call) {
    struct model_version *version = call->version;
    if (enqueue(call, &call->response.error) == ST_OK) {
        return true;
    }
    call->queued_ns = 0;
    call_move(call, CALL_ANSWERED);
    version_leave(version);
    call_refuse(call);
    return false;
}

/* Returns: false when a backend has it. */
static bool take_back(struct call *call) {
    if (call_state(call) == CALL_PUT_OFF) {
        call_here_remove(call);
        return true;
    }
    return scheduler_remove(&call->version->scheduler, call);
}

void call_cancel(struct call *call) {
    atomic_store_explicit(&call->cancelled, true, memory_order_relaxed);
    flow_stop(call->flow);
    if (take_back(call)) {
        error_set(&call->response.error, ST_CANCELLED, "the client went away while it waited");
        drop(call, METRIC_DROPPED_CANCELLED);
    }
}
