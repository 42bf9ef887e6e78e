/* Places of a step, and the steps that wait for one. */
#include "serve/ensemble/limit.h"

void limit_init(struct limit *limit, uint64_t max) {
    lock_init(&limit->lock);
    TAILQ_INIT(&limit->waiters);
    limit->n_taken = 0;
    limit->max = max;
}

void limit_fini(struct limit *limit) {
    lock_fini(&limit->lock);
}

bool limit_take(struct limit *limit, struct limit_waiter *waiter) {
    lock_acquire(&limit->lock);
    bool taken = limit->n_taken < limit->max;
    if (taken) {
        limit->n_taken++;
    } else {
        waiter->is_waiting = true;
        TAILQ_INSERT_TAIL(&limit->waiters, waiter, link);
    }
    lock_release(&limit->lock);
    return taken;
}

bool limit_cancel(struct limit *limit, struct limit_waiter *waiter) {
    lock_acquire(&limit->lock);
    bool waited = waiter->is_waiting;
    if (waited) {
        TAILQ_REMOVE(&limit->waiters, waiter, link);
        waiter->is_waiting = false;
    }
    lock_release(&limit->lock);
    return waited;
}

void limit_give(struct limit *limit) {
    lock_acquire(&limit->lock);
    struct limit_waiter *next = TAILQ_FIRST(&limit->waiters);
    if (next) { /* which has the place from now on */
        TAILQ_REMOVE(&limit->waiters, next, link);
        next->is_waiting = false;
        worker_post(next->worker, &next->msg);
    } else {
        limit->n_taken--;
    }
    lock_release(&limit->lock);
}
