/* Inline execution at the end of an event-loop iteration: batch composition, calls left to the
 * instances, and calls that never run. The clock is driven by the test. */
#include "serve/scheduler/call_run.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { BEGIN_NS = 1000000000, US = 1000 };

/* Calls with this many rows are executed alone. */
enum { ALONE = RIG_ROWS_MAX };

static const struct model_config on_worker = {.run_on = RUN_ON_WORKER};

static void start(struct rig *rig, const struct model_config *config) {
    clock_set_fake_ns(BEGIN_NS);
    rig_open(rig, config, 100);
}

static void end(struct rig *rig) {
    rig_await_unused(rig);
    rig_close(rig);
    clock_set_fake_ns(0);
}

static int64_t n_inline(void) {
    return metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
}

static void assert_ok(const struct rig *rig, int n) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(rig->calls[i].n_done, 1);
        assert_int_equal(rig->calls[i].error.status, ST_OK);
        assert_memory_equal(rig->calls[i].y, rig->calls[i].x, rig->calls[i].piece.n_bytes);
    }
}

/* Expects these numbers of requests per execution. */
static void assert_sizes(const struct rig *rig, const int *sizes, int n) {
    assert_int_equal(atomic_load(&rig->model->n_executions), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(atomic_load(&rig->model->sizes[i]), sizes[i]);
    }
}

static void put(struct rig *rig, size_t i, int64_t rows, const struct param *param) {
    struct rig_call *call = rig_make(rig, i, rows, (float)i);
    call->request.params = (struct params){param, param ? 1 : 0};
    rig_submit(call);
}

/* Makes a model fast by measurement, so that it runs on workers. */
static void run_one(struct rig *rig) {
    rig_send(rig, 0);
}

static struct exec_time_stats *times_of(struct rig *rig) {
    return &rig->version->shape_times.fixed;
}

/* An instance counts an execution after its answer. */
static void wait_for_quick(struct rig *rig, int n) {
    const struct exec_time_stats *times = times_of(rig);
    while (!exec_time_stats_is_fast(times) &&
           __builtin_popcount(atomic_load(&times->history) & 0xffffu) < n) {
        sched_yield();
    }
}

/* The limit of rows per inline batch is that of the configuration. */
static void prove_quick(struct rig *rig) {
    for (int i = 0; i < EXEC_FAST_MIN_COUNT; i++) {
        rig_run(rig, run_one, 1);
        wait_for_quick(rig, i + 1);
    }
    assert_true(exec_time_stats_is_fast(times_of(rig)));
    exec_time_stats_add(times_of(rig), 1, ALONE, NULL);
    atomic_store(&rig->model->n_executions, 0);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void send_five(struct rig *rig) {
    for (size_t i = 0; i < 5; i++) {
        rig_send(rig, i);
        assert_int_equal(call_state(&rig->calls[i].call), CALL_INLINE_QUEUED);
    }
    clock_set_fake_ns(clock_now_ns() + 7 * US);
}

static void inline_queue_calls_of_one_iteration_share_a_batch(void **state) {
    static struct rig rig;
    static const int sizes[] = {5};
    struct model_statistics counted;
    int64_t before = n_inline();
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_five, 5);
    assert_ok(&rig, 5);
    assert_sizes(&rig, sizes, 1);
    assert_int_equal(n_inline() - before, 1);
    model_version_statistics(rig.version, &counted);
    assert_int_equal(counted.success.count, 5);
    assert_int_equal(counted.n_inferences, 5);
    assert_int_equal(counted.n_executions, 1);
    assert_int_equal(counted.queue.ns, 5 * 7 * US); /* until the iteration's end */
    assert_int_equal(counted.n_queued + counted.n_running, 0);
    end(&rig);
}

static void send_what_does_not_fit(struct rig *rig) {
    static const struct param apart = {.name = STR("k"), .kind = PARAM_BOOL, .boolean = true};
    put(rig, 0, 3, NULL);
    put(rig, 1, 1, &apart);
    put(rig, 2, 3, NULL);
    put(rig, 3, 3, NULL); /* 9 rows with the others exceed a batch, 8 fill one */
    put(rig, 4, 2, &apart);
}

