/* Helper pool: each job runs once on a helper thread and is done on its worker; clients take turns,
 * long jobs leave a thread free, and a cancelled job is skipped. */
#include "core/event/helper_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

enum { JOBS = 1000 };

struct counted {
    struct helper_job job;
    atomic_uint n_run;
    unsigned n_done, wrong;
};

static struct counted counted[JOBS];

static void run_job(struct helper_job *job) {
    struct counted *self = (struct counted *)job;
    self->wrong += worker_is_current(job->worker);
    atomic_fetch_add(&self->n_run, 1);
}

static void on_job_done(struct helper_job *job) {
    struct counted *self = (struct counted *)job;
    self->wrong += !worker_is_current(job->worker);
    self->n_done++;
}

struct submission {
    struct helper_pool *pool;
    struct worker *worker;
};

static void submit_all(void *arg) {
    struct submission *submission = arg;
    for (size_t i = 0; i < JOBS; i++) {
        counted[i].job =
            (struct helper_job){.worker = submission->worker, .run = run_job, .done = on_job_done};
        helper_pool_submit(submission->pool, &counted[i].job);
    }
}

/* helper_pool_free runs what is queued; the worker runs what was posted before it stops. */
static void helper_pool_runs_each_job_once(void **state) {
    (void)state;
    struct error err;
    struct submission submission;
    assert_int_equal(worker_new("test", &submission.worker, &err), ST_OK);
    assert_int_equal(worker_start(submission.worker, &err), ST_OK);
    assert_int_equal(helper_pool_new(3, &submission.pool, &err), ST_OK);
    worker_call(submission.worker, submit_all, &submission);
    helper_pool_free(submission.pool);
    worker_stop(submission.worker);
    worker_join(submission.worker);
    worker_free(submission.worker);
    for (size_t i = 0; i < JOBS; i++) {
        assert_int_equal(counted[i].n_run, 1);
        assert_int_equal(counted[i].n_done, 1);
        assert_int_equal(counted[i].wrong, 0);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

enum { MS = 1000 * 1000, MAX_JOBS = 16 };

/* Jobs note that they began. Those that are gated wait then. */
static struct {
    uv_mutex_t mutex;
    uv_sem_t began, open;
    char order[MAX_JOBS + 1], skipped[MAX_JOBS + 1];
    size_t n_begun, n_skipped;
} gate;

struct named {
    struct helper_job job;
    char name;
    bool gated;
};

struct line {
    struct helper_pool *pool;
    struct worker *worker;
    struct named jobs[MAX_JOBS];
    size_t n;
};

static void run_named(struct helper_job *job) {
    struct named *self = (struct named *)job;
    uv_mutex_lock(&gate.mutex);
    gate.order[gate.n_begun++] = self->name;
    uv_mutex_unlock(&gate.mutex);
    if (self->gated) {
        uv_sem_post(&gate.began);
        uv_sem_wait(&gate.open);
    }
}

static void on_named_done(struct helper_job *job) {
    struct named *self = (struct named *)job;
    if (job->skipped) {
        gate.skipped[gate.n_skipped++] = self->name;
    }
}

static void line_init(struct line *line, size_t n_threads) {
    struct error err;
    memset(&gate, 0, sizeof(gate));
    *line = (struct line){.n = 0};
    assert_int_equal(uv_mutex_init(&gate.mutex), 0);
    assert_int_equal(uv_sem_init(&gate.began, 0), 0);
    assert_int_equal(uv_sem_init(&gate.open, 0), 0);
    assert_int_equal(worker_new("test", &line->worker, &err), ST_OK);
    assert_int_equal(helper_pool_new(n_threads, &line->pool, &err), ST_OK);
}

static struct helper_job *line_add(struct line *line, char name, uint64_t conn, unsigned ms,
                                   bool gated) {
    struct named *named = &line->jobs[line->n++];
    *named = (struct named){.name = name,
                            .gated = gated,
                            .job = {.worker = line->worker,
                                    .run = run_named,
                                    .done = on_named_done,
                                    .client = {.host = 1, .conn = conn},
                                    .ns = (uint64_t)ms * MS}};
    helper_pool_submit(line->pool, &named->job);
    return &named->job;
}

struct stop {
    struct worker_msg msg;
    struct worker *worker;
};

static void stop_worker(struct worker_msg *msg) {
    worker_stop(((struct stop *)(void *)msg)->worker);
}

/* Runs what is left, and all `done`. */
static void line_fini(struct line *line) {
    struct stop stop = {.msg.run = stop_worker, .worker = line->worker};
    helper_pool_free(line->pool);
    worker_post(line->worker, &stop.msg);
    worker_run(line->worker);
    worker_free(line->worker);
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_WAITING), 0);
    uv_mutex_destroy(&gate.mutex);
    uv_sem_destroy(&gate.began);
    uv_sem_destroy(&gate.open);
}

