/* Helper pool: each job runs once on a helper thread and is done on its worker. */
#include "core/event/helper_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(helper_pool_runs_each_job_once),
    };
    return cmocka_run_group_tests_name("core/event/helper_pool", tests, NULL, NULL);
}