static void inline_queue_incompatible_calls_run_separately(void **state) {
    static struct rig rig;
    static const int sizes[] = {2, 2, 1}, order[] = {0, 2, 1, 4, 3};
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_what_does_not_fit, 5);
    assert_ok(&rig, 5);
    assert_sizes(&rig, sizes, 3);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
    }
    end(&rig);
}

static void send_two_priorities(struct rig *rig) {
    static const struct param first = {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 1};
    put(rig, 0, ALONE, NULL);
    put(rig, 1, ALONE, NULL);
    put(rig, 2, ALONE, &first);
}

static void inline_queue_higher_priority_runs_first(void **state) {
    static struct rig rig;
    static const struct model_config config = {
        .run_on = RUN_ON_WORKER, .priority_levels = 2, .default_priority = 2};
    static const int order[] = {2, 0, 1};
    (void)state;
    start(&rig, &config);
    rig_run(&rig, send_two_priorities, 3);
    assert_ok(&rig, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
    }
    end(&rig);
}

/* ---- flush threshold ------------------------------------------------------------------------- */

enum { MANY = 40 };

static size_t ended_at[MANY]; /* number of calls when the iteration was ended */
static size_t n_ended;

/* As a front end that reads them does. */
static void send_many(struct rig *rig) {
    n_ended = 0;
    for (size_t i = 0; i < MANY; i++) {
        rig_send(rig, i);
        if (loop_iteration_run_if_full(worker_loop_iteration(rig->worker))) {
            assert_int_equal(rig->n_done, i + 1);
            ended_at[n_ended++] = i + 1;
        }
    }
}

static void inline_queue_flush_limit_ends_iteration_early(void **state) {
    static struct rig rig;
    static const int sizes[] = {8, 8, 8, 8, 8};
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_many, MANY);
    assert_ok(&rig, MANY);
    assert_sizes(&rig, sizes, 5);
    assert_int_equal(n_ended, 2);
    assert_int_equal(ended_at[0], 16);
    assert_int_equal(ended_at[1], 32);
    end(&rig);
}

static void inline_queue_preferred_size_raises_flush_limit(void **state) {
    static struct rig rig;
    static const uint64_t preferred[] = {4, 24};
    static const struct model_config config = {.run_on = RUN_ON_WORKER,
                                               .has_max_batch_size = true,
                                               .max_batch_size = 32,
                                               .preferred_batch_sizes = preferred,
                                               .n_preferred = 2};
    (void)state;
    start(&rig, &config);
    rig_run(&rig, send_many, MANY);
    assert_ok(&rig, MANY);
    assert_int_equal(n_ended, 1);
    assert_int_equal(ended_at[0], 24);
    end(&rig);
}

/* ---- immediate execution --------------------------------------------------------------------- */

static void send_at_once(struct rig *rig) {
    for (size_t i = 0; i < 3; i++) {
        rig_make(rig, i, 1, (float)i)->call.run_immediately = i != 1;
        rig_submit(&rig->calls[i]);
    }
    assert_int_equal(rig->calls[0].n_done, 1);
    assert_int_equal(rig->calls[1].n_done, 0);
    assert_int_equal(rig->calls[2].n_done, 0); /* must not overtake */
}

static void inline_queue_run_immediately_skips_the_queue(void **state) {
    static struct rig rig;
    static const int sizes[] = {1, 2};
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_at_once, 3);
    assert_ok(&rig, 3);
    assert_sizes(&rig, sizes, 2);
    end(&rig);
}

/* ---- the iteration's time -------------------------------------------------------------------- */

static void send_eight_alone(struct rig *rig) {
    for (size_t i = 0; i < 8; i++) {
        put(rig, i, ALONE, NULL);
    }
}

