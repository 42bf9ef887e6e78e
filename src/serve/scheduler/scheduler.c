/* The queue of a version under one lock. A push wakes one sleeping thread; awake threads check the
 * queue before they sleep, so a burst costs one wakeup. */
#include "serve/scheduler/scheduler.h"

#include <assert.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/version.h"

void scheduler_init(struct scheduler *scheduler) {
    *scheduler = (struct scheduler){0};
    TAILQ_INIT(&scheduler->queue.calls);
    TAILQ_INIT(&scheduler->order);
    lock_init(&scheduler->lock);
    lock_cond_init(&scheduler->work);
}

enum status scheduler_configure(struct scheduler *scheduler, struct arena *arena,
                                const struct model_config *config, uint64_t limit,
                                struct error *err) {
    scheduler->rules = (struct batch_rules){
        .max_rows = config->max_batch_size,
        .preferred = config->preferred_batch_sizes,
        .n_preferred = config->n_preferred,
    };
    scheduler->preserve_ordering = config->preserve_ordering;
    enum status st = queue_policy_init(arena, config, limit, &scheduler->policy, err);
    if (st == ST_OK) {
        st = priority_queue_init(&scheduler->queue, arena, scheduler->policy.n_levels, err);
    }
    if (st == ST_OK) {
        st = sequences_new(config, (size_t)config->instance_count, &scheduler->sequences, err);
    }
    return st;
}

void scheduler_fini(struct scheduler *scheduler) {
    assert(TAILQ_EMPTY(&scheduler->queue.calls) && TAILQ_EMPTY(&scheduler->order));
    sequences_free(scheduler->sequences);
    lock_cond_fini(&scheduler->work);
    lock_fini(&scheduler->lock);
}

/* ---- preserve_ordering ----------------------------------------------------------------------- */

/* Only once: a call keeps its place. */
static void order_append(struct scheduler *scheduler, struct call *call) {
    lock_assert_held(&scheduler->lock);
    if (call->run->order == CALL_NOT_ORDERED) {
        call->run->order = CALL_IN_ORDER;
        TAILQ_INSERT_TAIL(&scheduler->order, call, run->order_link);
    }
}

/* Posts the answered calls that no earlier call delays. The lock is held, which keeps the order.
 * Returns: how many. */
static size_t post_ready_in_order(struct scheduler *scheduler) {
    size_t n = 0;
    struct call *call;
    while ((call = TAILQ_FIRST(&scheduler->order)) && call->run->order == CALL_READY_IN_ORDER) {
        TAILQ_REMOVE(&scheduler->order, call, run->order_link);
        worker_post(call->worker, &call->run->msg);
        n++;
    }
    return n;
}

/* Returns: how many calls are posted that the call has delayed. */
static size_t order_remove(struct scheduler *scheduler, struct call *call) {
    lock_assert_held(&scheduler->lock);
    call->run->order = CALL_NOT_ORDERED;
    TAILQ_REMOVE(&scheduler->order, call, run->order_link);
    return post_ready_in_order(scheduler);
}

static void version_leave_times(struct model_version *version, size_t n) {
    for (; n > 0; n--) {
        version_leave(version);
    }
}

void scheduler_enter_order(struct scheduler *scheduler, struct call *call) {
    lock_acquire(&scheduler->lock);
    order_append(scheduler, call);
    lock_release(&scheduler->lock);
}

void scheduler_leave_order(struct scheduler *scheduler, struct call *call) {
    lock_acquire(&scheduler->lock);
    size_t n = order_remove(scheduler, call);
    lock_release(&scheduler->lock);
    version_leave_times(call->run->version, n);
}

