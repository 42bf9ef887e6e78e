/* Waiting calls: priorities, timeouts, deadlines, and preserve_ordering. The clock is driven by the
 * test, so nothing expires before the test advances it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"
#include "serve/scheduler/call_run.h"

enum { BEGIN_NS = 1000000000, MS = 1000000 };

/* Calls with this many rows are executed alone. */
enum { ALONE = RIG_ROWS_MAX };

static struct rig_call *make(struct rig *rig, size_t i, const struct param *param) {
    struct rig_call *call = rig_make(rig, i, ALONE, (float)i);
    call->request.params = (struct params){param, param ? 1 : 0};
    return call;
}

static void put(struct rig *rig, size_t i, const struct param *param) {
    rig_submit(make(rig, i, param));
}

/* Call 0 runs, and the others have to wait. */
static void occupy(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    put(rig, 0, NULL);
    rig_await_started(rig, 1);
}

static void move_clock(uint64_t ns) {
    clock_set_fake_ns(clock_now_ns() + ns);
}

static void start(struct rig *rig, const struct model_config *config) {
    clock_set_fake_ns(BEGIN_NS);
    rig_open(rig, config, 100);
}

static void end(struct rig *rig) {
    rig_close(rig);
    clock_set_fake_ns(0);
}

/* Opens the gate when so many calls are done. */
static void done_then_open(struct call *done) {
    struct rig *rig = ((struct rig_call *)(void *)done)->rig;
    rig_done(done);
    if (rig->n_done == rig->expected - 1) {
        atomic_store(&rig->model->gate_closed, false);
    }
}

/* ---- priorities ------------------------------------------------------------------------------ */

static const struct param to_level[] = {
    {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 0},
    {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 1},
    {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 2},
    {.name = STR("priority"), .kind = PARAM_INT64, .int64 = 3},
};
static const struct model_config_level level_limits[] = {{1, {.max_size = 1}},
                                                         {3, {.max_size = 2}}};
static const struct model_config three_levels = {.run_on = RUN_ON_INSTANCE,
                                                 .priority_levels = 3,
                                                 .default_priority = 2,
                                                 .levels = level_limits,
                                                 .n_levels = 2};

static void send_all_priorities(struct rig *rig) {
    static const int levels[] = {-1, 3, 2, 1, 0, 3, 2};
    occupy(rig);
    for (size_t i = 1; i < 7; i++) {
        put(rig, i, &to_level[levels[i]]);
    }
    atomic_store(&rig->model->gate_closed, false);
}

static void queue_higher_priority_runs_first(void **state) {
    static struct rig rig;
    (void)state;
    static const int order[] = {0, 3, 2, 4, 6, 1, 5};
    start(&rig, &three_levels);
    rig_run(&rig, send_all_priorities, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
        assert_int_equal(rig.calls[i].error.status, ST_OK);
    }
    end(&rig);
}

static void send_more_than_a_level_takes(struct rig *rig) {
    static const int levels[] = {-1, 1, 1, 3, 3, 3, 2, 2};
    occupy(rig);
    for (size_t i = 1; i < 8; i++) {
        put(rig, i, &to_level[levels[i]]);
    }
    atomic_store(&rig->model->gate_closed, false);
}

static void queue_level_limit_rejects_per_level(void **state) {
    static struct rig rig;
    (void)state;
    int64_t before = metric_read(METRIC_DROPPED_QUEUE_FULL);
    start(&rig, &three_levels);
    rig_run(&rig, send_more_than_a_level_takes, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(rig.calls[i].error.status, i == 2 || i == 5 ? ST_QUEUE_FULL : ST_OK);
    }
    assert_non_null(strstr(rig.calls[2].error.text, "1 request waits"));
    assert_int_equal(metric_read(METRIC_DROPPED_QUEUE_FULL), before + 2);
    end(&rig);
}

static void send_a_wrong_priority(struct rig *rig) {
    static const struct param wrong = {
        .name = STR("priority"), .kind = PARAM_STRING, .string = STR("high")};
    put(rig, 0, &wrong);
}

