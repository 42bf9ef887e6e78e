/* First in, first out but for those who share a batch, under one lock. Whoever pushes wakes one
 * sleeping thread; threads that are awake look at the queue by themselves before they sleep, so a
 * burst costs one wake. */
#include "model/scheduler.h"

#include <assert.h>

#include "model/call_state.h"
#include "model/version.h"

void scheduler_init(struct scheduler *scheduler, size_t limit) {
    *scheduler = (struct scheduler){.limit = limit};
    lock_init(&scheduler->lock);
    lock_cond_init(&scheduler->work);
}

void scheduler_fini(struct scheduler *scheduler) {
    assert(scheduler->head == NULL);
    lock_cond_fini(&scheduler->work);
    lock_fini(&scheduler->lock);
}

static void count(struct scheduler *scheduler, size_t n_queued) {
    atomic_store_explicit(&scheduler->n_queued, n_queued, memory_order_seq_cst);
}

static size_t counted(struct scheduler *scheduler) {
    return atomic_load_explicit(&scheduler->n_queued, memory_order_relaxed);
}

static void unlink_call(struct scheduler *scheduler, struct call *call) {
    if (call->prev) {
        call->prev->next = call->next;
    } else {
        scheduler->head = call->next;
    }
    if (call->next) {
        call->next->prev = call->prev;
    } else {
        scheduler->tail = call->prev;
    }
    call->next = call->prev = NULL;
    count(scheduler, counted(scheduler) - 1);
}

static void append(struct scheduler *scheduler, struct call *call) {
    call_move(call, CALL_QUEUED);
    call->next = NULL;
    call->prev = scheduler->tail;
    if (scheduler->tail) {
        scheduler->tail->next = call;
    } else {
        scheduler->head = call;
    }
    scheduler->tail = call;
    count(scheduler, counted(scheduler) + 1);
}

/* Instances that nobody runs on: as many of the calls in the queue only wait for a thread to wake
 * up and take them. */
static size_t n_idle(struct model_version *version) {
    size_t n = 0;
    for (size_t i = 0; i < version->n_instances; i++) {
        n += !atomic_load_explicit(&version->instances[i].busy, memory_order_relaxed);
    }
    return n;
}

static bool is_full(struct scheduler *scheduler, struct model_version *version) {
    size_t queued = counted(scheduler);
    return scheduler->limit > 0 && queued >= scheduler->limit &&
           queued - scheduler->limit >= n_idle(version);
}

enum status scheduler_push(struct scheduler *scheduler, struct call *call, struct error *err) {
    lock_take(&scheduler->lock);
    assert(!scheduler->ending);
    bool full = is_full(scheduler, call->version);
    if (!full) {
        append(scheduler, call);
    }
    lock_drop(&scheduler->lock);
    if (!full) {
        lock_wake_one(&scheduler->work); /* not before the drop: it would wake into a taken lock */
    } else {
        char name[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_QUEUE_FULL,
                         "the queue of model %s is full: %zu requests wait already (max_queue_size "
                         "in its configuration, or --max-queue-size)",
                         tensor_name_print(call->version->plan.spec.name, name), scheduler->limit);
    }
    return ST_OK;
}

bool scheduler_remove(struct scheduler *scheduler, struct call *call) {
    lock_take(&scheduler->lock);
    bool queued = call_state(call) == CALL_QUEUED;
    if (queued) {
        unlink_call(scheduler, call);
        call_move(call, CALL_ANSWERED);
    }
    lock_drop(&scheduler->lock);
    return queued;
}

bool scheduler_is_due(struct scheduler *scheduler, uint64_t now_ns, uint64_t *until_ns) {
    lock_assert_held(&scheduler->lock);
    const struct call *head = scheduler->head;
    *until_ns = UINT64_MAX;
    if (!head) {
        return false;
    }
    if (scheduler->rules.delay_ns == 0 || now_ns - head->queued_ns >= scheduler->rules.delay_ns ||
        batch_offer(&scheduler->rules, head, SIZE_MAX).full) {
        return true;
    }
    *until_ns = head->queued_ns + scheduler->rules.delay_ns;
    return false;
}

static void take(struct scheduler *scheduler, struct call *call) {
    unlink_call(scheduler, call);
    call_move(call, CALL_RUNNING);
}

size_t scheduler_take(struct scheduler *scheduler, struct call **batch, size_t max) {
    lock_assert_held(&scheduler->lock);
    struct call *head = scheduler->head;
    if (!head || max == 0) {
        return 0;
    }
    size_t wanted = batch_offer(&scheduler->rules, head, max).n_calls, n = 0;
    struct call *call = head->next;
    take(scheduler, head);
    batch[n++] = head;
    while (n < wanted) { /* they are there: the offer was made under this same lock */
        struct call *next = call->next;
        if (batch_can_share(head, call)) {
            take(scheduler, call);
            batch[n++] = call;
        }
        call = next;
    }
    return n;
}

void scheduler_wake(struct scheduler *scheduler) {
    lock_take(&scheduler->lock);
    lock_wake_one(&scheduler->work);
    lock_drop(&scheduler->lock);
}

void scheduler_end(struct scheduler *scheduler) {
    lock_take(&scheduler->lock);
    assert(scheduler->head == NULL);
    scheduler->ending = true;
    lock_wake_all(&scheduler->work);
    lock_drop(&scheduler->lock);
}
