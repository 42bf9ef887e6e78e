/* A queue of jobs, decoder threads, and a message to the job's worker on completion. A job is in
 * exactly one place: queued (under the lock), with a thread, or posted. */
#include "serve/picture/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/event/lock.h"
#include "core/event/thread.h"
#include "serve/picture/decode.h"

struct picture_pool {
    const struct picture_part *part;
    size_t max_queued;
    uint64_t max_picture_pixels;
    struct lock lock;
    struct lock_cond work;
    /* guarded by the lock */
    TAILQ_HEAD(, picture_job) queue;
    size_t n_queued;
    bool stopping;
    /* used by the main thread */
    unsigned n_threads;
    uv_thread_t threads[];
};

/* ---- completion ------------------------------------------------------------------------------ */

static void on_done(struct worker_msg *msg) {
    struct picture_job *job = CONTAINER_OF(msg, struct picture_job, msg);
    job->done(job);
}

void picture_pool_post_done(struct picture_job *job) {
    job->msg.run = on_done;
    worker_post(job->worker, &job->msg);
}

static void post_cancelled(struct picture_job *job, const char *why) {
    error_set(&job->error, ST_CANCELLED, "the picture was not decoded: %s", why);
    picture_pool_post_done(job);
}

/* ---- queue, under the lock ------------------------------------------------------------------- */

static void queue_push(struct picture_pool *pool, struct picture_job *job) {
    lock_assert_held(&pool->lock);
    job->waiting = true;
    TAILQ_INSERT_TAIL(&pool->queue, job, link);
    pool->n_queued++;
}

static void unlink_job(struct picture_pool *pool, struct picture_job *job) {
    lock_assert_held(&pool->lock);
    assert(job->waiting);
    TAILQ_REMOVE(&pool->queue, job, link);
    job->waiting = false;
    pool->n_queued--;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits for a job. Returns: NULL on shutdown. */
static struct picture_job *queue_pop(struct picture_pool *pool) {
    lock_acquire(&pool->lock);
    while (TAILQ_EMPTY(&pool->queue) && !pool->stopping) {
        lock_cond_wait(&pool->lock, &pool->work);
    }
    struct picture_job *job = pool->stopping ? NULL : TAILQ_FIRST(&pool->queue);
    if (job) {
        unlink_job(pool, job);
    }
    lock_release(&pool->lock);
    return job;
}

static void thread_main(void *arg) {
    struct picture_pool *pool = arg;
    pthread_setname_np(pthread_self(), "pictures");
    for (struct picture_job *job = queue_pop(pool); job; job = queue_pop(pool)) {
        job->error.status = picture_decode(pool->part, pool->max_picture_pixels, job->plan,
                                           job->file, job->out, &job->error);
        picture_pool_post_done(job);
    }
    pool->part->thread_end();
}

static void end_threads(struct picture_pool *pool) {
    lock_acquire(&pool->lock);
    pool->stopping = true;
    lock_cond_broadcast(&pool->work);
    lock_release(&pool->lock);
    for (unsigned i = 0; i < pool->n_threads; i++) {
        uv_thread_join(&pool->threads[i]);
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

enum status picture_pool_new(const struct picture_part *part,
                             const struct pictures_options *options, struct picture_pool **out,
                             struct error *err) {
    unsigned n_threads = options->picture_threads > 0 ? options->picture_threads : 1;
    struct picture_pool *pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->threads[0]));
    if (!pool) {
        return error_no_memory(err, "%u threads that decode pictures", n_threads);
    }
    pool->part = part;
    TAILQ_INIT(&pool->queue);
    pool->max_queued = options->max_queued;
    pool->max_picture_pixels = options->max_picture_pixels;
    lock_init(&pool->lock);
    lock_cond_init(&pool->work);
    for (; pool->n_threads < n_threads; pool->n_threads++) {
        int rc = uv_thread_create(&pool->threads[pool->n_threads], thread_main, pool);
        if (rc != 0) {
            picture_pool_free(pool);
            return error_set(err, ST_IO, "cannot start a decoder thread: %s",
                             thread_start_error(rc));
        }
    }
    *out = pool;
    return ST_OK;
}

void picture_pool_free(struct picture_pool *pool) {
    end_threads(pool);
    struct picture_job *job;
    while ((job = TAILQ_FIRST(&pool->queue))) {
        TAILQ_REMOVE(&pool->queue, job, link);
        job->waiting = false;
        post_cancelled(job, "the server ends"); /* may be freed now */
    }
    lock_cond_fini(&pool->work);
    lock_fini(&pool->lock);
    free(pool);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void picture_pool_submit(struct picture_pool *pool, struct picture_job *job) {
    lock_acquire(&pool->lock);
    bool full = pool->n_queued >= pool->max_queued;
    if (!full) {
        queue_push(pool, job);
        lock_cond_signal(&pool->work);
    }
    lock_release(&pool->lock);
    if (full) {
        error_set(&job->error, ST_OVERLOADED, "picture queue full: %zu pictures wait to be decoded",
                  pool->max_queued);
        picture_pool_post_done(job);
    }
}

void picture_pool_cancel(struct picture_pool *pool, struct picture_job *job) {
    lock_acquire(&pool->lock);
    bool waiting = job->waiting;
    if (waiting) {
        unlink_job(pool, job);
    }
    lock_release(&pool->lock);
    if (waiting) {
        post_cancelled(job, "nobody waits for it any more");
    }
}
