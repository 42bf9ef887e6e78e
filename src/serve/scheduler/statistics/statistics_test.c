/* Statistics of requests and executions: successes, each kind of failure, times with a driven
 * clock, batch sizes, gauges, and concurrent counting by many workers. */
#include "serve/scheduler/statistics/statistics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_rig.h"

enum { MS_NS = 1000000 };

static struct model_statistics read_all(struct rig *rig) {
    struct model_statistics seen;
    model_version_statistics(rig->version, &seen);
    return seen;
}

/* Reads after all threads of the version ended: an answer is delivered before its execution is
 * counted. */
static struct model_statistics read_at_rest(struct rig *rig) {
    version_stop(rig->version);
    return read_all(rig);
}

static const struct model_config on_worker = {.latest_count = 1, .run_on = RUN_ON_WORKER};
static const struct model_config on_instance = {
    .latest_count = 1, .run_on = RUN_ON_INSTANCE, .instance_count = 1};

/* ---- successes ------------------------------------------------------------------------------- */

/* One per event-loop iteration; calls of one iteration would share an execution. */
static void send_three(struct rig *rig) {
    int64_t rows = rig->n_done + 1;
    rig_submit(rig_make(rig, (size_t)rig->n_done, rows, 0));
    if (rows < 3) {
        rig_then(rig, send_three);
    }
}

static void statistics_success_counts_rows_and_batches(void **state) {
    struct rig rig;
    struct arena *arena = arena_new(NULL, 0);
    struct statistics_batch *batches;
    (void)state;
    rig_open(&rig, &on_worker, 0);
    struct model_statistics fresh = read_all(&rig);
    assert_int_equal(fresh.success.count + fresh.fail.count + fresh.n_executions, 0);
    assert_int_equal(fresh.last_inference_ms, 0);
    rig_run(&rig, send_three, 3);
    struct model_statistics seen = read_all(&rig);
    assert_int_equal(seen.success.count, 3);
    assert_int_equal(seen.queue.count, 3);
    assert_int_equal(seen.fail.count, 0);
    assert_int_equal(seen.n_inferences, 1 + 2 + 3);
    assert_int_equal(seen.n_executions, 3);
    assert_int_equal(seen.batch_size.sum, 6);
    assert_int_equal(seen.n_queued + seen.n_running + seen.n_busy, 0);
    assert_true(seen.last_inference_ms > 0);
    assert_int_equal(seen.last_inference_ms, read_all(&rig).last_inference_ms);
    assert_int_equal(model_version_batches(rig.version, arena, &batches), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(batches[i].size, i + 1);
        assert_int_equal(batches[i].count, 1);
    }
    arena_free(arena);
    rig_close(&rig);
}

/* ---- times ----------------------------------------------------------------------------------- */

static void send_one(struct rig *rig) {
    rig_send(rig, 0);
}

static void send_one_that_waits(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, 0);
    rig_await_started(rig, 1);
    rig_send(rig, 1);
    clock_set_fake_ns(clock_now_ns() + 7 * MS_NS); /* the first runs, the second waits */
    atomic_store(&rig->model->gate_closed, false);
}

static void statistics_queue_and_compute_times_by_clock(void **state) {
    struct rig rig;
    (void)state;
    clock_set_fake_ns(1000 * MS_NS);
    rig_open(&rig, &on_instance, 0);
    rig.model->execution_ns = 2 * MS_NS;
    rig_run(&rig, send_one_that_waits, 2);
    struct model_statistics seen = read_at_rest(&rig);
    assert_int_equal(seen.success.count, 2);
    assert_int_equal(seen.queue.ns, 9 * MS_NS);               /* 0 and 7 + 2 */
    assert_int_equal(seen.compute.infer_ns, (9 + 2) * MS_NS); /* 7 + 2 and 2 */
    assert_int_equal(seen.compute.input_ns + seen.compute.output_ns, 0);
    assert_int_equal(seen.success.ns, seen.queue.ns + seen.compute.infer_ns);
    assert_int_equal(seen.compute_time.sum, seen.compute.infer_ns);
    assert_int_equal(seen.compute_time.buckets[metric_bucket(2000)], 1);
    clock_set_fake_ns(0);
    rig_close(&rig);
}