static void queue_invalid_priority_is_refused(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, NULL);
    rig_run(&rig, send_a_wrong_priority, 1);
    assert_int_equal(rig.calls[0].error.status, ST_BAD_FIELD);
    end(&rig);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static const struct param in_a_millisecond = {
    .name = STR("timeout"), .kind = PARAM_INT64, .int64 = 1000};
static const struct model_config times_out = {
    .run_on = RUN_ON_INSTANCE, .queue = {.timeout_us = 3000, .allow_override = true}};

/* Two with a timeout of three milliseconds, two of one. */
static void send_four_that_are_late(struct rig *rig) {
    occupy(rig);
    for (size_t i = 1; i < 5; i++) {
        make(rig, i, i > 2 ? &in_a_millisecond : NULL)->call.done = done_then_open;
        rig_submit(&rig->calls[i]);
    }
    move_clock(3 * MS);
}

/* The instance stays busy, so only the worker's timer can expire the call. */
static void queue_timeout_timer_drops_call(void **state) {
    static struct rig rig;
    (void)state;
    static const int turns[] = {4, 2, 3, 0, 1};
    int64_t before = metric_read(METRIC_DROPPED_QUEUE_TIMEOUT);
    start(&rig, &times_out);
    rig_run(&rig, send_four_that_are_late, 5);
    assert_int_equal(rig.calls[0].error.status, ST_OK); /* it was running */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(rig.calls[i].done_index, turns[i]);
        assert_int_equal(rig.calls[i].error.status, i == 0 ? ST_OK : ST_QUEUE_TIMEOUT);
    }
    assert_non_null(strstr(rig.calls[1].error.text, "waited 3000 us"));
    assert_non_null(strstr(rig.calls[3].error.text, "waited 1000 us"));
    assert_non_null(strstr(rig.calls[3].error.text, "default_timeout_microseconds"));
    assert_int_equal(atomic_load(&rig.model->n_started), 1);
    assert_int_equal(metric_read(METRIC_DROPPED_QUEUE_TIMEOUT), before + 4);
    end(&rig);
}

static void send_two_in_time(struct rig *rig) {
    occupy(rig);
    put(rig, 1, NULL);
    put(rig, 2, NULL);
    move_clock(3 * MS - 1);
    atomic_store(&rig->model->gate_closed, false);
}

static void queue_timeout_call_in_time_is_executed(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &times_out);
    rig_run(&rig, send_two_in_time, 3);
    assert_int_equal(rig.calls[1].error.status, ST_OK);
    assert_int_equal(rig.calls[2].error.status, ST_OK);
    end(&rig);
}

/* The worker is busy and its timers are late when the instance becomes idle: the expired call is
 * not executed, the next one is. */
static void send_one_late_and_open_the_gate(struct rig *rig) {
    occupy(rig);
    put(rig, 1, &in_a_millisecond);
    put(rig, 2, NULL);
    move_clock(2 * MS);
    atomic_store(&rig->model->gate_closed, false);
    rig_await_started(rig, 2);
}

static void queue_timeout_expired_call_is_never_executed(void **state) {
    static struct rig rig;
    (void)state;
    start(&rig, &times_out);
    rig_run(&rig, send_one_late_and_open_the_gate, 3);
    assert_int_equal(rig.calls[1].error.status, ST_QUEUE_TIMEOUT);
    assert_int_equal(rig.calls[2].error.status, ST_OK);
    assert_int_equal(atomic_load(&rig.model->n_started), 2);
    end(&rig);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void send_with_deadlines(struct rig *rig) {
    occupy(rig);
    for (size_t i = 1; i < 4; i++) {
        make(rig, i, NULL)->request.deadline_ns = clock_now_ns() + i * MS;
        rig->calls[i].call.done = done_then_open;
        rig_submit(&rig->calls[i]);
    }
    make(rig, 4, NULL)->request.deadline_ns = clock_now_ns();
    rig_submit(&rig->calls[4]); /* already expired */
    assert_int_equal(rig->calls[4].n_done, 1);
    move_clock(3 * MS);
}

static void queue_request_deadline_drops_call(void **state) {
    static struct rig rig;
    (void)state;
    int64_t before = metric_read(METRIC_DROPPED_DEADLINE);
    start(&rig, &times_out);
    rig_run(&rig, send_with_deadlines, 5);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(rig.calls[i].error.status, ST_DEADLINE_EXCEEDED);
    }
    assert_non_null(strstr(rig.calls[1].error.text, "\"m\""));
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(metric_read(METRIC_DROPPED_DEADLINE), before + 4);
    end(&rig);
}

