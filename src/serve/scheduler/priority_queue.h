/* The calls that wait for an instance, in order of service: by priority level; within a level first
 * those not deprioritized; then by arrival. It is one list, which batch forming walks, with a
 * pointer to the last call of each class.
 *
 * The scheduler's is used with its lock held, an inline queue's on its worker only. */
#ifndef SLUICE_SERVE_SCHEDULER_PRIORITY_QUEUE_H
#define SLUICE_SERVE_SCHEDULER_PRIORITY_QUEUE_H

#include <stddef.h>
#include <sys/queue.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/scheduler/call_run.h"

/* The calls of one priority level, either deprioritized or not. */
struct priority_class {
    struct call *last; /* NULL: none */
    size_t n;
};

struct priority_queue {
    struct call_list calls;         /* linked by queue_link */
    struct priority_class *classes; /* two per level */
    size_t n_levels;
    size_t n;
};

/* Returns: ST_NO_MEMORY. */
enum status priority_queue_init(struct priority_queue *queue, struct arena *arena, size_t n_levels,
                                struct error *err) SLUICE_MUST_USE;
/* Appends the call to the class that call->run->queue_deadline gives. */
void priority_queue_add(struct priority_queue *queue, struct call *call);
void priority_queue_remove(struct priority_queue *queue, struct call *call);
/* Returns: the number of calls of that level, deprioritized ones included. */
size_t priority_queue_count_level(const struct priority_queue *queue, size_t level);
/* Returns: when the call was queued that waits longest; `now_ns`: there is none. */
uint64_t priority_queue_oldest_ns(const struct priority_queue *queue, uint64_t now_ns);

#endif
