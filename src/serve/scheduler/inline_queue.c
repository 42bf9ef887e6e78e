/* Inline calls of one version on one worker, in queue order. At the end of the event-loop iteration
 * (or earlier, when enough have been collected) they run batch by batch, until the iteration has
 * spent as long on models as one slow execution may take. A single call starts right after it was
 * read, without another system call or thread switch. */
#include "serve/scheduler/call_run.h"

#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/version.h"

/* Per worker and version. */
struct inline_queue {
    struct per_worker per_worker;
    struct deferred_task on_iteration_end;
    struct model_version *version;
    struct loop_iteration *iteration;
    struct priority_queue queue;
    uint64_t flush_at_calls; /* this many calls end the iteration */
    bool running;            /* on_iteration_end is running it */
    struct priority_class classes[];
};

/* ---- conditions ------------------------------------------------------------------------------ */

/* Returns: the times of executions with its shapes; NULL: none are known, or they do not matter. */
static struct exec_time_stats *times_of(const struct call *call) {
    struct model_version *version = call->run->version;
    return version->run_on == RUN_AUTO ? shape_times_find(&version->shape_times, call->run->shapes)
                                       : NULL;
}

static bool may_run_inline(const struct call *call) {
    const struct model_version *version = call->run->version;
    switch (version->run_on) {
    case RUN_ON_WORKER:
        return true;
    case RUN_ON_INSTANCE:
        return false;
    case RUN_AUTO:
        break;
    }
    const struct exec_time_stats *times = times_of(call);
    return times && exec_time_stats_is_fast(times) &&
           call->run->backend_request.batch <= exec_time_stats_max_rows(times) &&
           call->run->input_bytes <= CALL_INLINE_MAX_BYTES;
}

/* Returns: whether the iteration may start another execution; otherwise the calls go to the
 * instances. For run_on = worker they wait for the next iteration (is_iteration_over). */
static bool iteration_has_time(const struct inline_queue *inline_queue) {
    return inline_queue->version->run_on == RUN_ON_WORKER ||
           inline_queue->iteration->spent_ns < EXEC_SLOW_NS;
}

/* An idle instance, unless calls in the scheduler's queue are older. */
static struct instance *claim_instance(struct model_version *version) {
    return scheduler_is_empty(&version->scheduler) ? instance_claim(version, NULL) : NULL;
}

/* The number of calls of one version that ends an iteration early. Larger batches gain little,
 * while the data of each request leaves the near caches before its answer is written: 128 clients
 * of a small model get a sixth more throughput when their calls run by sixteens. */
enum { FLUSH_CALLS = 16 };

/* Larger preferred batch sizes raise the threshold. */
static uint64_t flush_threshold(const struct batch_rules *rules) {
    uint64_t flush_at_calls = FLUSH_CALLS;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        flush_at_calls =
            rules->preferred[i] > flush_at_calls ? rules->preferred[i] : flush_at_calls;
    }
    return flush_at_calls;
}

/* ---- execution ------------------------------------------------------------------------------- */

/* Delivers the calls that were answered inline; the others return as messages. Those messages run
 * on this thread, so all calls are still valid here. */
static void calls_finish(struct call **calls, size_t n) {
    size_t n_answered = 0;
    for (size_t i = 0; i < n; i++) {
        bool answered = calls[i]->run->on_worker == CALL_ANSWERED_INLINE;
        calls[i]->run->on_worker = CALL_NOT_INLINE;
        if (answered) {
            calls[n_answered++] = calls[i];
            version_leave(calls[i]->run->version); /* before delivery, so that gauges read there are
                                                 right */
        }
    }
    for (size_t i = 0; i < n_answered; i++) {
        call_deliver(calls[i]);
    }
}

/* Returns: the duration. The calls may be freed. */
static uint64_t run_batch(struct instance *instance, struct call **calls, size_t n,
                          struct exec_time_stats *times, uint64_t started_ns) {
    uint64_t rows = times ? batch_rows(calls, n) : 0;
    struct exec_thread_use use = exec_time_stats_begin(times);
    struct loop_work *work = &worker_loop_iteration(calls[0]->worker)->work;
    metric_add(METRIC_INLINE_EXECUTIONS_TOTAL, 1);
    for (size_t i = 0; i < n; i++) {
        calls[i]->run->on_worker = CALL_RUNS_INLINE;
        call_set_state(calls[i], CALL_RUNNING);
    }
    loop_work_set(work, instance->version->work_name);
    instance_execute(instance, calls, n, started_ns);
    loop_work_clear(work);
    const struct call *last = calls[n - 1];
    uint64_t ended_ns =
        last->run->on_worker == CALL_ANSWERED_INLINE ? last->finished_ns : clock_now_ns();
    instance_executed(instance, ended_ns);
    instance_release(instance);
    if (times) {
        exec_time_stats_add(times, ended_ns - started_ns, rows, &use);
    }
    calls_finish(calls, n);
    return ended_ns - started_ns;
}

static void count_time(struct loop_iteration *iteration, const struct model_version *version,
                       uint64_t ns) {
    iteration->spent_ns += ns;
    loop_iteration_note(iteration, version->work_text, ns);
}

