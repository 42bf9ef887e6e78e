/* Picture jobs: each is completed once, on its worker, however it ends; the queue is bounded;
 * cancelled and refused jobs report their status. The fake part can wait at a gate. */
#include "serve/picture/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/picture/picture_fixture.h"

enum { MANY = 300, OUT_BYTES = 4 * 3 * 3 };

static const struct picture_plan plan = {.width = 4,
                                         .height = 3,
                                         .layout = PICTURE_NHWC,
                                         .datatype = DT_UINT8,
                                         .scale = 1,
                                         .std = {1, 1, 1}};

/* ---- fake part ------------------------------------------------------------------------------- */

static struct {
    uv_sem_t arrived;         /* a decode began */
    uv_sem_t open;            /* one decode may continue */
    _Atomic unsigned n_ended; /* threads that ended */
} gate;

static enum picture_part_result gated_decode(const struct picture_part_file *file,
                                             const struct picture_part_sink *sink) {
    uv_sem_post(&gate.arrived);
    uv_sem_wait(&gate.open);
    return fixture_decode(file, sink);
}

static void thread_end(void) {
    gate.n_ended++;
}

static const struct picture_part gated_part = {.decode = gated_decode, .thread_end = thread_end};
static const struct picture_part good_part = {.decode = fixture_decode, .thread_end = thread_end};

static uint64_t counted_limit; /* of memory; 0: it is not counted */

/* ---- jobs ------------------------------------------------------------------------------------ */

struct rig {
    struct worker *worker;
    struct picture_pool *pool;
    unsigned n_done;
    unsigned n_wanted; /* the loop ends after this many completions */
};

struct task {
    struct picture_job job;
    struct rig *rig;
    unsigned n_done;
    uint8_t out[OUT_BYTES];
};

static void on_done(struct picture_job *job) {
    struct task *task = (struct task *)job;
    assert_true(worker_is_current(job->worker));
    task->n_done++;
    task->rig->n_done++;
    if (task->rig->n_done == task->rig->n_wanted) {
        worker_stop(task->rig->worker);
    }
}

static void task_init(struct task *task, struct rig *rig, struct str file) {
    *task = (struct task){
        .rig = rig,
        .job = {
            .file = file, .plan = &plan, .out = task->out, .worker = rig->worker, .done = on_done}};
}

/* One picture's decoder fits. */
static struct {
    _Atomic unsigned n_taken, n_refused;
    bool is_full; /* none fits */
} memory;

static bool take_memory(void *user, uint64_t n_bytes) {
    (void)user;
    assert_true(n_bytes > 1 << 20);
    if (memory.is_full || memory.n_taken > 0) {
        memory.n_refused++;
        return false;
    }
    memory.n_taken++;
    return true;
}

static void give_memory(void *user, uint64_t n_bytes) {
    (void)user;
    (void)n_bytes;
    memory.n_taken--;
}

static void rig_init(struct rig *rig, const struct picture_part *part, unsigned n_threads,
                     size_t max_queued) {
    struct pictures_options options = {
        .picture_threads = n_threads, .max_queued = max_queued, .max_picture_pixels = 12};
    struct error err;
    if (counted_limit > 0) {
        options.memory = (struct picture_memory){take_memory, give_memory, counted_limit, NULL};
    }
    *rig = (struct rig){0};
    gate.n_ended = 0;
    assert_int_equal(uv_sem_init(&gate.arrived, 0), 0);
    assert_int_equal(uv_sem_init(&gate.open, 0), 0);
    assert_int_equal(worker_new("test", &rig->worker, &err), ST_OK);
    assert_int_equal(picture_pool_new(part, &options, &rig->pool, &err), ST_OK);
}

/* Runs the messages of `n` jobs. */
static void rig_run(struct rig *rig, unsigned n) {
    rig->n_wanted = n;
    while (rig->n_done < n) {
        worker_run(rig->worker);
    }
    assert_int_equal(rig->n_done, n);
}

static void rig_fini(struct rig *rig) {
    worker_free(rig->worker);
    uv_sem_destroy(&gate.arrived);
    uv_sem_destroy(&gate.open);
}

static const struct str png = {FIXTURE_PNG("\0\0\0\4", "\0\0\0\3"),
                               sizeof(FIXTURE_PNG("\0\0\0\4", "\0\0\0\3")) - 1};

/* ---- tests ----------------------------------------------------------------------------------- */