void scheduler_complete_in_order(struct scheduler *scheduler, struct call *call) {
    struct model_version *version = call->run->version;
    lock_acquire(&scheduler->lock);
    order_append(scheduler, call);
    call->run->order = CALL_READY_IN_ORDER;
    size_t n = post_ready_in_order(scheduler);
    lock_release(&scheduler->lock);
    version_leave_times(version, n); /* the version must not be used after this */
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void wake_promoted(struct scheduler *scheduler) {
    if (scheduler->sequences && scheduler->sequences->promoted) {
        scheduler->sequences->promoted = false;
        lock_cond_broadcast(&scheduler->work);
    }
}

/* Moves the calls that follow `call` in its sequence from the queue to `followers`, which is
 * empty; linked by sequence_link. */
static void remove_followers(struct scheduler *scheduler, struct call *call,
                             struct call_list *followers) {
    struct call *follower;
    if (!call->run->sequence) {
        return;
    }
    sequences_drop(scheduler->sequences, call, clock_now_ns(), followers);
    TAILQ_FOREACH(follower, followers, run->sequence_link) {
        priority_queue_remove(&scheduler->queue, follower);
        call_set_state(follower, CALL_RUNNING); /* prevents a concurrent cancellation */
    }
    wake_promoted(scheduler);
}

/* Fails the followers of a call that was removed and must not be used. */
static void fail_followers(struct call_list *followers, bool cancelled) {
    struct call *follower;
    while ((follower = TAILQ_FIRST(followers))) {
        TAILQ_REMOVE(followers, follower, run->sequence_link);
        error_set(&follower->response.error, cancelled ? ST_CANCELLED : ST_QUEUE_TIMEOUT,
                  "an earlier request of its sequence %s",
                  cancelled ? "was cancelled" : "timed out in the queue");
        metric_add(cancelled ? METRIC_DROPPED_CANCELLED : METRIC_DROPPED_QUEUE_TIMEOUT, 1);
        call_complete(follower);
    }
}

bool scheduler_is_due_for_instance(struct scheduler *scheduler, size_t instance, uint64_t now_ns,
                                   uint64_t *until_ns) {
    lock_assert_held(&scheduler->lock);
    uint64_t reap_ns = sequences_expire_idle(scheduler->sequences, now_ns);
    bool due =
        sequences_are_due(scheduler->sequences, &scheduler->rules, instance, now_ns, until_ns);
    due = due || (scheduler->no_delay && *until_ns < UINT64_MAX); /* it waits for its delay */
    *until_ns = reap_ns < *until_ns ? reap_ns : *until_ns;
    wake_promoted(scheduler);
    return due;
}

void scheduler_executed(struct scheduler *scheduler, size_t instance, uint64_t now_ns) {
    lock_assert_held(&scheduler->lock);
    sequences_executed(scheduler->sequences, instance, now_ns);
    wake_promoted(scheduler);
}

void scheduler_sequence_resume(struct scheduler *scheduler, struct call *call) {
    lock_acquire(&scheduler->lock);
    sequences_answered(scheduler->sequences, call, call->finished_ns);
    scheduler->sequences->promoted = false;
    lock_cond_broadcast(&scheduler->work);
    lock_release(&scheduler->lock);
}

static void publish_queue_length(struct scheduler *scheduler) {
    atomic_store_explicit(&scheduler->n_queued, scheduler->queue.n, memory_order_seq_cst);
}

bool scheduler_run_again(struct scheduler *scheduler, struct call *call) {
    struct call_run *run = call->run;
    lock_acquire(&scheduler->lock);
    bool cancelled = atomic_load_explicit(&run->cancelled, memory_order_relaxed);
    if (!cancelled) {
        run->n_iterations++;
        controls_set_continued(&run->version->plan, run->backend_request.inputs,
                               run->backend_request.n_inputs);
        call_set_state(call, CALL_QUEUED);
        priority_queue_add(&scheduler->queue, call);
        publish_queue_length(scheduler);
        sequences_run_again(scheduler->sequences, call, clock_now_ns());
        scheduler->sequences->promoted = false;
        lock_cond_broadcast(&scheduler->work);
    }
    lock_release(&scheduler->lock);
    return !cancelled;
}

/* ---- queueing -------------------------------------------------------------------------------- */

/* Idle instances: as many queued calls are about to be taken by a thread that is waking up. 0
 * while the calls wait for their batch delay, and with sequences, whose calls are bound to an
 * instance. */
static size_t count_taken_soon(struct scheduler *scheduler, const struct call *call) {
    const struct model_version *version = call->run->version;
    size_t n = 0;
    uint64_t until_ns;
    bool due = !scheduler->sequences &&
               scheduler_is_due(scheduler, INSTANCE_REQUESTS_MAX, call->queued_ns, &until_ns);
    for (size_t i = 0; i < version->n_instances && due; i++) {
        n += !atomic_load_explicit(&version->instances[i].busy, memory_order_relaxed);
    }
    return n;
}

/* Returns: whether the queue limit for that level is reached. *waiting: the calls that count
 * against it. */
static bool queue_is_full(struct scheduler *scheduler, const struct call *call, size_t *waiting) {
    const struct queue_policy *policy = &scheduler->policy;
    size_t level = call->run->queue_deadline.level;
    uint64_t own = policy->levels[level].max_size;
    uint64_t limit = own > 0 ? own : policy->limit;
    *waiting = own > 0 ? priority_queue_count_level(&scheduler->queue, level) : scheduler->queue.n;
    if (scheduler->sequences) { /* calls of sequences without a slot don't count for those with
                                   one */
        size_t n_backlog_calls = scheduler->sequences->n_backlog_calls;
        bool homeless = sequences_must_wait_for_slot(scheduler->sequences, call);
        size_t n_with_slot = scheduler->queue.n - n_backlog_calls;
        *waiting =
            homeless ? n_backlog_calls : n_with_slot - scheduler->sequences->n_continued_calls;
    }
    return limit > 0 && *waiting >= limit && *waiting - limit >= count_taken_soon(scheduler, call);
}

static enum status check_queue_size(struct scheduler *scheduler, const struct call *call,
                                    struct error *err) {
    size_t waiting;
    if (queue_is_full(scheduler, call, &waiting)) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_QUEUE_FULL,
                         "Exceeds maximum queue size: the queue of model %s is full: %zu %s "
                         "already (max_queue_size in its "
                         "configuration, or --max-queue-size)",
                         quote_name(call->run->version->plan.spec.name, name), waiting,
                         waiting == 1 ? "request waits" : "requests wait");
    }
    return ST_OK;
}