static void inline_queue_time_budget_moves_rest_to_instances(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, NULL);
    rig.model->execution_ns = 30 * US;
    prove_quick(&rig);
    int64_t before = n_inline();
    rig_run(&rig, send_eight_alone, 8);
    assert_ok(&rig, 8);
    assert_int_equal(n_inline() - before, 4); /* 90 us were spent when the fourth began */
    assert_true(exec_time_stats_is_fast(times_of(&rig)));
    end(&rig);
}

static void inline_queue_run_on_worker_ignores_time_budget(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &on_worker);
    rig.model->execution_ns = 300 * US;
    int64_t before = n_inline();
    rig_run(&rig, send_eight_alone, 8);
    assert_ok(&rig, 8);
    assert_int_equal(n_inline() - before, 8);
    end(&rig);
}

/* A message that the worker gets in the next iteration. */
static struct {
    struct worker_msg msg;
    struct rig *rig;
    int n_executions; /* when it came */
} next_iteration;

static void on_next_iteration(struct worker_msg *msg) {
    (void)msg;
    next_iteration.n_executions = atomic_load(&next_iteration.rig->model->n_executions);
}

static void send_eight_alone_and_a_message(struct rig *rig) {
    send_eight_alone(rig);
    next_iteration.rig = rig;
    next_iteration.msg.run = on_next_iteration;
    worker_post(rig->worker, &next_iteration.msg);
}

static void inline_queue_run_on_worker_lets_other_events_in_between(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &on_worker);
    rig.model->execution_ns = 1500 * US;
    int64_t before = n_inline();
    rig_run(&rig, send_eight_alone_and_a_message, 8);
    assert_ok(&rig, 8);
    /* 1.5 ms were spent when the second began; one more before the poll */
    assert_int_equal(next_iteration.n_executions, 3);
    assert_int_equal(n_inline() - before, 8);
    end(&rig);
}

static struct rig other;

static void send_for_two_models(struct rig *rig) {
    other.worker = rig->worker;
    put(&other, 0, ALONE, NULL);
    for (size_t i = 0; i < 4; i++) {
        put(rig, i, ALONE, NULL);
    }
}

static void inline_queue_time_budget_is_shared_by_models(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, NULL);
    rig_open(&other, &on_worker, 0);
    rig.model->execution_ns = 40 * US;
    other.model->execution_ns = 70 * US;
    prove_quick(&rig);
    int64_t before = n_inline();
    rig_run(&rig, send_for_two_models, 4);
    assert_ok(&rig, 4);
    assert_int_equal(other.calls[0].error.status, ST_OK);
    assert_int_equal(n_inline() - before, 1 + 1); /* 70 us and 40 us reach the limit */
    rig_close(&other);
    end(&rig);
}

static void send_eight(struct rig *rig) {
    for (size_t i = 0; i < 8; i++) {
        rig_send(rig, i);
    }
}

static void inline_queue_batch_size_adapts_to_exec_time(void **state) {
    static struct rig rig;
    static const int n_executions[] = {1, 1, 2}; /* of 8 (too long), of 4 (too long), of 2 */
    (void)state;
    start(&rig, NULL);
    rig.model->execution_ns = 30 * US;
    prove_quick(&rig);
    for (int i = 0; i < 3; i++) {
        int64_t before = n_inline();
        rig_run(&rig, send_eight, 8);
        assert_ok(&rig, 8);
        assert_int_equal(n_inline() - before, n_executions[i]);
    }
    assert_int_equal(exec_time_stats_max_rows(times_of(&rig)), 2);
    assert_true(exec_time_stats_is_fast(times_of(&rig)));
    end(&rig);
}

static void send_rows(struct rig *rig) {
    put(rig, 0, ALONE, NULL);
}

