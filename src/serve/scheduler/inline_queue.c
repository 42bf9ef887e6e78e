/* What a worker has put off of one version, in the order in which an instance would take it, and
 * the end of the turn, which comes sooner when enough is put off: batch after batch, until models
 * have taken as long as one slow execution may. A call that is alone in its turn is begun right
 * after it was read, without another look at the kernel or another thread. */
#include "serve/scheduler/inline_queue.h"

#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/call.h"
#include "serve/scheduler/version.h"

/* One worker's of one version. */
struct inline_queue {
    struct per_worker per_worker;
    struct deferred_task on_iteration_end;
    struct model_version *version;
    struct loop_iteration *iteration;
    struct priority_queue queue;
    uint64_t flush_at_calls; /* calls for a turn */
    bool running;            /* the end of the turn is at work on it */
    struct priority_class classes[];
};

/* ---- may it? --------------------------------------------------------------------------------- */

static bool may_run_inline(const struct call *call) {
    const struct model_version *version = call->version;
    switch (version->run_on) {
    case RUN_ON_WORKER:
        return true;
    case RUN_ON_INSTANCE:
        return false;
    case RUN_AUTO:
        break;
    }
    return exec_time_stats_is_fast(&version->exec_time_stats) &&
           call->input_bytes <= CALL_INLINE_MAX_BYTES;
}

/* Has this turn time for another execution? Who chose the worker by hand has chosen. */
static bool iteration_has_time(const struct inline_queue *inline_queue) {
    return inline_queue->version->run_on == RUN_ON_WORKER ||
           inline_queue->iteration->spent_ns < EXEC_SLOW_NS;
}

/* An instance for what is put off. Whoever waits in the queue goes first. */
static struct instance *claim_instance(struct model_version *version) {
    return scheduler_is_empty(&version->scheduler) ? instance_claim(version) : NULL;
}

/* How many calls may share an execution. */
static size_t max_batch_calls(struct model_version *version) {
    size_t most = version->run_on == RUN_AUTO ? exec_time_stats_max_batch(&version->exec_time_stats)
                                              : SIZE_MAX;
    return most < INSTANCE_REQUESTS_MAX ? most : INSTANCE_REQUESTS_MAX;
}

/* As many of one version are enough for a turn. More in a batch win little, while what each has
 * brought, down to its socket, goes out of the nearer caches before its answer is written: 128
 * clients of a small model get a sixth more when their calls run by sixteens. */
enum { FLUSH_CALLS = 16 };

/* Where the configuration prefers larger batches they are waited for. */
static uint64_t flush_threshold(const struct batch_rules *rules) {
    uint64_t flush_at_calls = FLUSH_CALLS;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        flush_at_calls =
            rules->preferred[i] > flush_at_calls ? rules->preferred[i] : flush_at_calls;
    }
    return flush_at_calls;
}

/* ---- running --------------------------------------------------------------------------------- */

static void calls_begin(struct call *const *calls, size_t n) {
    metric_add(METRIC_INLINE_EXECUTIONS_TOTAL, 1);
    for (size_t i = 0; i < n; i++) {
        calls[i]->running_inline = true;
        call_set_state(calls[i], CALL_RUNNING);
    }
}

/* Hands over those that were answered meanwhile; the others come back as messages. Only this thread
 * could run those, so all are still there. */
static void calls_finish(struct call **calls, size_t n) {
    size_t n_answered = 0;
    for (size_t i = 0; i < n; i++) {
        calls[i]->running_inline = false;
        if (calls[i]->answered_inline) {
            calls[n_answered++] = calls[i];
            version_leave(calls[i]->version); /* first: an answer may say how many run */
        }
    }
    for (size_t i = 0; i < n_answered; i++) {
        call_deliver(calls[i]);
    }
}

/* Returns: how long it took. The calls may be gone. */
static uint64_t run_batch(struct instance *instance, struct call **calls, size_t n,
                          uint64_t started_ns) {
    struct model_version *version = instance->version;
    calls_begin(calls, n);
    instance_execute(instance, calls, n, started_ns);
    const struct call *last = calls[n - 1];
    uint64_t ended_ns = last->answered_inline ? last->finished_ns : clock_now_ns();
    instance_executed(instance, ended_ns);
    instance_release(instance);
    if (version->run_on == RUN_AUTO) {
        exec_time_stats_add(&version->exec_time_stats, ended_ns - started_ns, n);
    }
    calls_finish(calls, n);
    return ended_ns - started_ns;
}

/* ---- at the end of a turn -------------------------------------------------------------------- */

/* All that is put off now: instances take it as it is in the queue. */
static size_t move_to_scheduler(struct inline_queue *inline_queue) {
    size_t n = inline_queue->queue.n, n_queued = 0;
    /* A call that is refused may take others with it: those of its connection. */
    for (size_t i = 0; i < n && inline_queue->queue.first; i++) {
        struct call *call = inline_queue->queue.first;
        priority_queue_remove(&inline_queue->queue, call);
        n_queued += call_enqueue(call);
    }
    scheduler_notify(&inline_queue->version->scheduler, n_queued);
    return n;
}

