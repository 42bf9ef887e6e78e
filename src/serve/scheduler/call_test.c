/* The life of a call: where it runs, order, full queue, cancellation, stopping version. */
#include "serve/scheduler/call_run.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

static const struct model_config on_instance = {.run_on = RUN_ON_INSTANCE};
static const struct model_config on_worker = {.run_on = RUN_ON_WORKER};

static void assert_echoed(const struct rig_call *call) {
    assert_int_equal(call->n_done, 1);
    assert_int_equal(call->error.status, ST_OK);
    assert_int_equal(call->n_outputs, 2);
    assert_int_equal(call->y_rank, 2);
    assert_int_equal(call->y_dims[0], call->dims[0]);
    assert_int_equal(call->y_dims[1], RIG_WIDTH);
    assert_memory_equal(call->y, call->x, call->piece.n_bytes);
}

static void send_one(struct rig *rig) {
    rig_send(rig, 0);
}

/* ---- placement ------------------------------------------------------------------------------- */

static void call_on_instance_echoes(void **state) {
    static struct rig rig;
    (void)state;
    int64_t inline_before = metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, send_one, 1);
    assert_echoed(&rig.calls[0]);
    assert_true(rig.calls[0].call.started_ns >= rig.calls[0].call.queued_ns);
    assert_true(rig.calls[0].call.finished_ns >= rig.calls[0].call.started_ns);
    assert_int_equal(metric_read(METRIC_INLINE_EXECUTIONS_TOTAL), inline_before);
    assert_int_equal(atomic_load(&rig.model->n_released), 1);
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

static void see_it_done(struct rig *rig) {
    assert_int_equal(rig->calls[0].n_done, 1); /* before the worker handled another event */
    worker_stop(rig->worker);
}

static void send_and_see_it_done(struct rig *rig) {
    rig_send(rig, 0);
    rig_then(rig, see_it_done);
}

static void call_on_worker_completes_before_next_message(void **state) {
    static struct rig rig;
    (void)state;
    int64_t inline_before = metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
    rig_open(&rig, &on_worker, 0);
    rig_run(&rig, send_and_see_it_done, 2);
    assert_echoed(&rig.calls[0]);
    assert_int_equal(metric_read(METRIC_INLINE_EXECUTIONS_TOTAL), inline_before + 1);
    rig_close(&rig);
}

static void send_one_at_a_time(struct rig *rig) {
    rig_send(rig, (size_t)rig->n_done);
}

/* Sends calls one after the other, each when the previous one is done. Returns: how many ran
 * inline. */
static int64_t run_in_turn(struct rig *rig, int n) {
    int64_t before = metric_read(METRIC_INLINE_EXECUTIONS_TOTAL);
    for (int i = 0; i < n; i++) {
        rig_run(rig, send_one_at_a_time, 1);
    }
    return metric_read(METRIC_INLINE_EXECUTIONS_TOTAL) - before;
}

static void call_fast_model_moves_to_worker_and_back_on_stall(void **state) {
    static struct rig rig;
    (void)state;
    clock_set_fake_ns(1000000);
    rig_open(&rig, NULL, 0);
    rig.model->execution_ns = 20 * 1000;
    assert_int_equal(run_in_turn(&rig, EXEC_FAST_MIN_COUNT), 0);
    assert_int_equal(run_in_turn(&rig, 5), 5);
    rig.model->execution_ns = 5 * 1000 * 1000; /* one stall moves the model back to instances */
    assert_int_equal(run_in_turn(&rig, 1), 1);
    assert_int_equal(run_in_turn(&rig, 5), 0);
    rig_close(&rig);
    clock_set_fake_ns(0);
}

static void send_a_large_one(struct rig *rig) {
    struct rig_call *call = rig_make(rig, 0, 1, 0);
    static float large[CALL_INLINE_MAX_BYTES / sizeof(float) + RIG_WIDTH];
    call->dims[0] = (int64_t)(sizeof(large) / sizeof(float) / RIG_WIDTH);
    call->request.batch = (uint64_t)call->dims[0];
    call->input.tensor.n_bytes = sizeof(large);
    call->piece = (struct piece){large, sizeof(large)};
    rig_submit(call);
    /* queued although the model is fast */
    assert_true(call_state(&call->call) != CALL_INLINE_QUEUED);
}