/* A refused call leaves its sequence unchanged. Sets `restarts`: the call is a start in a sequence
 * that is open. */
static enum status admit_call(struct scheduler *scheduler, struct call *call, bool *restarts,
                              struct error *err) {
    struct sequences *sequences = scheduler->sequences;
    enum status st = ST_OK;
    if (sequences) {
        sequences_expire_idle(sequences, call->queued_ns);
        st = sequences_find(sequences, call, err);
    }
    if (st == ST_OK) {
        st = check_queue_size(scheduler, call, err);
    }
    *restarts = sequences && call->run->sequence && call->run->sequence_params.start;
    return st == ST_OK && sequences ? sequences_add(sequences, call, err) : st;
}

enum status scheduler_push(struct scheduler *scheduler, struct call *call, struct error *err) {
    /* once the lock is released, the call may end at any time */
    struct sequence_id sequence = call->run->sequence_params.id;
    const struct model_version *version = call->run->version;
    bool restarts;
    lock_acquire(&scheduler->lock);
    assert(!scheduler->stopping);
    enum status st = admit_call(scheduler, call, &restarts, err);
    if (st == ST_OK) {
        call_set_state(call, CALL_QUEUED);
        priority_queue_add(&scheduler->queue, call);
        publish_queue_length(scheduler);
        if (scheduler->preserve_ordering) {
            order_append(scheduler, call);
        }
    }
    wake_promoted(scheduler);
    lock_release(&scheduler->lock);
    if (st == ST_OK && restarts) {
        char id[SEQUENCE_ID_TEXT_BYTES];
        sequence_id_print(&sequence, id);
        log_event(LOG_WARNING, "sequence_start for a sequence that is open: it is restarted",
                  LOG_STR("model", version->plan.spec.name), LOG_CSTR("sequence", id));
    }
    return st;
}

/* Without the lock, which woken threads would block on. */
void scheduler_notify(struct scheduler *scheduler, size_t n) {
    if (n > 1 || (n > 0 && scheduler->sequences)) { /* sequences: an instance's own thread
                                                       must wake up */
        lock_cond_broadcast(&scheduler->work);
    } else if (n == 1) {
        lock_cond_signal(&scheduler->work);
    }
}

static bool is_queued(struct scheduler *scheduler, struct call *call) {
    lock_assert_held(&scheduler->lock);
    return call_state(call) == CALL_QUEUED;
}

