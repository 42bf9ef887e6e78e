/* Inline execution: calls of a fast model wait on the worker that read them for the end of its
 * event-loop iteration (core/event/loop_iteration.h) and run there in batches, by the same rules as
 * in the scheduler's queue. Calls that cannot run then (no idle instance, older calls queued, the
 * iteration's time spent) move to the scheduler's queue.
 *
 * Thread: the worker's. */
#ifndef SLUICE_SERVE_SCHEDULER_INLINE_QUEUE_H
#define SLUICE_SERVE_SCHEDULER_INLINE_QUEUE_H

#include "serve/scheduler/call_run.h"

/* Queues the call inline, or runs it now where run_immediately is set; the call may be completed
 * and freed on return. Returns: false when the call has to be queued at the scheduler. */
bool call_run_inline(struct call *call) SLUICE_MUST_USE;
/* Removes a call in CALL_INLINE_QUEUED, which becomes CALL_ANSWERED. */
void inline_queue_remove(struct call *call);

#endif
