/* Lines of jobs, decoder threads, and a message to the job's worker on completion. A job first
 * waits for its head to be read, which is quick and says what decoding takes, then to be decoded.
 * It is in exactly one place: in a line (under the lock), with a thread, or posted. */
#include "serve/picture/pool.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/lock.h"
#include "core/event/thread.h"
#include "serve/picture/decode.h"

enum { HEADS, SHORT_PICTURES, LONG_PICTURES, N_LINES };

static_assert((int)N_LINES == (int)PICTURE_IN_NO_LINE, "a job is in a line or in none");

static const uint64_t MEMORY_RETRY_NS = UINT64_C(50000000);

struct line {
    struct fair_queue queue;
    uint64_t blocked_ns; /* since when its first job has no memory; 0: it is not tried yet */
};

struct picture_pool {
    const struct picture_part *part;
    size_t max_queued;
    uint64_t max_picture_pixels;
    struct picture_memory memory;
    struct lock lock;
    struct lock_cond work;
    /* guarded by the lock */
    struct line lines[N_LINES];
    size_t n_long; /* threads that decode a picture of the long ones */
    bool stopping;
    /* used by the main thread, and constant when there are threads */
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

/* ---- lines, under the lock ------------------------------------------------------------------- */

static bool is_long(const struct picture_job *job) {
    return job->need.ns > PICTURE_LONG_NS;
}

static void line_push(struct picture_pool *pool, size_t line, struct picture_job *job) {
    lock_assert_held(&pool->lock);
    uint64_t ns = line == HEADS ? job->file.len : job->need.ns; /* a nanosecond for each byte */
    job->line = line;
    fair_queue_push(&pool->lines[line].queue, &job->entry, job->client, ns);
}

/* Takes the first job of a line. */
static struct picture_job *line_pop(struct picture_pool *pool, size_t line) {
    lock_assert_held(&pool->lock);
    struct fair_queue *queue = &pool->lines[line].queue;
    struct picture_job *job = CONTAINER_OF(fair_queue_pop(queue), struct picture_job, entry);
    for (size_t i = 0; i < N_LINES; i++) { /* they have one clock */
        fair_queue_set_clock(&pool->lines[i].queue, fair_queue_clock(queue));
    }
    job->line = PICTURE_IN_NO_LINE;
    return job;
}

static size_t n_queued(const struct picture_pool *pool) {
    size_t n = 0;
    for (size_t i = 0; i < N_LINES; i++) {
        n += pool->lines[i].queue.n;
    }
    return n;
}

/* Takes the first job of a line, of those to be decoded with its memory, or with an error when the
 * line has had none for too long. Returns: NULL when it has none now. */
static struct picture_job *try_line(struct picture_pool *pool, size_t at) {
    struct line *line = &pool->lines[at];
    if (at == HEADS) {
        return line_pop(pool, at);
    }
    struct picture_job *job =
        CONTAINER_OF(fair_queue_first(&line->queue), struct picture_job, entry);
    if (!pool->memory.take || pool->memory.take(pool->memory.user, job->need.n_bytes)) {
        line->blocked_ns = 0;
        pool->n_long += at == LONG_PICTURES;
        return line_pop(pool, at);
    }
    uint64_t now_ns = clock_now_ns();
    line->blocked_ns = line->blocked_ns > 0 ? line->blocked_ns : now_ns;
    if (clock_between_ns(line->blocked_ns, now_ns) < PICTURE_MEMORY_WAIT_NS) {
        return NULL;
    }
    metric_add(METRIC_DROPPED_MEMORY, 1);
    error_set(&job->error, ST_OVERLOADED,
              "no memory to decode the picture, which may take %" PRIu64
              " bytes: other requests use up that of all clients (--client-memory)",
              job->need.n_bytes);
    return line_pop(pool, at);
}

/* Returns: the line whose first job is the next one, of those that are not in `left_out`; N_LINES:
 * none. */
static size_t next_line(const struct picture_pool *pool, const bool *left_out) {
    size_t best = N_LINES;
    uint64_t best_end = UINT64_MAX;
    for (size_t i = 0; i < N_LINES; i++) {
        uint64_t end = left_out[i] ? UINT64_MAX : fair_queue_next_end(&pool->lines[i].queue);
        if (end < best_end) {
            best = i;
            best_end = end;
        }
    }
    return best;
}

/* Returns: NULL when there is nothing to do now; *lacks_memory: there may be later. */
static struct picture_job *try_lines(struct picture_pool *pool, bool *lacks_memory) {
    bool may_take_long = pool->n_threads == 1 || pool->n_long + 1 < pool->n_threads;
    bool left_out[N_LINES] = {[LONG_PICTURES] = !may_take_long};
    struct picture_job *job = NULL;
    *lacks_memory = false;
    for (size_t at; !job && (at = next_line(pool, left_out)) < N_LINES;) {
        job = try_line(pool, at);
        left_out[at] = true;
        *lacks_memory = *lacks_memory || !job;
    }
    return job;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits for a job. Returns: NULL on shutdown. */
static struct picture_job *pool_take(struct picture_pool *pool) {
    struct picture_job *job = NULL;
    bool lacks_memory;
    lock_acquire(&pool->lock);
    while (!pool->stopping && !(job = try_lines(pool, &lacks_memory))) {
        if (lacks_memory) {
            (void)lock_cond_wait_until_ns(&pool->lock, &pool->work,
                                          clock_now_ns() + MEMORY_RETRY_NS);
        } else {
            lock_cond_wait(&pool->lock, &pool->work);
        }
    }
    if (n_queued(pool) > 0) { /* such as a long one that waited for this thread to end one */
        lock_cond_signal(&pool->work);
    }
    lock_release(&pool->lock);
    return job;
}

static void read_head(struct picture_pool *pool, struct picture_job *job) {
    enum status st = picture_need_of(pool->max_picture_pixels, job->file, &job->need, &job->error);
    if (st == ST_OK && pool->memory.take && job->need.n_bytes > pool->memory.limit) {
        st = error_set(&job->error, ST_OVERLOADED,
                       "decoding the picture may take %" PRIu64
                       " bytes, all clients together may use %" PRIu64 " (--client-memory)",
                       job->need.n_bytes, pool->memory.limit);
    }
    lock_acquire(&pool->lock);
    bool goes_on = st == ST_OK && !job->cancelled && !pool->stopping;
    if (goes_on) {
        line_push(pool, is_long(job) ? LONG_PICTURES : SHORT_PICTURES, job);
        lock_cond_signal(&pool->work);
    }
    lock_release(&pool->lock);
    if (!goes_on && st == ST_OK) {
        post_cancelled(job, "its request was cancelled");
    } else if (!goes_on) {
        picture_pool_post_done(job);
    }
}

static void decode(struct picture_pool *pool, struct picture_job *job) {
    job->error.status = picture_decode(pool->part, pool->max_picture_pixels, job->plan, job->file,
                                       job->out, &job->error);
    if (pool->memory.give) {
        pool->memory.give(pool->memory.user, job->need.n_bytes);
    }
    lock_acquire(&pool->lock);
    pool->n_long -= is_long(job);
    lock_release(&pool->lock);
    picture_pool_post_done(job);
}

static void thread_main(void *arg) {
    struct picture_pool *pool = arg;
    pthread_setname_np(pthread_self(), "pictures");
    for (struct picture_job *job = pool_take(pool); job; job = pool_take(pool)) {
        if (job->error.status != ST_OK) {
            picture_pool_post_done(job);
        } else if (job->need.n_bytes == 0) {
            read_head(pool, job);
        } else {
            decode(pool, job);
        }
    }
    pool->part->thread_end();
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
    for (size_t i = 0; i < N_LINES; i++) {
        fair_queue_init(&pool->lines[i].queue);
    }
    pool->memory = options->memory;
    pool->max_queued = options->max_queued;
    pool->max_picture_pixels = options->max_picture_pixels;
    lock_init(&pool->lock);
    lock_cond_init(&pool->work);
    unsigned n_started = 0;
    int rc = 0;
    lock_acquire(&pool->lock); /* the threads read n_threads */
    while (n_started < n_threads && rc == 0) {
        rc = uv_thread_create(&pool->threads[n_started], thread_main, pool);
        n_started += rc == 0;
    }
    pool->n_threads = n_started;
    lock_release(&pool->lock);
    if (rc != 0) {
        picture_pool_free(pool);
        return error_set(err, ST_IO, "cannot start a decoder thread: %s", thread_start_error(rc));
    }
    *out = pool;
    return ST_OK;
}

void picture_pool_free(struct picture_pool *pool) {
    lock_acquire(&pool->lock);
    pool->stopping = true;
    lock_cond_broadcast(&pool->work);
    lock_release(&pool->lock);
    for (unsigned i = 0; i < pool->n_threads; i++) {
        uv_thread_join(&pool->threads[i]);
    }
    for (size_t i = 0; i < N_LINES; i++) {
        struct fair_queue *queue = &pool->lines[i].queue;
        for (struct fair_entry *entry; (entry = fair_queue_pop(queue));) {
            struct picture_job *job = CONTAINER_OF(entry, struct picture_job, entry);
            job->line = PICTURE_IN_NO_LINE;
            post_cancelled(job, "the server ends"); /* may be freed now */
        }
        fair_queue_fini(queue);
    }
    lock_cond_fini(&pool->work);
    lock_fini(&pool->lock);
    free(pool);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void picture_pool_submit(struct picture_pool *pool, struct picture_job *job) {
    job->need = (struct picture_need){0};
    job->line = PICTURE_IN_NO_LINE;
    job->cancelled = false;
    lock_acquire(&pool->lock);
    bool full = n_queued(pool) >= pool->max_queued;
    if (!full) {
        line_push(pool, HEADS, job);
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
    bool waiting = job->line != PICTURE_IN_NO_LINE;
    if (waiting) {
        fair_queue_remove(&pool->lines[job->line].queue, &job->entry);
        job->line = PICTURE_IN_NO_LINE;
    }
    job->cancelled = true;
    lock_release(&pool->lock);
    if (waiting) {
        post_cancelled(job, "its request was cancelled");
    }
}
