/* Which calls of a queue are executed together: those that can share one batch with the oldest, as
 * many as fit. Nothing here waits, or knows a lock: the scheduler holds it. */
#ifndef SLUICE_SERVE_SCHEDULER_BATCH_H
#define SLUICE_SERVE_SCHEDULER_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/scheduler/call.h"
#include "serve/scheduler/priority_queue.h"

/* What a model's configuration says of its batches. */
struct batch_rules {
    uint64_t max_rows;         /* max_batch_size; 0: requests are executed one by one */
    const uint64_t *preferred; /* sizes that are executed without waiting for more */
    size_t n_preferred;
};

/* What could be executed now, beginning with `head`. */
struct batch_candidate {
    uint64_t rows;     /* of the calls that would be taken */
    size_t n_calls;    /* among them `head` */
    bool full;         /* no more could be added, or a preferred size is reached: don't wait */
    uint64_t until_ns; /* when the first of all that were looked at has waited for long enough */
};

/* Can both be part of one batch: the same inputs, with equal shapes but for the batch dimension,
 * and equal parameters (those for the scheduler itself aside)? */
bool batch_can_share(const struct call *a, const struct call *b);
/* Looks through the queue from `head` on, whose time is not over, at most `max` calls of it into
 * one batch. */
struct batch_candidate batch_preview(const struct batch_rules *rules, const struct call *head,
                                     size_t max, uint64_t now_ns);
/* Takes what that offers out of the queue. Returns: how many. */
size_t batch_take(const struct batch_rules *rules, struct priority_queue *queue, struct call *head,
                  struct call **batch, size_t max, uint64_t now_ns);

#endif