/* Executions of one row say nothing about eight: those run on an instance until they were quick. */
static void inline_queue_more_rows_than_seen_use_instance(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, NULL);
    rig.model->execution_ns = US;
    for (int i = 0; i < EXEC_FAST_MIN_COUNT; i++) {
        exec_time_stats_add(times_of(&rig), US, 1, NULL);
    }
    assert_int_equal(exec_time_stats_max_rows(times_of(&rig)), 2);
    int64_t before = n_inline();
    rig_run(&rig, send_rows, 1);
    assert_ok(&rig, 1);
    assert_int_equal(n_inline(), before);
    while (exec_time_stats_max_rows(times_of(&rig)) == 2) { /* counted after the answer */
        sched_yield();
    }
    assert_int_equal(exec_time_stats_max_rows(times_of(&rig)), 2 * ALONE);
    rig_run(&rig, send_rows, 1);
    assert_int_equal(n_inline(), before + 1);
    end(&rig);
}

static void send_one_and_see_it_queued(struct rig *rig) {
    rig_send(rig, 0);
    assert_true(call_state(&rig->calls[0].call) != CALL_INLINE_QUEUED);
    clock_set_fake_ns(clock_now_ns() + 1000 * US);
}

static void inline_queue_queue_delay_uses_instance(void **state) {
    static struct rig rig;
    static const struct model_config config = {.max_queue_delay_us = 1000};
    (void)state;
    start(&rig, &config);
    for (int i = 0; i < EXEC_FAST_MIN_COUNT; i++) {
        exec_time_stats_add(times_of(&rig), 1, 1, NULL);
    }
    int64_t before = n_inline();
    rig_run(&rig, send_one_and_see_it_queued, 1);
    assert_ok(&rig, 1);
    assert_int_equal(n_inline(), before);
    end(&rig);
}

/* ---- calls that never run -------------------------------------------------------------------- */

static void send_three_and_cancel_two(struct rig *rig) {
    for (size_t i = 0; i < 3; i++) {
        rig_send(rig, i);
    }
    call_cancel(&rig->calls[2].call);
    call_cancel(&rig->calls[0].call);
    assert_int_equal(rig->n_done, 2);
}

static void inline_queue_cancelled_calls_are_dropped(void **state) {
    static struct rig rig;
    int64_t before = metric_read(METRIC_DROPPED_CANCELLED);
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_three_and_cancel_two, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig.calls[i].error.status, i == 1 ? ST_OK : ST_CANCELLED);
    }
    assert_int_equal(atomic_load(&rig.model->n_started), 1);
    assert_int_equal(metric_read(METRIC_DROPPED_CANCELLED), before + 2);
    end(&rig);
}

static void send_and_cancel_all(struct rig *rig) {
    rig_send(rig, 0);
    call_cancel(&rig->calls[0].call);
    rig_send(rig, 1);
    call_cancel(&rig->calls[1].call);
}

static void inline_queue_all_cancelled_runs_nothing(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_and_cancel_all, 2);
    assert_int_equal(atomic_load(&rig.model->n_executions), 0);
    end(&rig);
}

/* The iteration takes two milliseconds. */
static void send_two_that_are_late(struct rig *rig) {
    static const struct param in_a_millisecond = {
        .name = STR("timeout"), .kind = PARAM_INT64, .int64 = 1000};
    rig_send(rig, 0);
    put(rig, 1, 1, &in_a_millisecond);
    rig_make(rig, 2, 1, 2)->request.deadline_ns = clock_now_ns() + 2000 * US;
    rig_submit(&rig->calls[2]);
    rig_send(rig, 3);
    clock_set_fake_ns(clock_now_ns() + 2000 * US);
}

static void inline_queue_expired_calls_are_dropped(void **state) {
    static struct rig rig;
    static const struct model_config config = {.run_on = RUN_ON_WORKER,
                                               .queue = {.allow_override = true}};
    static const int sizes[] = {2};
    int64_t timeouts = metric_read(METRIC_DROPPED_QUEUE_TIMEOUT);
    int64_t deadlines = metric_read(METRIC_DROPPED_DEADLINE);
    (void)state;
    start(&rig, &config);
    rig_run(&rig, send_two_that_are_late, 4);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[1].error.status, ST_QUEUE_TIMEOUT);
    assert_int_equal(rig.calls[2].error.status, ST_DEADLINE_EXCEEDED);
    assert_int_equal(rig.calls[3].error.status, ST_OK);
    assert_sizes(&rig, sizes, 1);
    assert_int_equal(metric_read(METRIC_DROPPED_QUEUE_TIMEOUT), timeouts + 1);
    assert_int_equal(metric_read(METRIC_DROPPED_DEADLINE), deadlines + 1);
    end(&rig);
}