/* The backend returns fewer rows than requested. */
static void fail_it(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs;
    (void)dims;
    response->status = SLUICE_INTERNAL;
    response->error = "large";
}

static void call_large_request_never_runs_inline(void **state) {
    static struct rig rig;
    (void)state;
    clock_set_fake_ns(1000000);
    rig_open(&rig, NULL, 0);
    run_in_turn(&rig, EXEC_FAST_MIN_COUNT);
    assert_int_equal(run_in_turn(&rig, 1), 1);
    rig.model->corrupt_response = fail_it;
    rig_run(&rig, send_a_large_one, 1);
    assert_string_equal(rig.calls[0].error.text, "large");
    rig_close(&rig);
    clock_set_fake_ns(0);
}

/* ---- queue ----------------------------------------------------------------------------------- */

static void send_eight_behind_a_shut_gate(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    for (size_t i = 0; i < 8; i++) {
        rig_send(rig, i);
    }
    rig_await_started(rig, 1);
    atomic_store(&rig->model->gate_closed, false);
}

static void call_queue_is_first_in_first_out(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, send_eight_behind_a_shut_gate, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(atomic_load(&rig.model->order[i]), i);
        assert_int_equal(rig.calls[i].done_index, i);
        assert_echoed(&rig.calls[i]);
    }
    rig_close(&rig);
}

static void send_more_than_fit(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, 0);
    rig_await_started(rig, 1); /* running: not in the queue */
    rig_send(rig, 1);
    rig_send(rig, 2);
    struct rig_call *refused = rig_send(rig, 3);
    assert_int_equal(refused->n_done, 1);
    atomic_store(&rig->model->gate_closed, false);
}

static void call_full_queue_is_rejected(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = {.run_on = RUN_ON_INSTANCE, .queue.max_size = 2};
    rig_open(&rig, &config, 100);
    rig_run(&rig, send_more_than_fit, 4);
    assert_int_equal(rig.calls[3].error.status, ST_QUEUE_FULL);
    assert_non_null(strstr(rig.calls[3].error.text, "\"m\""));
    assert_non_null(strstr(rig.calls[3].error.text, "2 requests"));
    assert_non_null(strstr(rig.calls[3].error.text, "max_queue_size"));
    for (int i = 0; i < 3; i++) {
        assert_echoed(&rig.calls[i]);
    }
    rig_close(&rig);
}

/* The first call may still be queued, because the instance's thread is waking up. Each call fills a
 * batch. */
static void send_two_at_once(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    for (size_t i = 0; i < 3; i++) {
        rig_make(rig, i, RIG_ROWS_MAX, (float)i);
    }
    rig_submit(&rig->calls[0]);
    rig_submit(&rig->calls[1]);
    rig_await_started(rig, 1);
    rig_submit(&rig->calls[2]);
    assert_int_equal(rig->calls[2].n_done, 1);
    atomic_store(&rig->model->gate_closed, false);
}

static void call_idle_instance_does_not_count_against_queue_limit(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = {.run_on = RUN_ON_INSTANCE, .queue.max_size = 1};
    rig_open(&rig, &config, 100);
    rig_run(&rig, send_two_at_once, 3);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[1].error.status, ST_OK);
    assert_int_equal(rig.calls[2].error.status, ST_QUEUE_FULL);
    rig_close(&rig);
}

static struct instance *taken;

static void release_the_instance(struct rig *rig) {
    for (int i = 0; i < 100; i++) {
        rig_pause(); /* the thread finds the instance claimed, and sleeps */
    }
    assert_int_equal(atomic_load(&rig->model->n_started), 0);
    assert_int_equal(rig->version->scheduler.queue.n, 2);
    instance_release(taken); /* wakes the thread, which runs both */
}

static void send_past_a_busy_instance(struct rig *rig) {
    taken = instance_claim(rig->version, NULL);
    assert_non_null(taken);
    assert_null(instance_claim(rig->version, NULL)); /* only one instance */
    rig_send(rig, 0);
    rig_send(rig, 1);
    rig_then(rig, release_the_instance);
}