static void pool_jobs_are_done_once_on_their_worker(void **state) {
    (void)state;
    struct rig rig;
    struct task *tasks = calloc(MANY, sizeof(*tasks));
    rig_init(&rig, &good_part, 4, MANY);
    for (int i = 0; i < MANY; i++) {
        task_init(&tasks[i], &rig, i % 3 == 0 ? STR("not a picture") : png);
        picture_pool_submit(rig.pool, &tasks[i].job);
    }
    rig_run(&rig, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(tasks[i].n_done, 1);
        assert_int_equal(tasks[i].job.error.status, i % 3 == 0 ? ST_BAD_PICTURE : ST_OK);
        assert_int_equal(tasks[i].out[OUT_BYTES - 2], i % 3 == 0 ? 0 : 2); /* the last row */
    }
    picture_pool_free(rig.pool);
    assert_int_equal(gate.n_ended, 4);
    rig_fini(&rig);
    free(tasks);
}

static void pool_full_queue_rejects_job(void **state) {
    (void)state;
    struct rig rig;
    struct task tasks[4];
    rig_init(&rig, &gated_part, 1, 2);
    for (int i = 0; i < 4; i++) {
        task_init(&tasks[i], &rig, png);
        picture_pool_submit(rig.pool, &tasks[i].job);
        if (i == 0) {
            uv_sem_wait(&gate.arrived); /* no longer queued */
        }
        assert_int_equal(tasks[i].n_done, 0); /* not before submit returned */
    }
    rig_run(&rig, 1);
    assert_int_equal(tasks[3].job.error.status, ST_OVERLOADED);
    assert_string_equal(tasks[3].job.error.text,
                        "picture queue full: 2 pictures wait to be decoded");
    for (int i = 0; i < 3; i++) {
        uv_sem_post(&gate.open);
    }
    rig_run(&rig, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tasks[i].job.error.status, ST_OK);
    }
    picture_pool_free(rig.pool);
    rig_fini(&rig);
}

/* One job runs and three wait; each in turn is cancelled. */
static void pool_cancelled_job_is_done_with_cancelled(void **state) {
    (void)state;
    for (int cancelled = 0; cancelled < 4; cancelled++) {
        struct rig rig;
        struct task tasks[4];
        rig_init(&rig, &gated_part, 1, 3);
        for (int i = 0; i < 4; i++) {
            task_init(&tasks[i], &rig, png);
            picture_pool_submit(rig.pool, &tasks[i].job);
            if (i == 0) {
                uv_sem_wait(&gate.arrived);
            }
        }
        picture_pool_cancel(rig.pool, &tasks[cancelled].job);
        picture_pool_cancel(rig.pool, &tasks[cancelled].job); /* idempotent */
        for (int i = 0; i < 4; i++) {
            uv_sem_post(&gate.open);
        }
        rig_run(&rig, 4);
        for (int i = 0; i < 4; i++) {
            bool told = i == cancelled && i != 0; /* a running job completes normally */
            assert_int_equal(tasks[i].job.error.status, told ? ST_CANCELLED : ST_OK);
            assert_int_equal(tasks[i].n_done, 1);
        }
        picture_pool_free(rig.pool);
        rig_fini(&rig);
    }
}

static void open_later(void *arg) {
    (void)arg;
    usleep(20000); /* makes it likely that picture_pool_free waits; the test is valid either way */
    uv_sem_post(&gate.open);
}

static void pool_free_cancels_waiting_jobs(void **state) {
    (void)state;
    struct rig rig;
    struct task tasks[3];
    uv_thread_t opener;
    rig_init(&rig, &gated_part, 1, 3);
    for (int i = 0; i < 3; i++) {
        task_init(&tasks[i], &rig, png);
        picture_pool_submit(rig.pool, &tasks[i].job);
        if (i == 0) {
            uv_sem_wait(&gate.arrived);
        }
    }
    assert_int_equal(uv_thread_create(&opener, open_later, NULL), 0);
    picture_pool_free(rig.pool);
    uv_thread_join(&opener);
    assert_int_equal(rig.n_done, 0);
    rig_run(&rig, 3);
    assert_int_equal(tasks[0].job.error.status, ST_OK);
    assert_int_equal(tasks[1].job.error.status, ST_CANCELLED);
    assert_int_equal(tasks[2].job.error.status, ST_CANCELLED);
    rig_fini(&rig);
}

/* ---- turns and memory ------------------------------------------------------------------------ */

/* One client has three pictures in the queue, another one comes with its first. */
static void pool_connections_take_turns(void **state) {
    (void)state;
    static const unsigned conns[] = {1, 1, 1, 1, 2};
    struct rig rig;
    struct task tasks[5];
    rig_init(&rig, &gated_part, 1, 8);
    for (int i = 0; i < 5; i++) {
        task_init(&tasks[i], &rig, png);
        tasks[i].job.client = (struct fair_client){.host = 1, .conn = conns[i]};
        picture_pool_submit(rig.pool, &tasks[i].job);
        if (i == 0) {
            uv_sem_wait(&gate.arrived);
        }
    }
    uv_sem_post(&gate.open);
    uv_sem_post(&gate.open);
    uv_sem_post(&gate.open);
    rig_run(&rig, 3);
    assert_int_equal(tasks[4].n_done, 1);
    assert_int_equal(tasks[3].n_done, 0);
    uv_sem_post(&gate.open);
    uv_sem_post(&gate.open);
    rig_run(&rig, 5);
    picture_pool_free(rig.pool);
    rig_fini(&rig);
}

