/* Which calls an idle instance of a model version takes next. Those that wait stand in a queue
 * (priority_queue.h) under one lock; how they are run is instance.c's business, what becomes of
 * those whose time is over call.c's. */
#ifndef SLUICE_SERVE_SCHEDULER_SCHEDULER_H
#define SLUICE_SERVE_SCHEDULER_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "core/event/lock.h"
#include "serve/config/queue_policy.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/call.h"
#include "serve/scheduler/priority_queue.h"
#include "serve/scheduler/sequence/sequence.h"

struct scheduler {
    /* set before calls come */
    struct batch_rules rules;
    struct queue_policy policy;
    bool in_order; /* answers leave in the order in which their calls were queued */

    struct sequences *sequences; /* NULL: each request is for itself */

    struct lock lock;
    struct lock_cond work; /* calls or an instance may have become available, or the end */
    struct priority_queue queue;
    atomic_size_t n_queued; /* as the queue has; read by the path that wants to avoid the lock */
    struct call *order_first, *order_last; /* in_order: queued and not yet on their way back */
    bool stopping;
};

void scheduler_init(struct scheduler *scheduler);
/* What the model's configuration, which is completed with the number of instances, came to.
 * `limit`: how many requests may wait where the configuration does not say; 0: any number. Memory
 * is in `arena`. Returns: ST_NO_MEMORY. */
enum status scheduler_configure(struct scheduler *scheduler, struct arena *arena,
                                const struct model_config *config, uint64_t limit,
                                struct error *err) __attribute__((warn_unused_result));
void scheduler_fini(struct scheduler *scheduler);

/* Nobody waits? Thread: any; takes no lock. */
static inline bool scheduler_is_empty(struct scheduler *scheduler) {
    /* Ordered with instance_release: see there. */
    return atomic_load_explicit(&scheduler->n_queued, memory_order_seq_cst) == 0;
}

/* Puts the call where its patience says; scheduler_notify has to follow. What an idle instance is
 * about to take does not count against a limit. Returns: ST_QUEUE_FULL, ST_BAD_SEQUENCE,
 * ST_NO_MEMORY. Thread: any. */
enum status scheduler_push(struct scheduler *scheduler, struct call *call, struct error *err)
    __attribute__((warn_unused_result));
/* So many were pushed: wakes instances for them. Those pushed together are then there together.
 * Thread: any. */
void scheduler_notify(struct scheduler *scheduler, size_t n);
/* Takes the call back, and ends those that can't do without it. Returns: false when an instance has
 * it already. Thread: any. */
bool scheduler_remove(struct scheduler *scheduler, struct call *call);
/* The call lets the others of its level pass. Returns: false when an instance has it already.
 * Thread: any. */
bool scheduler_deprioritize(struct scheduler *scheduler, struct call *call);
/* Is there something to be executed now, at most `max` calls together, for an instance that is
 * idle? A batch that could be larger waits as long as its calls do. Returns: false with *until_ns,
 * when to look again (UINT64_MAX: when something is queued). The lock is held. */
bool scheduler_is_due(struct scheduler *scheduler, size_t max, uint64_t now_ns, uint64_t *until_ns);
/* The calls to be executed together now, at most `max`, in the queue's order, each marked as
 * running. Returns: how many; 0 when none wait whose time is not over. The lock is held. */
size_t scheduler_take(struct scheduler *scheduler, struct call **batch, size_t max,
                      uint64_t now_ns);
/* The same two of a version with sequences, for the instance of that number: it has no other's. The
 * batch may have NULLs, for rows that stay empty; after it scheduler_executed has to follow. The
 * lock is held. */
bool scheduler_is_due_for_instance(struct scheduler *scheduler, size_t instance, uint64_t now_ns,
                                   uint64_t *until_ns);
size_t scheduler_take_for_instance(struct scheduler *scheduler, size_t instance,
                                   struct call **batch, uint64_t now_ns);
/* The lock is held. */
void scheduler_executed(struct scheduler *scheduler, size_t instance, uint64_t now_ns);
/* A call that ran, and has a sequence, was answered. Thread: any. */
void scheduler_sequence_resume(struct scheduler *scheduler, struct call *call);
/* An answered call goes back to its worker when those before it have: in_order. It must not be
 * touched after this. Thread: any. */
void scheduler_complete_in_order(struct scheduler *scheduler, struct call *call);
/* The same for one that was answered without having been queued. */
void scheduler_complete_unqueued_in_order(struct scheduler *scheduler, struct call *call);
/* An instance became free although calls wait: wakes a thread for them. Thread: any. */
void scheduler_wake(struct scheduler *scheduler);
/* Threads that wait for work end. The queue is empty and stays so. */
void scheduler_stop(struct scheduler *scheduler);

#endif