/* ---- end of the event-loop iteration --------------------------------------------------------- */

/* Moves all calls to the scheduler's queue, for its instances. */
static size_t move_to_scheduler(struct inline_queue *inline_queue) {
    size_t n = inline_queue->queue.n, n_queued = 0;
    /* A refused call may cancel others of its connection. */
    for (size_t i = 0; i < n && inline_queue->queue.n > 0; i++) {
        struct call *call = TAILQ_FIRST(&inline_queue->queue.calls);
        priority_queue_remove(&inline_queue->queue, call);
        n_queued += call_enqueue(call);
    }
    scheduler_notify(&inline_queue->version->scheduler, n_queued);
    return n;
}

/* Runs one batch, expires one call, or moves all calls to the scheduler when no instance is free or
 * the iteration's time is spent. Returns: how many calls left the queue. */
static size_t run_next_batch(struct inline_queue *inline_queue) {
    struct model_version *version = inline_queue->version;
    struct call *batch[INSTANCE_REQUESTS_MAX];
    struct call *first = TAILQ_FIRST(&inline_queue->queue.calls);
    uint64_t now_ns = clock_now_ns();
    if (queue_deadline_passed(&first->run->queue_deadline, now_ns)) {
        priority_queue_remove(&inline_queue->queue, first);
        call_set_state(first, CALL_ANSWERED);
        call_expire(first);
        return 1;
    }
    /* What was learned since the call was queued may have changed the answer. */
    struct instance *instance =
        may_run_inline(first) && iteration_has_time(inline_queue) ? claim_instance(version) : NULL;
    if (!instance) {
        return move_to_scheduler(inline_queue);
    }
    struct exec_time_stats *times = times_of(first);
    struct batch_rules rules = version->scheduler.rules;
    uint64_t max_rows = times ? exec_time_stats_max_rows(times) : UINT64_MAX; /* on a worker */
    rules.max_rows = rules.max_rows < max_rows ? rules.max_rows : max_rows;   /* 0 stays */
    size_t n =
        batch_take(&rules, &inline_queue->queue, first, batch, INSTANCE_REQUESTS_MAX, now_ns);
    count_time(inline_queue->iteration, version, run_batch(instance, batch, n, times, now_ns));
    return n;
}

/* Returns: whether a model that runs only on workers gives the loop to other events. */
static bool is_iteration_over(const struct inline_queue *inline_queue) {
    return inline_queue->version->run_on == RUN_ON_WORKER &&
           inline_queue->iteration->spent_ns >= LOOP_EVENTS_NS;
}

/* Runs the calls collected so far. Calls that their answers trigger wait for the next iteration, so
 * that the worker handles other events in between. */
static bool on_iteration_end(struct deferred_task *task) {
    struct inline_queue *inline_queue = CONTAINER_OF(task, struct inline_queue, on_iteration_end);
    struct model_version *version = inline_queue->version;
    size_t left = inline_queue->queue.n;
    inline_queue->running = true;
    while (left > 0 && inline_queue->queue.n > 0) { /* a cancelled call has been removed */
        size_t n = run_next_batch(inline_queue);
        left = n < left && !is_iteration_over(inline_queue) ? left - n : 0;
    }
    inline_queue->running = false;
    if (inline_queue->queue.n > 0) {
        return true;
    }
    model_version_unref(version);
    return false;
}

/* ---- queueing -------------------------------------------------------------------------------- */

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
    struct per_worker *one = per_worker_find(&call->run->version->inline_queues, call->worker);
    return one ? (struct inline_queue *)(void *)one
               : inline_queue_new(call->run->version, call->worker);
}

/* Runs the call now, because its answer is sent together with others of its connection. Returns:
 * false when it has to wait. */
static bool run_immediately(struct inline_queue *inline_queue, struct call *call) {
    bool may_run = inline_queue->queue.n == 0 && iteration_has_time(inline_queue) &&
                   !is_iteration_over(inline_queue);
    struct instance *instance = may_run ? claim_instance(inline_queue->version) : NULL;
    if (!instance) {
        return false;
    }
    /* The lookup in the response cache takes a while, and ended at finished_ns. */
    uint64_t started_ns = call->cached == CALL_CACHE_MISS ? call->finished_ns : call->queued_ns;
    count_time(inline_queue->iteration, inline_queue->version,
               run_batch(instance, &call, 1, times_of(call), started_ns));
    return true;
}

bool call_run_inline(struct call *call) {
    struct inline_queue *inline_queue = may_run_inline(call) ? inline_queue_get(call) : NULL;
    if (!inline_queue || !scheduler_is_empty(&call->run->version->scheduler)) {
        return false;
    }
    if (call->run_immediately && run_immediately(inline_queue, call)) {
        return true;
    }
    call_set_state(call, CALL_INLINE_QUEUED);
    priority_queue_add(&inline_queue->queue, call);
    if (!inline_queue->running) {
        if (!inline_queue->on_iteration_end.queued) {
            model_version_ref(inline_queue->version); /* the calls may be freed earlier */
            loop_iteration_defer(inline_queue->iteration, &inline_queue->on_iteration_end);
        }
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
