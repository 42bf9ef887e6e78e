/* The selection of the calls that are executed together: those that can share a batch with the
 * oldest one of the queue, as many as fit. How long a batch waits for further calls
 * (max_queue_delay_microseconds) is decided by scheduler_is_due, and for sequences by
 * sequences_are_due. The caller holds the scheduler's lock. */
#ifndef SLUICE_SERVE_SCHEDULER_BATCH_H
#define SLUICE_SERVE_SCHEDULER_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/scheduler/call_run.h"
#include "serve/scheduler/priority_queue.h"

/* Batching settings of a model's configuration. */
struct batch_rules {
    uint64_t max_rows;         /* max_batch_size; 0: requests are executed one at a time */
    const uint64_t *preferred; /* sizes that are executed without further delay */
    size_t n_preferred;
};

/* The batch that could be executed now, beginning with `head`. */
struct batch_candidate {
    uint64_t rows;     /* in those calls */
    size_t n_calls;    /* `head` included */
    bool full;         /* run it now: no call can be added, its rows are a preferred size, or
                          one more call exceeds the largest of those */
    uint64_t until_ns; /* the earliest batch_wait_until_ns of the calls considered */
};

/* Returns: whether both calls can be in one batch: the same inputs, equal shapes except for the
 * batch dimension and what the model's layout joins, and equal parameters (except the scheduler's
 * own). */
bool batch_can_share(const struct call *a, const struct call *b);
/* Returns: the batch elements of `n` calls. */
uint64_t batch_rows(struct call *const *batch, size_t n);
/* Returns: the largest preferred size that is at most `rows`; 0: none. */
uint64_t batch_preferred_size(const struct batch_rules *rules, uint64_t rows);
/* Scans the queue from `head`, which is not expired, for at most `max` calls of one batch. */
struct batch_candidate batch_preview(const struct batch_rules *rules, const struct call *head,
                                     size_t max, uint64_t now_ns);
/* Removes the calls of batch_preview from the queue. Returns: how many. */
size_t batch_take(const struct batch_rules *rules, struct priority_queue *queue, struct call *head,
                  struct call **batch, size_t max, uint64_t now_ns);

#endif
