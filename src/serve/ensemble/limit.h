/* max_inflight_requests: how many inferences of one step run at a time, over all calls of the
 * ensemble. A step that finds no place waits in order, on whatever worker its call is; meanwhile
 * its inputs are held, so that a decoupled member before it is slowed. */
#ifndef SLUICE_SERVE_ENSEMBLE_LIMIT_H
#define SLUICE_SERVE_ENSEMBLE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/event/lock.h"
#include "core/event/worker.h"

/* Waits for a place. Zeroed, it does not wait. */
struct limit_waiter {
    struct worker *worker;
    struct worker_msg msg; /* posted when it has a place: `msg.run` is called on the worker */
    TAILQ_ENTRY(limit_waiter) link;
    bool is_waiting; /* under the lock */
};

/* The places of one step. */
struct limit {
    struct lock lock;
    TAILQ_HEAD(, limit_waiter) waiters;
    uint64_t n_taken, max;
};

void limit_init(struct limit *limit, uint64_t max);
void limit_fini(struct limit *limit);
/* Returns: whether a place was taken; else the waiter waits, and is told when it has one. Thread:
 * any. */
bool limit_take(struct limit *limit, struct limit_waiter *waiter);
/* Ends the wait. Returns: false when it has a place already, of which it is told. Thread: any. */
bool limit_cancel(struct limit *limit, struct limit_waiter *waiter);
/* Gives a place back, to the first that waits. Thread: any. */
void limit_give(struct limit *limit);

#endif