static void call_released_instance_wakes_waiting_calls(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_worker, 0);
    rig_run(&rig, send_past_a_busy_instance, 2);
    assert_echoed(&rig.calls[0]);
    assert_echoed(&rig.calls[1]);
    rig_close(&rig);
}

static void send_behind_it(struct rig *rig) {
    struct error err;
    atomic_store(&taken->busy, false);
    struct rig_call *second = rig_send(rig, 1);
    /* the instance is idle, but other calls are first */
    assert_int_equal(call_state(&second->call), CALL_QUEUED);
    assert_int_equal(instances_start(rig->version, &err), ST_OK);
}

static void send_behind_one_that_waits(struct rig *rig) {
    instances_stop(rig->version); /* without threads, queued calls stay queued */
    rig->version->scheduler.stopping = false;
    taken = instance_claim(rig->version, NULL);
    rig_send(rig, 0);
    rig_then(rig, send_behind_it);
}

static void call_inline_does_not_overtake_queued_calls(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_worker, 0);
    rig_run(&rig, send_behind_one_that_waits, 2);
    assert_int_equal(rig.calls[0].done_index, 0);
    assert_int_equal(rig.calls[1].done_index, 1);
    rig_close(&rig);
}

/* ---- cancellation ---------------------------------------------------------------------------- */

static void wait_for_cancel(sluice_model *model, const sluice_request *request) {
    while (!backend_host()->is_cancelled(request)) {
        rig_pause();
    }
    sluice_response response = {
        .size = sizeof(response), .status = SLUICE_CANCELLED, .error = "seen", .final = 1};
    (void)model;
    backend_host()->respond(request, &response);
}

static void cancel_a_queued_and_a_running_one(struct rig *rig) {
    rig->model->handle_request = wait_for_cancel;
    struct rig_call *running = rig_send(rig, 0);
    rig_await_started(rig, 1);
    struct rig_call *queued[3] = {rig_send(rig, 1), rig_send(rig, 2), rig_send(rig, 3)};
    call_cancel(&queued[1]->call); /* from the middle, the front, the end */
    call_cancel(&queued[0]->call);
    call_cancel(&queued[2]->call);
    assert_int_equal(rig->n_done, 3);
    assert_true(scheduler_is_empty(&rig->version->scheduler));
    call_cancel(&running->call);
}

static void call_cancel_drops_queued_and_signals_running(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, cancel_a_queued_and_a_running_one, 4);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(rig.calls[i].n_done, 1);
        assert_int_equal(rig.calls[i].error.status, ST_CANCELLED);
        assert_int_equal(rig.calls[i].call.started_ns, 0);
    }
    assert_int_equal(rig.calls[0].error.status, ST_CANCELLED);
    assert_string_equal(rig.calls[0].error.text, "seen");
    assert_int_equal(atomic_load(&rig.model->n_started), 1);
    rig_close(&rig);
}

/* ---- asynchronous answers -------------------------------------------------------------------- */

static void *answer_later(void *arg) {
    struct rig *rig = arg;
    rig_pause();
    rig_answer(rig->model, rig->model->kept, 1);
    return NULL;
}

static void let_a_thread_answer(struct rig *rig) {
    pthread_t thread;
    rig_await_started(rig, 1);
    assert_int_equal(rig->calls[0].n_done, 0);
    while (rig->version->run_on == RUN_ON_INSTANCE && !instance_claim(rig->version, NULL)) {
        rig_pause(); /* until execute returned: the test owns `kept` then */
    }
    assert_int_equal(pthread_create(&thread, NULL, answer_later, rig), 0);
    pthread_detach(thread);
}

static void send_and_answer_from_a_thread(struct rig *rig) {
    rig->model->handle_request = rig_keep;
    rig_send(rig, 0);
    rig_then(rig, let_a_thread_answer);
}

static void call_response_after_execute_returns_is_delivered(void **state) {
    static struct rig rig;
    const struct model_config *configs[] = {&on_instance, &on_worker};
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig_open(&rig, configs[i], 0);
        rig_run(&rig, send_and_answer_from_a_thread, 1);
        assert_echoed(&rig.calls[0]);
        rig_close(&rig);
    }
}

