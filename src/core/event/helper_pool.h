/* Threads for work that would hold an event loop: a job runs on one of them and returns to its
 * worker as a message. Work of less than HELPER_MIN_NS is done on the loop instead: the two
 * hand-overs cost tens of microseconds.
 *
 * Jobs of one worker may end in another order than they were submitted in. */
#ifndef SLUICE_CORE_EVENT_HELPER_POOL_H
#define SLUICE_CORE_EVENT_HELPER_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/status.h"
#include "core/event/worker.h"

enum { HELPER_MIN_NS = 1000 * 1000 /* estimated */ };

/* Embed it in the object that the job works on, which stays valid until `done`. */
struct helper_job {
    struct worker *worker;
    /* Runs on a helper thread: uses nothing that the worker uses meanwhile. */
    void (*run)(struct helper_job *job);
    /* Runs on the worker; may free the object that embeds the job. */
    void (*done)(struct helper_job *job);
    /* internal */
    STAILQ_ENTRY(helper_job) link;
    struct worker_msg msg;
};

struct helper_pool;

/* Starts the threads. Returns: ST_NO_MEMORY, ST_IO. Owns: the caller, until helper_pool_free. */
enum status helper_pool_new(size_t n_threads, struct helper_pool **out,
                            struct error *err) SLUICE_MUST_USE;
/* Runs all jobs that were submitted and ends the threads. NULL is allowed. Thread: any but a
 * helper's; no jobs are submitted meanwhile. */
void helper_pool_free(struct helper_pool *pool);
/* Submits a job with `worker`, `run` and `done` set. Never fails. Thread: the worker's. */
void helper_pool_submit(struct helper_pool *pool, struct helper_job *job);

#endif
