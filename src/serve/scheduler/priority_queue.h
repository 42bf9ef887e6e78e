/* The calls that wait for an instance of a model, in the order in which they would be taken: by
 * priority; within one first those in time, then those that yielded; within those by arrival. Who
 * has the queue has a lock for it.
 *
 * It is one list, so that whoever forms a batch walks along `call->next`, with a mark at the last
 * call of each class. */
#ifndef SLUICE_SERVE_SCHEDULER_PRIORITY_QUEUE_H
#define SLUICE_SERVE_SCHEDULER_PRIORITY_QUEUE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/scheduler/call.h"

/* Calls of one priority that are in time, or those that yielded. */
struct priority_class {
    struct call *last; /* NULL: none */
    size_t n;
};

struct priority_queue {
    struct call *first;
    struct priority_class *classes; /* two for each level */
    size_t n_levels;
    size_t n;
};

/* Returns: ST_NO_MEMORY. */
enum status priority_queue_init(struct priority_queue *queue, struct arena *arena, size_t n_levels,
                                struct error *err) __attribute__((warn_unused_result));
/* Behind all others of its class, as call->patience says. */
void priority_queue_add(struct priority_queue *queue, struct call *call);
void priority_queue_remove(struct priority_queue *queue, struct call *call);
/* How many wait at that level, those that yielded included. */
size_t priority_queue_count_level(const struct priority_queue *queue, size_t level);

#endif