static void send_one_that_would_wait_past_its_deadline(struct rig *rig) {
    struct rig_call *call = rig_make(rig, 0, 1, 0);
    call->request.deadline_ns = clock_now_ns() + 4 * MS;
    rig_submit(call);
    move_clock(2 * MS);
}

/* The batch delay of an hour must not expire a call. */
static void queue_batch_delay_is_at_most_half_the_deadline(void **state) {
    static struct rig rig;
    (void)state;
    static const struct model_config config = {.run_on = RUN_ON_INSTANCE,
                                               .max_queue_delay_us = UINT64_C(3600) * 1000000};
    start(&rig, &config);
    rig_run(&rig, send_one_that_would_wait_past_its_deadline, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    end(&rig);
}

/* ---- delay instead of refusal ---------------------------------------------------------------- */

static size_t n_yielded(struct rig *rig) {
    struct scheduler *scheduler = &rig->version->scheduler;
    lock_acquire(&scheduler->lock);
    size_t n = scheduler->queue.classes[1].n;
    lock_release(&scheduler->lock);
    return n;
}

static void *open_when_two_have_yielded(void *arg) {
    struct rig *rig = arg;
    while (n_yielded(rig) < 2) {
        rig_pause();
    }
    atomic_store(&rig->model->gate_closed, false);
    return NULL;
}

static void send_two_that_let_two_pass(struct rig *rig) {
    pthread_t thread;
    occupy(rig);
    put(rig, 1, NULL);
    put(rig, 2, NULL);
    move_clock(MS);
    put(rig, 3, NULL);
    put(rig, 4, NULL);
    move_clock(2 * MS);
    assert_int_equal(pthread_create(&thread, NULL, open_when_two_have_yielded, rig), 0);
    pthread_detach(thread);
}

static void queue_timeout_action_delay_moves_call_back(void **state) {
    static struct rig rig;
    (void)state;
    static const struct model_config config = {
        .run_on = RUN_ON_INSTANCE, .queue = {.timeout_us = 3000, .delay_on_timeout = true}};
    static const int order[] = {0, 3, 4, 1, 2};
    start(&rig, &config);
    rig_run(&rig, send_two_that_let_two_pass, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), order[i]);
        assert_int_equal(rig.calls[i].error.status, ST_OK);
    }
    end(&rig);
}

static void send_one_that_is_delayed_and_then_late(struct rig *rig) {
    occupy(rig);
    make(rig, 1, NULL)->request.deadline_ns = clock_now_ns() + 5 * MS;
    rig->calls[1].call.done = done_then_open;
    rig_submit(&rig->calls[1]);
    move_clock(3 * MS);
}

static void *move_on_when_one_has_yielded(void *arg) {
    while (n_yielded(arg) < 1) {
        rig_pause();
    }
    move_clock(2 * MS);
    return NULL;
}

static void send_one_and_watch(struct rig *rig) {
    pthread_t thread;
    send_one_that_is_delayed_and_then_late(rig);
    assert_int_equal(pthread_create(&thread, NULL, move_on_when_one_has_yielded, rig), 0);
    pthread_detach(thread);
}

static void queue_delayed_call_still_has_deadline(void **state) {
    static struct rig rig;
    (void)state;
    static const struct model_config config = {
        .run_on = RUN_ON_INSTANCE, .queue = {.timeout_us = 3000, .delay_on_timeout = true}};
    start(&rig, &config);
    rig_run(&rig, send_one_and_watch, 2);
    assert_int_equal(rig.calls[1].error.status, ST_DEADLINE_EXCEEDED);
    end(&rig);
}

/* ---- order ----------------------------------------------------------------------------------- */

