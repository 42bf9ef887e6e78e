/* Two fair queues under a lock, of short jobs and of long ones, and threads that take from both. */
#include "core/event/helper_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/lock.h"
#include "core/event/thread.h"

enum { SHORT_JOBS, LONG_JOBS, N_LENGTHS };

struct helper_pool {
    struct lock lock;
    struct lock_cond work;
    /* guarded by the lock */
    struct fair_queue queues[N_LENGTHS]; /* with one clock */
    size_t n_long;                       /* threads that run a long job */
    bool stopping;
    /* used by the thread that creates and frees the pool */
    size_t n_threads;
    uv_thread_t threads[];
};

static void on_done(struct worker_msg *msg) {
    struct helper_job *job = CONTAINER_OF(msg, struct helper_job, msg);
    job->done(job);
}

/* ---- the queues, under the lock -------------------------------------------------------------- */

static bool is_long(const struct helper_job *job) {
    return job->ns > HELPER_LONG_NS;
}

/* Returns: the queue whose job is the next one to run; NULL when a thread has to wait. */
static struct fair_queue *next_queue(struct helper_pool *pool) {
    lock_assert_held(&pool->lock);
    struct fair_queue *shorts = &pool->queues[SHORT_JOBS], *longs = &pool->queues[LONG_JOBS];
    bool may_run_long = pool->n_threads == 1 || pool->n_long + 1 < pool->n_threads;
    uint64_t long_end = may_run_long || pool->stopping ? fair_queue_next_end(longs) : UINT64_MAX;
    uint64_t short_end = fair_queue_next_end(shorts);
    if (short_end == UINT64_MAX && long_end == UINT64_MAX) {
        return NULL;
    }
    return long_end < short_end ? longs : shorts;
}

static struct helper_job *queue_take(struct helper_pool *pool, struct fair_queue *queue) {
    struct helper_job *job = CONTAINER_OF(fair_queue_pop(queue), struct helper_job, entry);
    bool takes_long = queue == &pool->queues[LONG_JOBS];
    fair_queue_set_clock(&pool->queues[takes_long ? SHORT_JOBS : LONG_JOBS],
                         fair_queue_clock(queue));
    pool->n_long += takes_long;
    job->state = HELPER_JOB_RUNS;
    metric_add(METRIC_HELPER_JOBS_WAITING, -1);
    return job;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits for a job. Returns: NULL when the pool is stopping and none is left. */
static struct helper_job *pool_take(struct helper_pool *pool) {
    struct fair_queue *queue;
    lock_acquire(&pool->lock);
    while (!(queue = next_queue(pool)) && !pool->stopping) {
        lock_cond_wait(&pool->lock, &pool->work);
    }
    struct helper_job *job = queue ? queue_take(pool, queue) : NULL;
    if (next_queue(pool)) { /* such as a long one that waited for this thread to end one */
        lock_cond_signal(&pool->work);
    }
    lock_release(&pool->lock);
    return job;
}

static void thread_main(void *arg) {
    struct helper_pool *pool = arg;
    pthread_setname_np(pthread_self(), "helper");
    for (struct helper_job *job = pool_take(pool); job; job = pool_take(pool)) {
        job->run(job);
        lock_acquire(&pool->lock);
        pool->n_long -= is_long(job);
        job->state = HELPER_JOB_ENDED;
        lock_release(&pool->lock);
        worker_post(job->worker, &job->msg);
    }
}

enum status helper_pool_new(size_t n_threads, struct helper_pool **out, struct error *err) {
    struct helper_pool *pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->threads[0]));
    if (!pool) {
        return error_no_memory(err, "%zu helper threads", n_threads);
    }
    fair_queue_init(&pool->queues[SHORT_JOBS]);
    fair_queue_init(&pool->queues[LONG_JOBS]);
    lock_init(&pool->lock);
    lock_cond_init(&pool->work);
    size_t n_started = 0;
    lock_acquire(&pool->lock); /* the threads read n_threads */
    for (; n_started < n_threads; n_started++) {
        int rc = uv_thread_create(&pool->threads[n_started], thread_main, pool);
        if (rc != 0) {
            error_set(err, ST_IO, "cannot start a helper thread: %s", thread_start_error(rc));
            break;
        }
    }
    pool->n_threads = n_started;
    lock_release(&pool->lock);
    if (n_started < n_threads) {
        helper_pool_free(pool);
        return err->status;
    }
    *out = pool;
    return ST_OK;
}

void helper_pool_free(struct helper_pool *pool) {
    if (!pool) {
        return;
    }
    lock_acquire(&pool->lock);
    pool->stopping = true;
    lock_cond_broadcast(&pool->work);
    lock_release(&pool->lock);
    for (size_t i = 0; i < pool->n_threads; i++) {
        uv_thread_join(&pool->threads[i]);
    }
    fair_queue_fini(&pool->queues[SHORT_JOBS]);
    fair_queue_fini(&pool->queues[LONG_JOBS]);
    lock_cond_fini(&pool->work);
    lock_fini(&pool->lock);
    free(pool);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct fair_queue *queue_of(struct helper_pool *pool, const struct helper_job *job) {
    return &pool->queues[is_long(job) ? LONG_JOBS : SHORT_JOBS];
}

void helper_pool_submit(struct helper_pool *pool, struct helper_job *job) {
    job->msg = (struct worker_msg){.run = on_done};
    metric_add(METRIC_HELPER_JOBS_TOTAL, 1);
    metric_add(METRIC_HELPER_JOBS_WAITING, 1);
    lock_acquire(&pool->lock);
    job->state = HELPER_JOB_WAITS;
    fair_queue_push(queue_of(pool, job), &job->entry, job->client, job->ns);
    lock_cond_signal(&pool->work);
    lock_release(&pool->lock);
}

void helper_pool_cancel(struct helper_pool *pool, struct helper_job *job) {
    if (job->cancelled) {
        return;
    }
    job->cancelled = true;
    lock_acquire(&pool->lock);
    enum helper_job_state state = job->state;
    if (state == HELPER_JOB_WAITS) {
        fair_queue_remove(queue_of(pool, job), &job->entry);
        job->state = HELPER_JOB_ENDED;
    }
    lock_release(&pool->lock);
    if (state == HELPER_JOB_WAITS) {
        job->skipped = true;
        metric_add(METRIC_HELPER_JOBS_WAITING, -1);
        metric_add(METRIC_HELPER_JOBS_CANCELLED_WAITING, 1);
        worker_post(job->worker, &job->msg);
    } else if (state == HELPER_JOB_RUNS) {
        metric_add(METRIC_HELPER_JOBS_CANCELLED_RUNNING, 1);
    }
}
