/* Selects the calls that an idle instance of a model version executes next. Waiting calls are in a
 * queue (batch.h) under one lock; instance.c runs them, call.c removes those that
 * expire. */
#ifndef SLUICE_SERVE_SCHEDULER_SCHEDULER_H
#define SLUICE_SERVE_SCHEDULER_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "core/base/status.h"
#include "core/event/lock.h"
#include "serve/config/queue_policy.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/sequence/sequence.h"

struct scheduler {
    /* set before the first call */
    struct batch_rules rules;
    struct queue_policy policy;
    bool preserve_ordering; /* preserve_ordering: answers leave in the order of their calls */

    struct sequences *sequences;  /* NULL: no sequence batching */
    _Atomic uint64_t n_iterative; /* identifiers that were made for iterative sequences */

    struct lock lock;
    struct lock_cond work; /* signalled when calls or an instance may be available, and on
                              shutdown */
    struct priority_queue queue;
    atomic_size_t n_queued; /* the queue's length, readable without the lock */
    /* preserve_ordering: queued or being looked up in the cache, and not yet posted to their
     * workers; linked by order_link */
    struct call_list order;
    bool no_delay; /* batches do not wait for more calls: few will come */
    bool stopping;
};

void scheduler_init(struct scheduler *scheduler);
/* Applies the model's completed configuration. `limit`: the queue size where the configuration sets
 * none; 0: unlimited. Memory is in `arena`. Returns: ST_NO_MEMORY. */
enum status scheduler_configure(struct scheduler *scheduler, struct arena *arena,
                                const struct model_config *config, uint64_t limit,
                                struct error *err) SLUICE_MUST_USE;
void scheduler_fini(struct scheduler *scheduler);

/* Returns: whether no call waits. Thread: any; takes no lock. */
static inline bool scheduler_is_empty(struct scheduler *scheduler) {
    /* Ordered with instance_release, which explains it. */
    return atomic_load_explicit(&scheduler->n_queued, memory_order_seq_cst) == 0;
}

/* Queues the call by its queue_deadline; the caller calls scheduler_notify afterwards. Calls that
 * an idle instance is about to take don't count against the limit. Returns: ST_QUEUE_FULL,
 * ST_BAD_SEQUENCE, ST_NO_MEMORY. Thread: any. */
enum status scheduler_push(struct scheduler *scheduler, struct call *call,
                           struct error *err) SLUICE_MUST_USE;
/* Wakes instances for `n` pushed calls; calls that were pushed together are seen together. Thread:
 * any. */
void scheduler_notify(struct scheduler *scheduler, size_t n);
/* Removes the call, and fails the later calls of its sequence. Returns: false when an instance has
 * it already. Thread: any. */
bool scheduler_remove(struct scheduler *scheduler, struct call *call);
/* The same for one that waited too long. Returns: false also when it has run before. */
bool scheduler_remove_expired(struct scheduler *scheduler, struct call *call);
/* Moves the call to the end of its level. Returns: false when an instance has it already.
 * Thread: any. */
bool scheduler_deprioritize(struct scheduler *scheduler, struct call *call);
/* Returns: whether an idle instance should execute a batch of at most `max` calls now. A batch that
 * could grow waits for its batch delay; then *until_ns is when to check again (UINT64_MAX: on the
 * next push). The lock is held. */
bool scheduler_is_due(struct scheduler *scheduler, size_t max, uint64_t now_ns, uint64_t *until_ns);
/* Removes the next batch, at most `max` calls in queue order, each set to CALL_RUNNING. Returns:
 * how many; 0: all have expired. The lock is held. */
size_t scheduler_take(struct scheduler *scheduler, struct call **batch, size_t max,
                      uint64_t now_ns);
/* The same two for a version with sequences, for the instance of that number. The batch may contain
 * NULLs for empty rows; scheduler_executed must follow. The lock is held. */
bool scheduler_is_due_for_instance(struct scheduler *scheduler, size_t instance, uint64_t now_ns,
                                   uint64_t *until_ns);
size_t scheduler_take_for_instance(struct scheduler *scheduler, size_t instance,
                                   struct call **batch, uint64_t now_ns);
/* The lock is held. */
void scheduler_executed(struct scheduler *scheduler, size_t instance, uint64_t now_ns);
/* Continues the sequence of a call that ran and was answered. Thread: any. */
void scheduler_sequence_resume(struct scheduler *scheduler, struct call *call);
/* Queues a call of an iterative sequence that ran. Returns: false when it was cancelled; else the
 * call must not be used afterwards. Thread: any. */
bool scheduler_run_again(struct scheduler *scheduler, struct call *call) SLUICE_MUST_USE;
/* preserve_ordering: gives the call its place among the others before it is queued, for a lookup
 * that takes a while. Without this it gets it when it is queued or completed. Thread: any. */
void scheduler_enter_order(struct scheduler *scheduler, struct call *call);
/* Gives up that place: the call is neither queued nor answered. Thread: any. */
void scheduler_leave_order(struct scheduler *scheduler, struct call *call);
/* preserve_ordering: posts the answered call to its worker when all earlier ones are posted. It
 * must not be used afterwards. Thread: any. */
void scheduler_complete_in_order(struct scheduler *scheduler, struct call *call);
/* Wakes a thread when an instance is released while calls wait. Thread: any. */
void scheduler_wake(struct scheduler *scheduler);
/* From now on batches do not wait for their batch delay. Thread: any. */
void scheduler_end_delays(struct scheduler *scheduler);
/* Stops the waiting threads. The queue is empty and stays empty. */
void scheduler_stop(struct scheduler *scheduler);

#endif