static const struct model_config ordered = {
    .instance_count = 2, .preserve_ordering = true, .run_on = RUN_AUTO};

/* The first is answered after two others. */
static void first_takes_long(sluice_model *model, const sluice_request *request) {
    const float *x = request->inputs[0].pieces[0].data;
    while (x[0] == 0 && atomic_load(&model->n_started) < 4) {
        rig_pause();
    }
    rig_echo(model, request);
}

static void send_five(struct rig *rig) {
    for (size_t i = 0; i < 5; i++) {
        put(rig, i, NULL);
    }
}

static void queue_preserve_ordering_keeps_response_order(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &ordered, 0);
    rig.model->handle_request = first_takes_long;
    rig_run(&rig, send_five, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(rig.calls[i].done_index, i);
        assert_int_equal(rig.calls[i].error.status, ST_OK);
    }
    rig_close(&rig);
}

static atomic_bool call_2_is_gone;

/* After call 3 the instance stays busy until then. */
static void busy_after_3(sluice_model *model, const sluice_request *request) {
    const float *x = request->inputs[0].pieces[0].data;
    bool last = x[0] == 3;
    rig_echo(model, request);
    while (last && !atomic_load(&call_2_is_gone)) {
        rig_pause();
    }
}

/* 1 and 3 share a batch without 2: 3 is answered while 2 still waits. */
static void cancel_who_holds_up_another(struct rig *rig) {
    static const struct param apart = {.name = STR("k"), .kind = PARAM_BOOL, .boolean = true};
    occupy(rig);
    rig_submit(rig_make(rig, 1, 1, 1));
    struct rig_call *other = rig_make(rig, 2, 1, 2);
    other->request.params = (struct params){&apart, 1};
    rig_submit(other);
    rig_submit(rig_make(rig, 3, 1, 3));
    rig->model->handle_request = busy_after_3;
    atomic_store(&rig->model->gate_closed, false);
    while (call_state(&rig->calls[3].call) != CALL_ANSWERED) {
        rig_pause();
    }
    call_cancel(&other->call);
    assert_int_equal(other->n_done, 1);
    atomic_store(&call_2_is_gone, true);
}

static void queue_preserve_ordering_cancelled_call_does_not_block(void **state) {
    static struct rig rig;
    (void)state;
    static const int turns[] = {1, 2, 0, 3};
    struct model_config one = ordered;
    one.instance_count = 1;
    rig_open(&rig, &one, 0);
    rig_run(&rig, cancel_who_holds_up_another, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rig.calls[i].done_index, turns[i]);
        assert_int_equal(rig.calls[i].error.status, i == 2 ? ST_CANCELLED : ST_OK);
    }
    rig_close(&rig);
}

static void queue_preserve_ordering_on_worker_is_refused(void **state) {
    static struct rig rig;
    (void)state;
    struct error err;
    struct model_config config = ordered;
    config.run_on = RUN_ON_WORKER;
    assert_int_equal(rig_open_with(&rig, &rig_backend, &config, 0, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "preserve_ordering"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_higher_priority_runs_first),
        cmocka_unit_test(queue_level_limit_rejects_per_level),
        cmocka_unit_test(queue_invalid_priority_is_refused),
        cmocka_unit_test(queue_timeout_timer_drops_call),
        cmocka_unit_test(queue_timeout_call_in_time_is_executed),
        cmocka_unit_test(queue_timeout_expired_call_is_never_executed),
        cmocka_unit_test(queue_request_deadline_drops_call),
        cmocka_unit_test(queue_batch_delay_is_at_most_half_the_deadline),
        cmocka_unit_test(queue_timeout_action_delay_moves_call_back),
        cmocka_unit_test(queue_delayed_call_still_has_deadline),
        cmocka_unit_test(queue_preserve_ordering_keeps_response_order),
        cmocka_unit_test(queue_preserve_ordering_cancelled_call_does_not_block),
        cmocka_unit_test(queue_preserve_ordering_on_worker_is_refused),
    };
    return cmocka_run_group_tests_name("serve/scheduler/queue_timeout", tests, NULL, NULL);
}
