/* Threads for work that would hold an event loop: a job runs on one of them and returns to its
 * worker as a message. Work of less than HELPER_MIN_NS is done on the loop instead: the two
 * hand-overs cost tens of microseconds.
 *
 * Clients take turns (core/event/fair_queue.h). Jobs of more than HELPER_LONG_NS leave one thread
 * free for shorter ones, where there is more than one. Jobs of one worker may end in another order
 * than they were submitted in. */
#ifndef SLUICE_CORE_EVENT_HELPER_POOL_H
#define SLUICE_CORE_EVENT_HELPER_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/event/fair_queue.h"
#include "core/event/worker.h"

enum { HELPER_MIN_NS = 1000 * 1000, HELPER_LONG_NS = 50 * 1000 * 1000 /* both estimated */ };

enum helper_job_state { HELPER_JOB_WAITS, HELPER_JOB_RUNS, HELPER_JOB_ENDED };

/* Embed it in the object that the job works on, which stays valid until `done`. */
struct helper_job {
    struct worker *worker;
    /* Runs on a helper thread: uses nothing that the worker uses meanwhile. */
    void (*run)(struct helper_job *job);
    /* Runs on the worker; may free the object that embeds the job. */
    void (*done)(struct helper_job *job);
    struct fair_client client;
    uint64_t ns; /* estimated time of `run` */
    /* for `done` */
    bool skipped; /* `run` was not called: the job was cancelled before */
    /* internal */
    bool cancelled;
    enum helper_job_state state; /* guarded by the pool's lock */
    struct fair_entry entry;
    struct worker_msg msg;
};

struct helper_pool;

/* Starts the threads. Returns: ST_NO_MEMORY, ST_IO. Owns: the caller, until helper_pool_free. */
enum status helper_pool_new(size_t n_threads, struct helper_pool **out,
                            struct error *err) SLUICE_MUST_USE;
/* Runs all jobs that were submitted and ends the threads. NULL is allowed. Thread: any but a
 * helper's; no jobs are submitted meanwhile. */
void helper_pool_free(struct helper_pool *pool);
/* Submits a job with `worker`, `run`, `done`, `client` and `ns` set, the rest zeroed. Never fails.
 * Thread: the worker's. */
void helper_pool_submit(struct helper_pool *pool, struct helper_job *job);
/* The result is not needed any more: a job that waits is skipped. One that runs goes on, unless the
 * caller tells it (arena_set_cancelled). `done` is called in both cases, after this has returned.
 * Idempotent; until `done`. Thread: the worker's. */
void helper_pool_cancel(struct helper_pool *pool, struct helper_job *job);

#endif