static void helper_pool_connections_take_turns(void **state) {
    (void)state;
    struct line line;
    line_init(&line, 1);
    line_add(&line, '-', 9, 2, true);
    uv_sem_wait(&gate.began);
    line_add(&line, 'a', 1, 40, false);
    line_add(&line, 'b', 1, 40, false);
    line_add(&line, 'c', 1, 40, false);
    line_add(&line, 'd', 2, 40, false);
    line_add(&line, 'e', 3, 2, false);
    uv_sem_post(&gate.open);
    line_fini(&line);
    assert_string_equal(gate.order, "-eadbc");
}

static void helper_pool_long_jobs_leave_a_thread_free(void **state) {
    (void)state;
    struct line line;
    line_init(&line, 2);
    line_add(&line, 'A', 1, 300, true);
    uv_sem_wait(&gate.began);
    line_add(&line, 'B', 2, 300, false); /* waits for the first, though a thread is idle */
    line_add(&line, 'c', 3, 40, true);
    uv_sem_wait(&gate.began);
    assert_string_equal(gate.order, "Ac");
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_WAITING), 1);
    uv_sem_post(&gate.open);
    uv_sem_post(&gate.open);
    line_fini(&line);
    assert_string_equal(gate.order, "AcB");
}

static void helper_pool_cancelled_jobs_are_skipped(void **state) {
    (void)state;
    struct line line;
    int64_t skipped = metric_read(METRIC_HELPER_JOBS_CANCELLED_WAITING);
    int64_t stopped = metric_read(METRIC_HELPER_JOBS_CANCELLED_RUNNING);
    line_init(&line, 1);
    struct helper_job *running = line_add(&line, '-', 9, 2, true);
    uv_sem_wait(&gate.began);
    line_add(&line, 'a', 1, 40, false);
    struct helper_job *b = line_add(&line, 'b', 1, 40, false);
    struct helper_job *c = line_add(&line, 'c', 2, 400, false);
    helper_pool_cancel(line.pool, b);
    helper_pool_cancel(line.pool, c);
    helper_pool_cancel(line.pool, c);
    helper_pool_cancel(line.pool, running);
    helper_pool_cancel(line.pool, running);
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_WAITING), 1);
    assert_int_equal(gate.n_skipped, 0); /* `done` runs later */
    uv_sem_post(&gate.open);
    line_fini(&line);
    assert_string_equal(gate.order, "-a");
    assert_string_equal(gate.skipped, "bc");
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_CANCELLED_WAITING), skipped + 2);
    assert_int_equal(metric_read(METRIC_HELPER_JOBS_CANCELLED_RUNNING), stopped + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(helper_pool_runs_each_job_once),
        cmocka_unit_test(helper_pool_connections_take_turns),
        cmocka_unit_test(helper_pool_long_jobs_leave_a_thread_free),
        cmocka_unit_test(helper_pool_cancelled_jobs_are_skipped),
    };
    return cmocka_run_group_tests_name("core/event/helper_pool", tests, NULL, NULL);
}
