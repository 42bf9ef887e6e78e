/* What a worker has put off of one version, in the order in which an instance would take it, and
 * the end of the turn, which comes sooner when enough is put off: batch after batch, until models
 * have taken as long as one slow execution may. A call that is alone in its turn is begun right
 * after it was read, without another look at the kernel or another thread. */
#include "serve/scheduler/call_here.h"

#include <stdlib.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/version.h"

/* One worker's of one version. */
struct here {
    struct by_worker by_worker;
    struct turn_task at_end;
    struct model_version *version;
    struct turn *turn;
    struct queue queue;
    uint64_t enough; /* calls for a turn */
    bool running;    /* the end of the turn is at work on it */
    struct queue_class classes[];
};

/* ---- may it? --------------------------------------------------------------------------------- */

static bool is_cheap(const struct call *call) {
    const struct model_version *version = call->version;
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

/* Has this turn time for another execution? Who chose the worker by hand has chosen. */
static bool has_time(const struct here *here) {
    return here->version->run_on == RUN_ON_WORKER || here->turn->spent_ns < PACE_SLOW_NS;
}

/* An instance for what is put off. Whoever waits in the queue goes first. */
static struct instance *claim(struct model_version *version) {
    return scheduler_is_empty(&version->scheduler) ? instance_claim(version) : NULL;
}

/* How many calls may share an execution. */
static size_t most_together(struct model_version *version) {
    size_t most = version->run_on == RUN_AUTO ? pace_together(&version->pace) : SIZE_MAX;
    return most < INSTANCE_REQUESTS_MAX ? most : INSTANCE_REQUESTS_MAX;
}

/* As many of one version are enough for a turn. More in a batch win little, while what each has
 * brought, down to its socket, goes out of the nearer caches before its answer is written: 128
 * clients of a small model get a sixth more when their calls run by sixteens. */
enum { ENOUGH_CALLS = 16 };

/* Where the configuration prefers larger batches they are waited for. */
static uint64_t enough_of(const struct batch_rules *rules) {
    uint64_t enough = ENOUGH_CALLS;
    for (size_t i = 0; i < rules->n_preferred; i++) {
        enough = rules->preferred[i] > enough ? rules->preferred[i] : enough;
    }
    return enough;
}

/* ---- running --------------------------------------------------------------------------------- */

static void begin(struct call *const *calls, size_t n) {
    metric_add(METRIC_INLINE_EXECUTIONS_TOTAL, 1);
    for (size_t i = 0; i < n; i++) {
        calls[i]->on_worker = true;
        call_move(calls[i], CALL_RUNNING);
    }
}

/* Hands over those that were answered meanwhile; the others come back as messages. Only this thread
 * could run those, so all are still there. */
static void finish(struct call **calls, size_t n) {
    size_t n_answered = 0;
    for (size_t i = 0; i < n; i++) {
        calls[i]->on_worker = false;
        if (calls[i]->answered) {
            calls[n_answered++] = calls[i];
            version_leave(calls[i]->version); /* first: an answer may say how many run */
        }
    }
    for (size_t i = 0; i < n_answered; i++) {
        call_finish(calls[i]);
    }
}

/* Returns: how long it took. The calls may be gone. */
static uint64_t run(struct instance *instance, struct call **calls, size_t n, uint64_t started_ns) {
    struct model_version *version = instance->version;
    begin(calls, n);
    instance_execute(instance, calls, n, started_ns);
    const struct call *last = calls[n - 1];
    uint64_t ended_ns = last->answered ? last->finished_ns : clock_now_ns();
    instance_executed(instance, ended_ns);
    instance_release(instance);
    if (version->run_on == RUN_AUTO) {
        pace_add(&version->pace, ended_ns - started_ns, n);
    }
    finish(calls, n);
    return ended_ns - started_ns;
}

/* ---- at the end of a turn -------------------------------------------------------------------- */

/* All that is put off now: instances take it as it is in the queue. */
static size_t hand_over(struct here *here) {
    size_t n = here->queue.n, n_queued = 0;
    /* A call that is refused may take others with it: those of its connection. */
    for (size_t i = 0; i < n && here->queue.first; i++) {
        struct call *call = here->queue.first;
        queue_remove(&here->queue, call);
        n_queued += call_enqueue(call);
    }
    scheduler_notify(&here->version->scheduler, n_queued);
    return n;
}

/* One execution, or the end of one call that is late, or of the turn's time. Returns: how many
 * calls are put off no longer. */
static size_t step(struct here *here) {
    struct model_version *version = here->version;
    struct call *batch[INSTANCE_REQUESTS_MAX];
    struct call *first = here->queue.first;
    uint64_t now_ns = clock_now_ns();
    if (patience_is_over(&first->patience, now_ns)) {
        queue_remove(&here->queue, first);
        call_move(first, CALL_ANSWERED);
        call_drop_late(first);
        return 1;
    }
    struct instance *instance = has_time(here) ? claim(version) : NULL;
    if (!instance) {
        return hand_over(here);
    }
    size_t n = batch_take(&version->scheduler.rules, &here->queue, first, batch,
                          most_together(version), now_ns);
    here->turn->spent_ns += run(instance, batch, n, now_ns);
    return n;
}

/* For the end of the turn. Until it has come the version is held: the calls may be gone by then. */
static void ask(struct here *here) {
    if (!here->at_end.asked) {
        model_version_ref(here->version);
        turn_ask(here->turn, &here->at_end);
    }
}

/* What is put off now. Its answers may bring more calls: those have to wait, so that the worker
 * comes to something else in between. */
static void at_end(struct turn_task *task) {
    struct here *here = (struct here *)(void *)((char *)task - offsetof(struct here, at_end));
    struct model_version *version = here->version;
    size_t left = here->queue.n;
    here->running = true;
    while (left > 0 && here->queue.first) { /* who is cancelled meanwhile is not there any more */
        size_t n = step(here);
        left = n < left ? left - n : 0;
    }
    here->running = false;
    if (here->queue.first) {
        ask(here);
    }
    model_version_unref(version);
}

/* ---- in and out ------------------------------------------------------------------------------ */

static struct here *here_new(struct model_version *version, struct worker *worker) {
    size_t n_levels = version->scheduler.queue.n_levels;
    struct here *here = calloc(1, sizeof(*here) + 2 * n_levels * sizeof(here->classes[0]));
    if (here) {
        here->at_end.run = at_end;
        here->version = version;
        here->turn = worker_turn(worker);
        here->enough = enough_of(&version->scheduler.rules);
        here->queue = (struct queue){.classes = here->classes, .n_levels = n_levels};
        by_worker_add(&version->here, worker, &here->by_worker);
    }
    return here;
}

/* Returns: NULL when out of memory. */
static struct here *here_of(const struct call *call) {
    struct by_worker *one = by_worker_find(&call->version->here, call->worker);
    return one ? (struct here *)(void *)one : here_new(call->version, call->worker);
}

/* Its answer is to leave with others of its connection, which are being read: nothing is won by
 * waiting. Returns: false when it has to wait after all. */
static bool run_at_once(struct here *here, struct call *call) {
    struct instance *instance = here->queue.n == 0 && has_time(here) ? claim(here->version) : NULL;
    if (!instance) {
        return false;
    }
    here->turn->spent_ns += run(instance, &call, 1, call->queued_ns);
    return true;
}

bool call_here(struct call *call) {
    struct here *here = is_cheap(call) ? here_of(call) : NULL;
    if (!here || !scheduler_is_empty(&call->version->scheduler)) {
        return false;
    }
    if (call->at_once && run_at_once(here, call)) {
        return true;
    }
    call_move(call, CALL_PUT_OFF);
    queue_add(&here->queue, call);
    if (!here->running) {
        ask(here);
        here->turn->full = here->turn->full || here->queue.n >= here->enough;
    }
    return true;
}

void call_here_remove(struct call *call) {
    struct here *here = here_of(call);
    queue_remove(&here->queue, call);
    call_move(call, CALL_ANSWERED);
}