/* `expired`: not one that has run before. */
static bool remove_call(struct scheduler *scheduler, struct call *call, bool expired) {
    struct model_version *version = call->run->version;
    struct call_list followers = TAILQ_HEAD_INITIALIZER(followers);
    size_t n_sent = 0;
    lock_acquire(&scheduler->lock);
    bool queued = is_queued(scheduler, call) && !(expired && call->run->n_iterations > 0);
    if (queued) {
        priority_queue_remove(&scheduler->queue, call);
        remove_followers(scheduler, call, &followers);
        publish_queue_length(scheduler);
        call_set_state(call, CALL_ANSWERED);
        if (scheduler->preserve_ordering) {
            n_sent = order_remove(scheduler, call);
        }
    }
    lock_release(&scheduler->lock);
    version_leave_times(version, n_sent);
    fail_followers(&followers, atomic_load_explicit(&call->run->cancelled, memory_order_relaxed));
    return queued;
}

bool scheduler_remove(struct scheduler *scheduler, struct call *call) {
    return remove_call(scheduler, call, false);
}

bool scheduler_remove_expired(struct scheduler *scheduler, struct call *call) {
    return remove_call(scheduler, call, true);
}

bool scheduler_deprioritize(struct scheduler *scheduler, struct call *call) {
    lock_acquire(&scheduler->lock);
    bool queued = is_queued(scheduler, call) && call->run->n_iterations == 0;
    if (queued) {
        priority_queue_remove(&scheduler->queue, call);
        call->run->queue_deadline.deprioritized = true;
        priority_queue_add(&scheduler->queue, call);
        lock_cond_signal(&scheduler->work); /* those before it may have a preferred size now */
    }
    lock_release(&scheduler->lock);
    return queued;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The first call that has not expired; expired ones are removed by their workers' timers. Returns:
 * NULL: none. */
static struct call *first_in_time(struct scheduler *scheduler, uint64_t now_ns) {
    lock_assert_held(&scheduler->lock);
    struct call *call = TAILQ_FIRST(&scheduler->queue.calls);
    while (call && queue_deadline_passed(&call->run->queue_deadline, now_ns)) {
        call = TAILQ_NEXT(call, run->queue_link);
    }
    return call;
}

bool scheduler_is_due(struct scheduler *scheduler, size_t max, uint64_t now_ns,
                      uint64_t *until_ns) {
    const struct call *head = first_in_time(scheduler, now_ns);
    *until_ns = UINT64_MAX;
    if (!head) {
        return false;
    }
    if (head->run->queue_deadline.batch_wait_until_ns <= now_ns || scheduler->no_delay) {
        return true;
    }
    struct batch_candidate candidate = batch_preview(&scheduler->rules, head, max, now_ns);
    if (candidate.full || candidate.until_ns <= now_ns) {
        return true; /* without an idle instance no timer is needed: instance_release wakes a
                        thread */
    }
    *until_ns = candidate.until_ns;
    return false;
}

size_t scheduler_take(struct scheduler *scheduler, struct call **batch, size_t max,
                      uint64_t now_ns) {
    struct call *head = first_in_time(scheduler, now_ns);
    if (!head || max == 0) {
        return 0;
    }
    size_t n = batch_take(&scheduler->rules, &scheduler->queue, head, batch, max, now_ns);
    for (size_t i = 0; i < n; i++) {
        call_set_state(batch[i], CALL_RUNNING);
    }
    publish_queue_length(scheduler);
    return n;
}

size_t scheduler_take_for_instance(struct scheduler *scheduler, size_t instance,
                                   struct call **batch, uint64_t now_ns) {
    size_t n = sequences_take(scheduler->sequences, &scheduler->rules, instance, batch, now_ns);
    for (size_t i = 0; i < n; i++) {
        if (batch[i]) {
            priority_queue_remove(&scheduler->queue, batch[i]);
            call_set_state(batch[i], CALL_RUNNING);
        }
    }
    publish_queue_length(scheduler);
    return n;
}

/* ---- wakeup ---------------------------------------------------------------------------------- */

void scheduler_wake(struct scheduler *scheduler) {
    lock_acquire(&scheduler->lock);
    lock_cond_signal(&scheduler->work);
    lock_release(&scheduler->lock);
}

void scheduler_end_delays(struct scheduler *scheduler) {
    lock_acquire(&scheduler->lock);
    scheduler->no_delay = true;
    lock_cond_broadcast(&scheduler->work);
    lock_release(&scheduler->lock);
}

void scheduler_stop(struct scheduler *scheduler) {
    lock_acquire(&scheduler->lock);
    assert(TAILQ_EMPTY(&scheduler->queue.calls));
    scheduler->stopping = true;
    lock_cond_broadcast(&scheduler->work);
    lock_release(&scheduler->lock);
}
