/* The queue of a version under one lock. Whoever pushes wakes a sleeping thread; threads that are
 * awake look at the queue by themselves before they sleep, so a burst costs one wake. */
#include "serve/scheduler/scheduler.h"

#include <assert.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "serve/scheduler/call_state.h"
#include "serve/scheduler/version.h"

void scheduler_init(struct scheduler *scheduler) {
    *scheduler = (struct scheduler){0};
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
    scheduler->in_order = config->preserve_ordering;
    enum status st = policy_make(arena, config, limit, &scheduler->policy, err);
    if (st == ST_OK) {
        st = queue_init(&scheduler->queue, arena, scheduler->policy.n_levels, err);
    }
    if (st == ST_OK) {
        st = sequences_new(config, (size_t)config->instance_count, &scheduler->sequences, err);
    }
    return st;
}

void scheduler_fini(struct scheduler *scheduler) {
    assert(scheduler->queue.first == NULL && scheduler->first_out == NULL);
    sequences_free(scheduler->sequences);
    lock_cond_fini(&scheduler->work);
    lock_fini(&scheduler->lock);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void stand_in_order(struct scheduler *scheduler, struct call *call) {
    call->before = scheduler->last_out;
    call->behind = NULL;
    call->in_order = true;
    if (scheduler->last_out) {
        scheduler->last_out->behind = call;
    } else {
        scheduler->first_out = call;
    }
    scheduler->last_out = call;
}

static void leave_order(struct scheduler *scheduler, struct call *call) {
    if (call->before) {
        call->before->behind = call->behind;
    } else {
        scheduler->first_out = call->behind;
    }
    if (call->behind) {
        call->behind->before = call->before;
    } else {
        scheduler->last_out = call->before;
    }
}

/* Sends all that wait for nobody any more. The lock is held, so that nobody else sends meanwhile.
 * Returns: how many. */
static size_t send_ready(struct scheduler *scheduler) {
    size_t n = 0;
    while (scheduler->first_out && scheduler->first_out->may_leave) {
        struct call *call = scheduler->first_out;
        leave_order(scheduler, call);
        worker_post(call->worker, &call->msg);
        n++;
    }
    return n;
}

static void leave_version(struct model_version *version, size_t n) {
    for (; n > 0; n--) {
        version_leave(version);
    }
}

static void send_in_order(struct scheduler *scheduler, struct call *call, bool stands) {
    struct model_version *version = call->version;
    lock_take(&scheduler->lock);
    if (!stands) {
        stand_in_order(scheduler, call);
    }
    call->may_leave = true;
    size_t n = send_ready(scheduler);
    lock_drop(&scheduler->lock);
    leave_version(version, n); /* the last that this thread touches of it */
}

void scheduler_send_in_order(struct scheduler *scheduler, struct call *call) {
    send_in_order(scheduler, call, true);
}

void scheduler_pass_in_order(struct scheduler *scheduler, struct call *call) {
    send_in_order(scheduler, call, false);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void wake_promoted(struct scheduler *scheduler) {
    if (scheduler->sequences && scheduler->sequences->promoted) {
        scheduler->sequences->promoted = false;
        lock_wake_all(&scheduler->work);
    }
}

/* Takes those that follow `call` in its sequence out of the queue. Returns: the first of them. */
static struct call *take_followers(struct scheduler *scheduler, struct call *call) {
    if (!call->sequence) {
        return NULL;
    }
    struct call *first = sequences_drop(scheduler->sequences, call, clock_now_ns());
    for (struct call *follower = first; follower; follower = follower->later) {
        queue_remove(&scheduler->queue, follower);
        call_move(follower, CALL_RUNNING); /* so that nobody else ends it */
    }
    wake_promoted(scheduler);
    return first;
}

/* Ends them: `call`, which may not be looked at any more, was given up. */
static void end_followers(struct call *follower, bool cancelled) {
    while (follower) {
        struct call *next = follower->later;
        follower->later = NULL;
        error_set(&follower->response.error, cancelled ? ST_CANCELLED : ST_QUEUE_TIMEOUT,
                  "a request before it in its sequence %s",
                  cancelled ? "was cancelled" : "waited for longer than it may");
        metric_add(cancelled ? METRIC_DROPPED_CANCELLED : METRIC_DROPPED_QUEUE_TIMEOUT, 1);
        call_answer(follower);
        follower = next;
    }
}

bool scheduler_is_due_at(struct scheduler *scheduler, size_t instance, uint64_t now_ns,
                         uint64_t *until_ns) {
    lock_assert_held(&scheduler->lock);
    uint64_t reap_ns = sequences_reap(scheduler->sequences, now_ns);
    bool due =
        sequences_are_due(scheduler->sequences, &scheduler->rules, instance, now_ns, until_ns);
    *until_ns = reap_ns < *until_ns ? reap_ns : *until_ns;
    wake_promoted(scheduler);
    return due;
}

void scheduler_executed(struct scheduler *scheduler, size_t instance, uint64_t now_ns) {
    lock_assert_held(&scheduler->lock);
    sequences_executed(scheduler->sequences, instance, now_ns);
    wake_promoted(scheduler);
}

void scheduler_sequence_goes_on(struct scheduler *scheduler, struct call *call) {
    lock_take(&scheduler->lock);
    sequences_answered(scheduler->sequences, call, call->finished_ns);
    scheduler->sequences->promoted = false;
    lock_wake_all(&scheduler->work);
    lock_drop(&scheduler->lock);
}

/* ---- in and out ------------------------------------------------------------------------------ */

static void count(struct scheduler *scheduler) {
    atomic_store_explicit(&scheduler->n_queued, scheduler->queue.n, memory_order_seq_cst);
}

/* Instances that nobody runs on: as many of the calls in the queue only wait for a thread to wake
 * up and take them. Not where there are sequences: those have an instance each. */
static size_t n_idle(struct model_version *version) {
    size_t n = 0;
    for (size_t i = 0; i < version->n_instances && !version->scheduler.sequences; i++) {
        n += !atomic_load_explicit(&version->instances[i].busy, memory_order_relaxed);
    }
    return n;
}

/* Is there no room for another call of that level? `waiting`: how many keep it out. */
static bool is_full(struct scheduler *scheduler, const struct call *call, size_t *waiting) {
    const struct policy *policy = &scheduler->policy;
    size_t level = call->patience.level;
    uint64_t own = policy->levels[level].max_size;
    uint64_t limit = own > 0 ? own : policy->limit;
    *waiting = own > 0 ? queue_at_level(&scheduler->queue, level) : scheduler->queue.n;
    if (scheduler->sequences) { /* sequences that have no place keep none from going on */
        size_t n_homeless = scheduler->sequences->n_homeless;
        bool homeless = sequences_lack_place(scheduler->sequences, call);
        *waiting = homeless ? n_homeless : scheduler->queue.n - n_homeless;
    }
    return limit > 0 && *waiting >= limit && *waiting - limit >= n_idle(call->version);
}

static enum status check_room(struct scheduler *scheduler, const struct call *call,
                              struct error *err) {
    size_t waiting;
    if (is_full(scheduler, call, &waiting)) {
        char name[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_QUEUE_FULL,
                         "the queue of model %s is full: %zu requests wait already (max_queue_size "
                         "in its configuration, or --max-queue-size)",
                         tensor_name_print(call->version->plan.spec.name, name), waiting);
    }
    return ST_OK;
}

/* What would be refused leaves its sequence as it is. */
static enum status admit(struct scheduler *scheduler, struct call *call, struct error *err) {
    struct sequences *sequences = scheduler->sequences;
    enum status st = ST_OK;
    if (sequences) {
        sequences_reap(sequences, call->queued_ns);
        st = sequences_find(sequences, call, err);
    }
    if (st == ST_OK) {
        st = check_room(scheduler, call, err);
    }
    return st == ST_OK && sequences ? sequences_add(sequences, call, err) : st;
}

enum status scheduler_push(struct scheduler *scheduler, struct call *call, struct error *err) {
    lock_take(&scheduler->lock);
    assert(!scheduler->ending);
    enum status st = admit(scheduler, call, err);
    if (st == ST_OK) {
        call_move(call, CALL_QUEUED);
        queue_add(&scheduler->queue, call);
        count(scheduler);
        if (scheduler->in_order) {
            stand_in_order(scheduler, call);
        }
    }
    wake_promoted(scheduler);
    lock_drop(&scheduler->lock);
    return st;
}

/* Not under the lock: they would wake into a taken one. */
void scheduler_notify(struct scheduler *scheduler, size_t n) {
    if (n > 1 || (n > 0 && scheduler->sequences)) { /* whose it is is known under the lock only */
        lock_wake_all(&scheduler->work);
    } else if (n == 1) {
        lock_wake_one(&scheduler->work);
    }
}

static bool is_queued(struct scheduler *scheduler, struct call *call) {
    lock_assert_held(&scheduler->lock);
    return call_state(call) == CALL_QUEUED;
}

bool scheduler_remove(struct scheduler *scheduler, struct call *call) {
    struct model_version *version = call->version;
    struct call *followers = NULL;
    size_t n_sent = 0;
    lock_take(&scheduler->lock);
    bool queued = is_queued(scheduler, call);
    if (queued) {
        queue_remove(&scheduler->queue, call);
        followers = take_followers(scheduler, call);
        count(scheduler);
        call_move(call, CALL_ANSWERED);
        if (scheduler->in_order) {
            leave_order(scheduler, call);
            n_sent = send_ready(scheduler);
        }
    }
    lock_drop(&scheduler->lock);
    leave_version(version, n_sent);
    end_followers(followers, atomic_load_explicit(&call->cancelled, memory_order_relaxed));
    return queued;
}

bool scheduler_yield(struct scheduler *scheduler, struct call *call) {
    lock_take(&scheduler->lock);
    bool queued = is_queued(scheduler, call);
    if (queued) {
        queue_remove(&scheduler->queue, call);
        call->patience.yielded = true;
        queue_add(&scheduler->queue, call);
    }
    lock_drop(&scheduler->lock);
    return queued;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* The first call whose time is not over: those before it are about to be dropped by their workers.
 * Returns: NULL: there is none. */
static struct call *first_in_time(struct scheduler *scheduler, uint64_t now_ns) {
    lock_assert_held(&scheduler->lock);
    struct call *call = scheduler->queue.first;
    while (call && patience_is_over(&call->patience, now_ns)) {
        call = call->next;
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
    if (head->patience.linger_ns <= now_ns) {
        return true;
    }
    struct batch_offer offer = batch_offer(&scheduler->rules, head, max, now_ns);
    if (offer.full || offer.until_ns <= now_ns) {
        return true; /* where no instance is idle, who releases one wakes a thread: no time does */
    }
    *until_ns = offer.until_ns;
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
        call_move(batch[i], CALL_RUNNING);
    }
    count(scheduler);
    return n;
}

size_t scheduler_take_at(struct scheduler *scheduler, size_t instance, struct call **batch,
                         uint64_t now_ns) {
    size_t n = sequences_take(scheduler->sequences, &scheduler->rules, instance, batch, now_ns);
    for (size_t i = 0; i < n; i++) {
        if (batch[i]) {
            queue_remove(&scheduler->queue, batch[i]);
            call_move(batch[i], CALL_RUNNING);
        }
    }
    count(scheduler);
    return n;
}

/* ---- waking ---------------------------------------------------------------------------------- */

void scheduler_wake(struct scheduler *scheduler) {
    lock_take(&scheduler->lock);
    lock_wake_one(&scheduler->work);
    lock_drop(&scheduler->lock);
}

void scheduler_end(struct scheduler *scheduler) {
    lock_take(&scheduler->lock);
    assert(scheduler->queue.first == NULL);
    scheduler->ending = true;
    lock_wake_all(&scheduler->work);
    lock_drop(&scheduler->lock);
}
