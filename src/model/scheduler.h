/* The queue of a model version: calls that wait for an instance, in order of arrival, bounded. It
 * decides which calls an idle instance takes next; how they are run is instance.c's business. */
#ifndef SLUICE_MODEL_SCHEDULER_H
#define SLUICE_MODEL_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "loop/lock.h"
#include "model/batch.h"
#include "model/call.h"

struct scheduler {
    struct lock lock;
    struct lock_cond work; /* calls or an instance may have become available, or the end */
    struct call *head, *tail;
    atomic_size_t n_queued;   /* changed under the lock; read by the path that wants to avoid it */
    size_t limit;             /* of calls that wait while no instance is idle; 0: none */
    struct batch_rules rules; /* set before calls come */
    bool ending;
};

void scheduler_init(struct scheduler *scheduler, size_t limit);
void scheduler_fini(struct scheduler *scheduler);

/* Nobody waits? Thread: any; takes no lock. */
static inline bool scheduler_is_empty(struct scheduler *scheduler) {
    /* Ordered with instance_release: see there. */
    return atomic_load_explicit(&scheduler->n_queued, memory_order_seq_cst) == 0;
}

/* Puts the call at the end and wakes an instance. What an idle instance is about to take does not
 * count against the limit. Returns: ST_QUEUE_FULL. Thread: any. */
enum status scheduler_push(struct scheduler *scheduler, struct call *call, struct error *err)
    __attribute__((warn_unused_result));
/* Takes the call back. Returns: false when an instance has it already. Thread: any. */
bool scheduler_remove(struct scheduler *scheduler, struct call *call);
/* Is there something to be executed now, for an instance that is idle? A batch that could be larger
 * waits as long as the rules say. Returns: false with *until_ns, when to look again (UINT64_MAX:
 * when something is queued). The lock is held. */
bool scheduler_is_due(struct scheduler *scheduler, uint64_t now_ns, uint64_t *until_ns);
/* The calls to be executed together now, at most `max`, oldest first, each marked as running.
 * Returns: how many; 0 when none wait. The lock is held. */
size_t scheduler_take(struct scheduler *scheduler, struct call **batch, size_t max);
/* An instance became free although calls wait: wakes a thread for them. Thread: any. */
void scheduler_wake(struct scheduler *scheduler);
/* Threads that wait for work end. The queue is empty and stays so. */
void scheduler_end(struct scheduler *scheduler);

#endif