static void pool_picture_waits_for_memory(void **state) {
    (void)state;
    struct rig rig;
    struct task tasks[2];
    counted_limit = 1 << 24;
    rig_init(&rig, &gated_part, 2, 8);
    for (int i = 0; i < 2; i++) {
        task_init(&tasks[i], &rig, png);
        picture_pool_submit(rig.pool, &tasks[i].job);
    }
    while (memory.n_refused == 0) {
        usleep(1000);
    }
    assert_int_equal(memory.n_taken, 1);
    uv_sem_wait(&gate.arrived);
    assert_int_not_equal(uv_sem_trywait(&gate.arrived), 0);
    uv_sem_post(&gate.open);
    uv_sem_post(&gate.open);
    rig_run(&rig, 2);
    assert_int_equal(tasks[0].job.error.status, ST_OK);
    assert_int_equal(tasks[1].job.error.status, ST_OK);
    picture_pool_free(rig.pool);
    assert_int_equal(memory.n_taken, 0);
    rig_fini(&rig);
    counted_limit = 0;
}

static void pool_picture_without_memory_can_be_cancelled(void **state) {
    (void)state;
    struct rig rig;
    struct task task;
    counted_limit = 1 << 24;
    memory.is_full = true;
    memory.n_refused = 0;
    rig_init(&rig, &good_part, 1, 8);
    task_init(&task, &rig, png);
    picture_pool_submit(rig.pool, &task.job);
    while (memory.n_refused == 0) {
        usleep(1000);
    }
    picture_pool_cancel(rig.pool, &task.job);
    rig_run(&rig, 1);
    assert_int_equal(task.job.error.status, ST_CANCELLED);
    picture_pool_free(rig.pool);
    assert_int_equal(memory.n_taken, 0);
    rig_fini(&rig);
    memory.is_full = false;
    counted_limit = 0;
}

static void pool_picture_over_all_memory_is_refused(void **state) {
    (void)state;
    struct rig rig;
    struct task task;
    counted_limit = 1 << 20;
    rig_init(&rig, &good_part, 1, 8);
    task_init(&task, &rig, png);
    picture_pool_submit(rig.pool, &task.job);
    rig_run(&rig, 1);
    assert_int_equal(task.job.error.status, ST_OVERLOADED);
    assert_non_null(strstr(task.job.error.text, "(--client-memory)"));
    picture_pool_free(rig.pool);
    rig_fini(&rig);
    counted_limit = 0;
}

/* ---- without the part ------------------------------------------------------------------------ */

static void check_missing(const char *path, const char *why) {
    struct pictures_options options = {
        .part = path, .picture_threads = 2, .max_queued = 5, .max_picture_pixels = 12};
    struct pictures *pictures = NULL;
    struct error err;
    struct rig rig = {0};
    struct task task;
    assert_int_equal(worker_new("test", &rig.worker, &err), ST_OK);
    assert_int_equal(pictures_new(&options, &pictures, &err), ST_OK);
    assert_non_null(pictures_missing(pictures));
    assert_non_null(strstr(pictures_missing(pictures), path));
    assert_non_null(strstr(pictures_missing(pictures), why));
    assert_non_null(strstr(pictures_missing(pictures), "tools/bootstrap pictures, then make"));
    task_init(&task, &rig, png);
    picture_submit(pictures, &task.job);
    assert_int_equal(task.n_done, 0);
    picture_cancel(pictures, &task.job);
    rig_run(&rig, 1);
    assert_int_equal(task.job.error.status, ST_UNSUPPORTED);
    assert_string_equal(task.job.error.text, pictures_missing(pictures));
    pictures_free(pictures);
    worker_free(rig.worker);
}

static void pictures_missing_part_reports_reason(void **state) {
    (void)state;
    check_missing("/nowhere/libsluice_pictures.so", "No such file");
    check_missing("/proc/self/status", "invalid ELF header");
    check_missing("libc.so.6", "undefined symbol");
    pictures_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_jobs_are_done_once_on_their_worker),
        cmocka_unit_test(pool_full_queue_rejects_job),
        cmocka_unit_test(pool_cancelled_job_is_done_with_cancelled),
        cmocka_unit_test(pool_free_cancels_waiting_jobs),
        cmocka_unit_test(pool_connections_take_turns),
        cmocka_unit_test(pool_picture_waits_for_memory),
        cmocka_unit_test(pool_picture_without_memory_can_be_cancelled),
        cmocka_unit_test(pool_picture_over_all_memory_is_refused),
        cmocka_unit_test(pictures_missing_part_reports_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