/* A backend that reports its compute time: 1 ms after the start, for 3 ms, and 1 ms after it. */
static void act_and_say(sluice_model *model, const sluice_request *request) {
    uint64_t began_ns = clock_now_ns() + MS_NS;
    clock_set_fake_ns(began_ns + 3 * MS_NS);
    backend_host()->computed(&request, 1, began_ns, clock_now_ns());
    clock_set_fake_ns(clock_now_ns() + MS_NS);
    rig_echo(model, request);
}

/* Backends that report inconsistent times: before the start, backwards, in the future. */
static void act_and_say_early(sluice_model *model, const sluice_request *request) {
    backend_host()->computed(&request, 1, 1, 2);
    rig_echo(model, request);
}

static void act_and_say_backwards(sluice_model *model, const sluice_request *request) {
    backend_host()->computed(&request, 1, clock_now_ns(), clock_now_ns() - 1);
    rig_echo(model, request);
}

static void act_and_say_late(sluice_model *model, const sluice_request *request) {
    backend_host()->computed(&request, 1, clock_now_ns(), clock_now_ns() + 1);
    rig_echo(model, request);
}

static void statistics_computed_callback_splits_compute_time(void **state) {
    struct rig rig;
    struct arena *arena = arena_new(NULL, 0);
    struct statistics_batch *batches;
    (void)state;
    clock_set_fake_ns(1000 * MS_NS);
    rig_open(&rig, &on_worker, 0);
    rig.model->handle_request = act_and_say;
    rig_run(&rig, send_one, 1);
    struct model_statistics seen = read_all(&rig);
    assert_int_equal(seen.compute.input_ns, MS_NS);
    assert_int_equal(seen.compute.infer_ns, 3 * MS_NS);
    assert_int_equal(seen.compute.output_ns, MS_NS);
    assert_int_equal(model_version_batches(rig.version, arena, &batches), 1);
    assert_int_equal(batches[0].compute.input_ns, MS_NS);
    assert_int_equal(batches[0].compute.infer_ns, 3 * MS_NS);
    assert_int_equal(batches[0].compute.output_ns, MS_NS);
    clock_set_fake_ns(0);
    arena_free(arena);
    rig_close(&rig);
}

static void statistics_invalid_computed_times_count_as_infer(void **state) {
    static void (*const acts[])(sluice_model *, const sluice_request *) = {
        act_and_say_early, act_and_say_backwards, act_and_say_late};
    (void)state;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        struct rig rig;
        clock_set_fake_ns(1000 * MS_NS);
        rig_open(&rig, &on_worker, 0);
        rig.model->handle_request = acts[i];
        rig.model->execution_ns = MS_NS;
        rig_run(&rig, send_one, 1);
        struct model_statistics seen = read_all(&rig);
        assert_int_equal(seen.compute.infer_ns, MS_NS);
        assert_int_equal(seen.compute.input_ns + seen.compute.output_ns, 0);
        clock_set_fake_ns(0);
        rig_close(&rig);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static void corrupt(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->status = SLUICE_INTERNAL;
    response->error = "no";
}

static void send_three_and_cancel_one(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, 0);
    rig_await_started(rig, 1);
    struct rig_call *waits = rig_send(rig, 1);
    rig_send(rig, 2); /* the queue holds one */
    uint64_t n_queued, n_running, n_instances;
    model_version_gauges(rig->version, &n_queued, &n_running, &n_instances);
    assert_int_equal(n_queued, 1);
    assert_int_equal(n_running, 1);
    assert_int_equal(n_instances, 1);
    assert_int_equal(read_all(rig).n_busy, 1);
    struct statistics_instance instance;
    model_version_instance(rig->version, 0, &instance);
    assert_true(instance.since_ns > 0);
    assert_int_equal(instance.requests, 1);
    call_cancel(&waits->call);
    atomic_store(&rig->model->gate_closed, false);
}

