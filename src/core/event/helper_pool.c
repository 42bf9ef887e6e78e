/* A queue under a lock, and threads that take jobs from it. */
#include "core/event/helper_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/lock.h"
#include "core/event/thread.h"

struct helper_pool {
    struct lock lock;
    struct lock_cond work;
    /* guarded by the lock */
    STAILQ_HEAD(, helper_job) queue;
    bool stopping;
    /* used by the thread that creates and frees the pool */
    size_t n_threads;
    uv_thread_t threads[];
};

static void on_done(struct worker_msg *msg) {
    struct helper_job *job = CONTAINER_OF(msg, struct helper_job, msg);
    job->done(job);
}

/* Waits for a job. Returns: NULL when the pool is stopping and none is left. */
static struct helper_job *queue_pop(struct helper_pool *pool) {
    lock_acquire(&pool->lock);
    while (STAILQ_EMPTY(&pool->queue) && !pool->stopping) {
        lock_cond_wait(&pool->lock, &pool->work);
    }
    struct helper_job *job = STAILQ_FIRST(&pool->queue);
    if (job) {
        STAILQ_REMOVE_HEAD(&pool->queue, link);
    }
    lock_release(&pool->lock);
    return job;
}

static void thread_main(void *arg) {
    struct helper_pool *pool = arg;
    pthread_setname_np(pthread_self(), "helper");
    for (struct helper_job *job = queue_pop(pool); job; job = queue_pop(pool)) {
        job->run(job);
        worker_post(job->worker, &job->msg);
    }
}

enum status helper_pool_new(size_t n_threads, struct helper_pool **out, struct error *err) {
    struct helper_pool *pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->threads[0]));
    if (!pool) {
        return error_no_memory(err, "%zu helper threads", n_threads);
    }
    STAILQ_INIT(&pool->queue);
    lock_init(&pool->lock);
    lock_cond_init(&pool->work);
    for (; pool->n_threads < n_threads; pool->n_threads++) {
        int rc = uv_thread_create(&pool->threads[pool->n_threads], thread_main, pool);
        if (rc != 0) {
            helper_pool_free(pool);
            return error_set(err, ST_IO, "cannot start a helper thread: %s",
                             thread_start_error(rc));
        }
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
    lock_cond_fini(&pool->work);
    lock_fini(&pool->lock);
    free(pool);
}

void helper_pool_submit(struct helper_pool *pool, struct helper_job *job) {
    job->msg = (struct worker_msg){.run = on_done};
    lock_acquire(&pool->lock);
    STAILQ_INSERT_TAIL(&pool->queue, job, link);
    lock_cond_signal(&pool->work);
    lock_release(&pool->lock);
}
