/* Cheap calls, which run on the worker that read them: they are put off to the end of the worker's
 * turn (core/event/loop_iteration.h), and those that fit run as one batch, by the same rules as in
 * a queue. What can't run then, because no instance is idle, others wait already, or models have
 * had enough of this turn, goes into the queue of the version.
 *
 * Thread: the worker's. */
#ifndef SLUICE_SERVE_SCHEDULER_INLINE_QUEUE_H
#define SLUICE_SERVE_SCHEDULER_INLINE_QUEUE_H

#include "serve/scheduler/call.h"

/* Puts the call off, or runs it at once where it asks for that. It may be over, and gone, when this
 * returns. Returns: false when it has to queue. */
bool call_run_inline(struct call *call) __attribute__((warn_unused_result));
/* Takes a call back that is put off. */
void inline_queue_remove(struct call *call);

#endif