static void statistics_failures_count_by_reason(void **state) {
    struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 1);
    rig.model->corrupt_response = corrupt;
    rig_run(&rig, send_three_and_cancel_one, 3);
    struct model_statistics seen = read_at_rest(&rig);
    assert_int_equal(rig.calls[2].error.status, ST_QUEUE_FULL);
    assert_int_equal(seen.success.count, 0);
    assert_int_equal(seen.fail.count, 2); /* requests refused by a full queue are not counted */
    assert_int_equal(seen.failed[STATISTICS_BACKEND], 1);
    assert_int_equal(seen.failed[STATISTICS_CANCELLED], 1);
    assert_int_equal(seen.n_inferences, 0);
    assert_int_equal(seen.n_executions, 1);
    assert_int_equal(seen.n_queued + seen.n_running, 0);
    rig_close(&rig);
}

static void statistics_reason_names_match_reference_server(void **state) {
    (void)state;
    assert_string_equal(statistics_reason_name(STATISTICS_REJECTED), "REJECTED");
    assert_string_equal(statistics_reason_name(STATISTICS_CANCELLED), "CANCELED");
    assert_string_equal(statistics_reason_name(STATISTICS_BACKEND), "BACKEND");
    assert_string_equal(statistics_reason_name(STATISTICS_OTHER), "OTHER");
}

/* ---- concurrency ----------------------------------------------------------------------------- */

enum { N_WORKERS = 6, N_CALLS = 20000 };

struct counter {
    struct statistics *statistics;
    struct worker *worker; /* only its address is used */
    uv_thread_t thread;
};

static void count_many(void *argument) {
    const struct counter *counter = argument;
    struct call_run run = {.cache_ns = 0};
    struct call call = {.worker = counter->worker, .queued_ns = 1, .started_ns = 2, .run = &run};
    for (int i = 0; i < N_CALLS; i++) {
        call.run->backend_request.batch = 2;
        call.finished_ns = 3;
        call.response.error.status = i % 4 == 0 ? ST_QUEUE_TIMEOUT : ST_OK;
        call.started_ns = i % 4 == 0 ? 0 : 2;
        statistics_count_call(counter->statistics, &call);
    }
}

static void statistics_concurrent_workers_lose_no_count(void **state) {
    static max_align_t workers[N_WORKERS];
    struct counter counters[N_WORKERS];
    struct rig rig;
    uint64_t before = 0;
    (void)state;
    rig_open(&rig, &on_worker, 0);
    for (int i = 0; i < N_WORKERS; i++) {
        counters[i] = (struct counter){.statistics = &rig.version->statistics,
                                       .worker = (struct worker *)(void *)&workers[i]};
        uv_thread_create(&counters[i].thread, count_many, &counters[i]);
    }
    for (int i = 0; i < 200; i++) {
        uint64_t now = read_all(&rig).success.count;
        assert_true(now >= before);
        before = now;
    }
    for (int i = 0; i < N_WORKERS; i++) {
        uv_thread_join(&counters[i].thread);
    }
    struct model_statistics seen = read_all(&rig);
    assert_int_equal(seen.success.count, N_WORKERS * N_CALLS / 4 * 3);
    assert_int_equal(seen.failed[STATISTICS_REJECTED], N_WORKERS * N_CALLS / 4);
    assert_int_equal(seen.n_inferences, 2 * seen.success.count);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_success_counts_rows_and_batches),
        cmocka_unit_test(statistics_queue_and_compute_times_by_clock),
        cmocka_unit_test(statistics_computed_callback_splits_compute_time),
        cmocka_unit_test(statistics_invalid_computed_times_count_as_infer),
        cmocka_unit_test(statistics_failures_count_by_reason),
        cmocka_unit_test(statistics_reason_names_match_reference_server),
        cmocka_unit_test(statistics_concurrent_workers_lose_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