/* One execution, or the end of one call that is late, or of the turn's time. Returns: how many
 * calls are put off no longer. */
static size_t run_next_batch(struct inline_queue *inline_queue) {
    struct model_version *version = inline_queue->version;
    struct call *batch[INSTANCE_REQUESTS_MAX];
    struct call *first = inline_queue->queue.first;
    uint64_t now_ns = clock_now_ns();
    if (queue_deadline_passed(&first->queue_deadline, now_ns)) {
        priority_queue_remove(&inline_queue->queue, first);
        call_set_state(first, CALL_ANSWERED);
        call_expire(first);
        return 1;
    }
    struct instance *instance = iteration_has_time(inline_queue) ? claim_instance(version) : NULL;
    if (!instance) {
        return move_to_scheduler(inline_queue);
    }
    size_t n = batch_take(&version->scheduler.rules, &inline_queue->queue, first, batch,
                          max_batch_calls(version), now_ns);
    inline_queue->iteration->spent_ns += run_batch(instance, batch, n, now_ns);
    return n;
}

/* For the end of the turn. Until it has come the version is held: the calls may be gone by then. */
static void schedule_flush(struct inline_queue *inline_queue) {
    if (!inline_queue->on_iteration_end.queued) {
        model_version_ref(inline_queue->version);
        loop_iteration_defer(inline_queue->iteration, &inline_queue->on_iteration_end);
    }
}

/* What is put off now. Its answers may bring more calls: those have to wait, so that the worker
 * comes to something else in between. */
static void on_iteration_end(struct deferred_task *task) {
    struct inline_queue *inline_queue =
        (struct inline_queue *)(void *)((char *)task -
                                        offsetof(struct inline_queue, on_iteration_end));
    struct model_version *version = inline_queue->version;
    size_t left = inline_queue->queue.n;
    inline_queue->running = true;
    while (left > 0 && inline_queue->queue.first) { /* who is cancelled meanwhile is not there any
                                                       more */
        size_t n = run_next_batch(inline_queue);
        left = n < left ? left - n : 0;
    }
    inline_queue->running = false;
    if (inline_queue->queue.first) {
        schedule_flush(inline_queue);
    }
    model_version_unref(version);
}

/* ---- in and out ------------------------------------------------------------------------------ */

static struct inline_queue *inline_queue_new(struct model_version *version, struct worker *worker) {
    size_t n_levels = version->scheduler.queue.n_levels;
    struct inline_queue *inline_queue =
        calloc(1, sizeof(*inline_queue) + 2 * n_levels * sizeof(inline_queue->classes[0]));
    if (inline_queue) {
        inline_queue->on_iteration_end.run = on_iteration_end;
        inline_queue->version = version;
        inline_queue->iteration = worker_loop_iteration(worker);
        inline_queue->flush_at_calls = flush_threshold(&version->scheduler.rules);
        inline_queue->queue =
            (struct priority_queue){.classes = inline_queue->classes, .n_levels = n_levels};
        per_worker_add(&version->inline_queues, worker, &inline_queue->per_worker);
    }
    return inline_queue;
}

/* Returns: NULL when out of memory. */
static struct inline_queue *inline_queue_get(const struct call *call) {
    struct per_worker *one = per_worker_find(&call->version->inline_queues, call->worker);
    return one ? (struct inline_queue *)(void *)one : inline_queue_new(call->version, call->worker);
}

/* Its answer is to leave with others of its connection, which are being read: nothing is won by
 * waiting. Returns: false when it has to wait after all. */
static bool run_immediately(struct inline_queue *inline_queue, struct call *call) {
    struct instance *instance = inline_queue->queue.n == 0 && iteration_has_time(inline_queue)
                                    ? claim_instance(inline_queue->version)
                                    : NULL;
    if (!instance) {
        return false;
    }
    inline_queue->iteration->spent_ns += run_batch(instance, &call, 1, call->queued_ns);
    return true;
}

bool call_run_inline(struct call *call) {
    struct inline_queue *inline_queue = may_run_inline(call) ? inline_queue_get(call) : NULL;
    if (!inline_queue || !scheduler_is_empty(&call->version->scheduler)) {
        return false;
    }
    if (call->run_immediately && run_immediately(inline_queue, call)) {
        return true;
    }
    call_set_state(call, CALL_INLINE_QUEUED);
    priority_queue_add(&inline_queue->queue, call);
    if (!inline_queue->running) {
        schedule_flush(inline_queue);
        inline_queue->iteration->full =
            inline_queue->iteration->full || inline_queue->queue.n >= inline_queue->flush_at_calls;
    }
    return true;
}

void inline_queue_remove(struct call *call) {
    struct inline_queue *inline_queue = inline_queue_get(call);
    priority_queue_remove(&inline_queue->queue, call);
    call_set_state(call, CALL_ANSWERED);
}