static struct instance *taken;

/* Two calls wait in the queue, which is full then. */
static void see_one_refused(struct rig *rig) {
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig->calls[i].n_done, i == 2);
    }
    instance_release(taken);
}

static void send_past_a_busy_instance(struct rig *rig) {
    taken = instance_claim(rig->version, NULL);
    for (size_t i = 0; i < 3; i++) {
        rig_send(rig, i);
    }
    rig_then(rig, see_one_refused);
}

static void inline_queue_busy_instance_full_queue_rejects(void **state) {
    static struct rig rig;
    static const struct model_config config = {.run_on = RUN_ON_WORKER, .queue.max_size = 2};
    int64_t before = metric_read(METRIC_DROPPED_QUEUE_FULL);
    (void)state;
    start(&rig, &config);
    rig_run(&rig, send_past_a_busy_instance, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig.calls[i].error.status, i == 2 ? ST_QUEUE_FULL : ST_OK);
    }
    assert_int_equal(metric_read(METRIC_DROPPED_QUEUE_FULL), before + 1);
    end(&rig);
}

/* ---- ordering -------------------------------------------------------------------------------- */

/* Each answer triggers the next request, as in a stream; other events are handled in between. */
static void send_the_next(struct call *done) {
    struct rig *rig = ((struct rig_call *)(void *)done)->rig;
    rig_done(done);
    if (rig->n_done < rig->expected) {
        size_t i = (size_t)rig->n_done;
        rig_make(rig, i, 1, (float)i)->call.done = send_the_next;
        rig_submit(&rig->calls[i]);
        assert_int_equal(rig->calls[i].n_done, 0); /* not within the previous call's completion */
    }
}

static void send_the_first(struct rig *rig) {
    rig_make(rig, 0, 1, 0)->call.done = send_the_next;
    rig_submit(&rig->calls[0]);
}

static void inline_queue_request_from_done_runs_next_iteration(void **state) {
    static struct rig rig;
    static const int sizes[] = {1, 1, 1, 1};
    (void)state;
    start(&rig, &on_worker);
    rig_run(&rig, send_the_first, 4);
    assert_ok(&rig, 4);
    assert_sizes(&rig, sizes, 4);
    end(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inline_queue_calls_of_one_iteration_share_a_batch),
        cmocka_unit_test(inline_queue_incompatible_calls_run_separately),
        cmocka_unit_test(inline_queue_higher_priority_runs_first),
        cmocka_unit_test(inline_queue_flush_limit_ends_iteration_early),
        cmocka_unit_test(inline_queue_preferred_size_raises_flush_limit),
        cmocka_unit_test(inline_queue_run_immediately_skips_the_queue),
        cmocka_unit_test(inline_queue_time_budget_moves_rest_to_instances),
        cmocka_unit_test(inline_queue_run_on_worker_ignores_time_budget),
        cmocka_unit_test(inline_queue_run_on_worker_lets_other_events_in_between),
        cmocka_unit_test(inline_queue_time_budget_is_shared_by_models),
        cmocka_unit_test(inline_queue_batch_size_adapts_to_exec_time),
        cmocka_unit_test(inline_queue_more_rows_than_seen_use_instance),
        cmocka_unit_test(inline_queue_queue_delay_uses_instance),
        cmocka_unit_test(inline_queue_cancelled_calls_are_dropped),
        cmocka_unit_test(inline_queue_all_cancelled_runs_nothing),
        cmocka_unit_test(inline_queue_expired_calls_are_dropped),
        cmocka_unit_test(inline_queue_busy_instance_full_queue_rejects),
        cmocka_unit_test(inline_queue_request_from_done_runs_next_iteration),
    };
    return cmocka_run_group_tests_name("serve/scheduler/inline_queue", tests, NULL, NULL);
}