static void answer_it(struct rig *rig) {
    rig_answer(rig->model, rig->model->kept, 1); /* on this thread, but after execute returned */
    assert_int_equal(rig->calls[0].n_done, 0);
}

static void answer_on_the_worker_later(struct rig *rig) {
    rig->model->handle_request = rig_keep;
    rig_send(rig, 0);
    rig_then(rig, answer_it);
}

static void call_response_on_worker_outside_execute_is_posted(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_worker, 0);
    rig_run(&rig, answer_on_the_worker_later, 1);
    assert_echoed(&rig.calls[0]);
    rig_close(&rig);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void call_stopped_version_returns_not_ready(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, NULL, 0);
    version_stop(rig.version);
    rig_run(&rig, send_one, 1);
    assert_int_equal(rig.calls[0].error.status, ST_NOT_READY);
    version_close(rig.version);
}

static void *stop(void *version) {
    version_stop(version);
    return NULL;
}

static pthread_t stop_while_they_wait(struct rig *rig) {
    pthread_t thread;
    atomic_store(&rig->model->gate_closed, true);
    for (size_t i = 0; i < 4; i++) {
        rig_send(rig, i);
    }
    rig_await_started(rig, 1);
    assert_int_equal(pthread_create(&thread, NULL, stop, rig->version), 0);
    while (!atomic_load(&rig->version->stopping)) {
        rig_pause();
    }
    return thread;
}

static void stop_and_open_the_gate(struct rig *rig) {
    pthread_t thread = stop_while_they_wait(rig);
    struct rig_call *late = rig_send(rig, 4);
    assert_int_equal(late->error.status, ST_NOT_READY);
    atomic_store(&rig->model->gate_closed, false);
    pthread_join(thread, NULL);
}

static void version_stop_completes_accepted_calls(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, stop_and_open_the_gate, 5);
    for (int i = 0; i < 4; i++) {
        assert_echoed(&rig.calls[i]);
    }
    version_close(rig.version);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void send_without_memory(struct rig *rig) {
    struct rig_call *call = rig_make(rig, 0, 1, 0);
    arena_free(call->request.arena);
    call->request.arena = arena_new(NULL, 1);
    while (arena_alloc(call->request.arena, 16)) {
    }
    rig_submit(call);
}

static void call_without_memory_is_refused_once(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, send_without_memory, 1);
    assert_int_equal(rig.calls[0].n_done, 1);
    assert_int_equal(rig.calls[0].error.status, ST_NO_MEMORY);
    assert_int_equal(rig.calls[0].call.queued_ns, 0); /* not counted as queued */
    assert_int_equal(atomic_load(&rig.model->n_started), 0);
    rig_await_unused(&rig); /* no reference is left */
    rig_run(&rig, send_one, 1);
    assert_echoed(&rig.calls[0]);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_on_instance_echoes),
        cmocka_unit_test(call_on_worker_completes_before_next_message),
        cmocka_unit_test(call_fast_model_moves_to_worker_and_back_on_stall),
        cmocka_unit_test(call_large_request_never_runs_inline),
        cmocka_unit_test(call_queue_is_first_in_first_out),
        cmocka_unit_test(call_full_queue_is_rejected),
        cmocka_unit_test(call_idle_instance_does_not_count_against_queue_limit),
        cmocka_unit_test(call_released_instance_wakes_waiting_calls),
        cmocka_unit_test(call_inline_does_not_overtake_queued_calls),
        cmocka_unit_test(call_cancel_drops_queued_and_signals_running),
        cmocka_unit_test(call_response_after_execute_returns_is_delivered),
        cmocka_unit_test(call_response_on_worker_outside_execute_is_posted),
        cmocka_unit_test(call_stopped_version_returns_not_ready),
        cmocka_unit_test(version_stop_completes_accepted_calls),
        cmocka_unit_test(call_without_memory_is_refused_once),
    };
    return cmocka_run_group_tests_name("serve/scheduler/call", tests, NULL, NULL);
}
