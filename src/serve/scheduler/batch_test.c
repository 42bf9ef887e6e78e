/* Batch composition, and that each request of a batch gets its own answer. */
#include "serve/scheduler/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "serve/repository/test_rig.h"

/* ---- composition ----------------------------------------------------------------------------- */

enum { N = 8 };

static struct model_version version; /* without a layout: batches have equal shapes */

/* A queue built by the test. */
struct made {
    struct call_list list;
    struct call calls[N];
    struct call_run runs[N];
    sluice_input inputs[N];
    int64_t dims[N][2];
};

static void queue_make(struct made *queue, size_t n, const int64_t (*dims)[2]) {
    memset(queue, 0, sizeof *queue);
    TAILQ_INIT(&queue->list);
    for (size_t i = 0; i < n; i++) {
        struct call *call = &queue->calls[i];
        memcpy(queue->dims[i], dims[i], sizeof queue->dims[i]);
        queue->inputs[i] = (sluice_input){.dims = queue->dims[i], .rank = 2};
        call->run = &queue->runs[i];
        call->run->version = &version;
        call->run->backend_request.inputs = &queue->inputs[i];
        call->run->backend_request.n_inputs = 1;
        call->run->backend_request.batch = (uint64_t)dims[i][0];
        call->run->queue_deadline.expires_ns = UINT64_MAX;
        TAILQ_INSERT_TAIL(&queue->list, call, run->queue_link);
    }
}

static void batch_preview_rows_and_limits_by_table(void **state) {
    (void)state;
    static const uint64_t four_eight[] = {4, 8}, two_six[] = {2, 6};
    static const struct {
        int64_t dims[N][2];
        size_t n;
        struct batch_rules rules;
        size_t max;
        struct batch_candidate want;
    } rows[] = {
        {{{1, 4}, {1, 4}, {1, 4}}, 3, {.max_rows = 8}, 64, {3, 3, false, 0}},
        {{{1, 4}, {1, 4}, {1, 4}}, 3, {.max_rows = 2}, 64, {2, 2, true, 0}},
        {{{1, 4}, {1, 4}, {1, 4}}, 3, {.max_rows = 8}, 2, {2, 2, true, 0}},
        {{{1, 4}, {1, 4}}, 2, {.max_rows = 0}, 64, {1, 1, true, 0}},
        {{{1, 4}, {1, 5}, {1, 4}}, 3, {.max_rows = 8}, 64, {2, 2, false, 0}}, /* another shape */
        /* a later call does not overtake */
        {{{3, 4}, {4, 4}, {1, 4}}, 3, {.max_rows = 4}, 64, {3, 1, true, 0}},
        {{{8, 4}, {1, 4}}, 2, {.max_rows = 8}, 64, {8, 1, true, 0}},
        {{{0, 4}, {1, 4}}, 2, {.max_rows = 8}, 64, {1, 2, false, 0}},
        {{{1, 4}, {1, 4}, {1, 4}, {1, 4}, {1, 4}},
         5,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {4, 4, true, 0}},
        {{{3, 4}, {3, 4}}, /* 6 rows are not a preferred size, and may become 8 */
         2,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {6, 2, false, 0}},
        {{{3, 4}, {3, 4}, {2, 4}, {1, 4}},
         4,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {8, 3, true, 0}},
        {{{3, 4}, {6, 4}}, /* 9 rows exceed the largest: the first does not wait for more */
         2,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {3, 1, true, 0}},
        {{{3, 4}, {1, 4}, {6, 4}}, /* 4 is better than nothing */
         3,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {4, 2, true, 0}},
        {{{9, 4}, {1, 4}}, /* more than the largest */
         2,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {9, 1, true, 0}},
        {{{1, 4}, {3, 4}},
         2,
         {.max_rows = 8, .preferred = two_six, .n_preferred = 2},
         64,
         {4, 2, false, 0}},
        {{{1, 4}, {1, 4}, {1, 4}},
         3,
         {.max_rows = 16, .preferred = four_eight, .n_preferred = 2},
         64,
         {3, 3, false, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static struct made queue;
        queue_make(&queue, rows[i].n, rows[i].dims);
        struct batch_candidate got = batch_preview(&rows[i].rules, &queue.calls[0], rows[i].max, 0);
        if (got.rows != rows[i].want.rows || got.n_calls != rows[i].want.n_calls ||
            got.full != rows[i].want.full) {
            fail_msg("row %zu: %zu calls, %zu rows, full %d", i, got.n_calls, (size_t)got.rows,
                     got.full);
        }
    }
}

/* Without an idle instance scheduler_is_due returns no time: otherwise a thread would poll until an
 * instance is idle. */
static void scheduler_is_due_returns_next_wakeup_time(void **state) {
    (void)state;
    enum { NOW_NS = 1000, LATER_NS = 5000 };
    static const struct {
        int64_t rows;
        uint64_t batch_wait_until_ns;
        bool due;
        uint64_t until_ns;
    } cases[] = {
        {4, LATER_NS, true, UINT64_MAX}, /* full */
        {1, NOW_NS, true, UINT64_MAX},   /* its batch delay has passed */
        {1, LATER_NS, false, LATER_NS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct made made;
        struct scheduler scheduler = {.rules = {.max_rows = 4}};
        uint64_t until_ns = 0;
        lock_init(&scheduler.lock);
        queue_make(&made, 1, (const int64_t[][2]){{cases[i].rows, 4}});
        made.calls[0].run->queue_deadline.batch_wait_until_ns = cases[i].batch_wait_until_ns;
        TAILQ_INIT(&scheduler.queue.calls);
        TAILQ_INSERT_TAIL(&scheduler.queue.calls, &made.calls[0], run->queue_link);
        lock_acquire(&scheduler.lock);
        bool due = scheduler_is_due(&scheduler, N, NOW_NS, &until_ns);
        lock_release(&scheduler.lock);
        assert_int_equal(due, cases[i].due);
        assert_int_equal(until_ns, cases[i].until_ns);
        lock_fini(&scheduler.lock);
    }
}

/* Many more calls than the scan limit. */
static void batch_preview_long_queue_skips_bounded_misfits(void **state) {
    (void)state;
    enum { LONG = 1300 };
    static struct call calls[LONG];
    static struct call_run runs[LONG];
    static sluice_input inputs[LONG];
    static const int64_t fits[2] = {1, 4}, does_not[2] = {1, 5};
    static const struct {
        size_t n_misfits, want;
    } rows[] = {{0, 1024}, {100, 1024}, {511, LONG - 511}, {512, 1}};
    struct batch_rules rules = {.max_rows = 4096};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct call_list queue = TAILQ_HEAD_INITIALIZER(queue);
        for (size_t k = 0; k < LONG; k++) {
            bool misfit = k > 0 && k <= rows[i].n_misfits;
            inputs[k] = (sluice_input){.dims = misfit ? does_not : fits, .rank = 2};
            runs[k] = (struct call_run){
                .version = &version,
                .backend_request = {.inputs = &inputs[k], .n_inputs = 1, .batch = 1},
                .queue_deadline.expires_ns = UINT64_MAX};
            calls[k].run = &runs[k];
            TAILQ_INSERT_TAIL(&queue, &calls[k], run->queue_link);
        }
        struct batch_candidate got = batch_preview(&rules, &calls[0], 1024, 0);
        assert_int_equal(got.n_calls, rows[i].want);
        assert_int_equal(got.rows, rows[i].want);
    }
}

static sluice_param text_param(const char *name, const char *value) {
    return (sluice_param){.name = name,
                          .name_bytes = strlen(name),
                          .kind = SLUICE_PARAM_STRING,
                          .string = value,
                          .string_bytes = strlen(value)};
}

static void batch_can_share_differing_params_or_inputs_are_separate(void **state) {
    (void)state;
    static const int64_t dims[2][2] = {{1, 4}, {1, 4}};
    static struct made queue;
    queue_make(&queue, 2, dims);
    struct call *a = &queue.calls[0], *b = &queue.calls[1];
    assert_true(batch_can_share(a, b));
    sluice_param left[] = {text_param("j", "1"), text_param("k", "v")};
    sluice_param right[] = {text_param("j", "1"), text_param("k", "v")};
    a->run->backend_request.params = left;
    a->run->backend_request.n_params = 2;
    assert_false(batch_can_share(a, b));
    b->run->backend_request.params = right;
    b->run->backend_request.n_params = 2;
    assert_true(batch_can_share(a, b));
    b->batch_apart = true; /* of a client whose requests fail */
    assert_false(batch_can_share(a, b));
    a->batch_apart = true;
    assert_true(batch_can_share(a, b));
    right[0] = text_param("k", "w");
    assert_false(batch_can_share(a, b));
    right[0] = text_param("i", "1");
    assert_false(batch_can_share(a, b));
    a->run->backend_request.n_params = b->run->backend_request.n_params = 0;
    queue.inputs[1].index = 1;
    assert_false(batch_can_share(a, b));
    queue.inputs[1] = queue.inputs[0];
    b->run->backend_request.n_inputs = 0;
    assert_false(batch_can_share(a, b));
}

/* ---- execution ------------------------------------------------------------------------------- */

static const struct model_config on_instance = {
    .run_on = RUN_ON_INSTANCE, .instance_count = 1, .latest_count = 1};

/* One call runs; eight of one to three rows wait. */
static void send_behind_a_shut_gate(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_send(rig, 0);
    rig_await_started(rig, 1);
    for (size_t i = 1; i < 9; i++) {
        rig_submit(rig_make(rig, i, (int64_t)(i % 3 + 1), (float)(100 * i)));
    }
    atomic_store(&rig->model->gate_closed, false);
}

static void batch_waiting_calls_execute_together(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, send_behind_a_shut_gate, 9);
    /* Rows: 2 3 1 2 3 1 2 3, of which 8 fit: 2+3+1+2, 3+1+2, 3. */
    assert_int_equal(atomic_load(&rig.model->n_executions), 4);
    static const int sizes[] = {1, 4, 3, 1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(atomic_load(&rig.model->sizes[i]), sizes[i]);
    }
    for (size_t i = 0; i < 9; i++) {
        struct rig_call *call = &rig.calls[i];
        assert_int_equal(call->error.status, ST_OK);
        assert_int_equal(call->y_dims[0], i == 0 ? 1 : i % 3 + 1);
        assert_memory_equal(call->y, call->x, (size_t)call->y_dims[0] * RIG_WIDTH * sizeof(float));
    }
    rig_close(&rig);
}

/* One request of a batch fails: the others are answered. */
static void fail_200(sluice_model *model, const sluice_request *request) {
    const float *x = request->inputs[0].pieces[0].data;
    if (x[0] == 200) {
        sluice_response response = {.size = sizeof response,
                                    .status = SLUICE_INVALID_ARGUMENT,
                                    .error = "not this one",
                                    .final = 1};
        backend_host()->respond(request, &response);
        return;
    }
    rig_echo(model, request);
}

static void batch_one_failing_request_leaves_others_ok(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig.model->handle_request = fail_200;
    rig_run(&rig, send_behind_a_shut_gate, 9);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(rig.calls[i].error.status, i == 2 ? ST_BAD_REQUEST : ST_OK);
    }
    assert_string_equal(rig.calls[2].error.text, "not this one");
    rig_close(&rig);
}

static void send_three_and_wait(struct rig *rig) {
    for (size_t i = 0; i < 3; i++) {
        rig_send(rig, i);
    }
}

static void batch_queue_delay_collects_more_calls(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = on_instance;
    config.has_dynamic_batching = true;
    config.max_queue_delay_us = 50000;
    rig_open(&rig, &config, 0);
    rig_run(&rig, send_three_and_wait, 3);
    assert_int_equal(atomic_load(&rig.model->n_executions), 1);
    assert_int_equal(atomic_load(&rig.model->sizes[0]), 3);
    rig_close(&rig);
}

static void end_delays(struct rig *rig) {
    assert_int_equal(rig->version->scheduler.queue.n, 2);
    version_end_delays(rig->version);
}

static void send_past_limit_and_wait(struct rig *rig) {
    send_three_and_wait(rig);
    rig_then(rig, end_delays);
}

/* Requests that wait for others count against max_queue_size, although the instance is idle. */
static void batch_requests_in_delay_count_against_queue_limit(void **state) {
    static struct rig rig;
    (void)state;
    struct model_config config = on_instance;
    config.has_dynamic_batching = true;
    config.max_queue_delay_us = UINT64_C(3600) * 1000000;
    config.queue.max_size = 2;
    rig_open(&rig, &config, 0);
    rig_run(&rig, send_past_limit_and_wait, 3);
    assert_int_equal(rig.calls[2].done_index, 0);
    assert_int_equal(rig.calls[2].error.status, ST_QUEUE_FULL);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[1].error.status, ST_OK);
    assert_int_equal(atomic_load(&rig.model->n_executions), 1);
    rig_close(&rig);
}

static void send_eight(struct rig *rig) {
    for (size_t i = 0; i < 8; i++) {
        rig_send(rig, i);
    }
}

/* The delay is longer than the test's time limit. */
static void batch_full_or_preferred_size_skips_delay(void **state) {
    static struct rig rig;
    (void)state;
    static const uint64_t four[] = {4};
    struct model_config config = on_instance;
    config.has_dynamic_batching = true;
    config.max_queue_delay_us = UINT64_C(3600) * 1000000;
    rig_open(&rig, &config, 0);
    rig_run(&rig, send_eight, 8);
    assert_int_equal(atomic_load(&rig.model->n_executions), 1);
    rig_close(&rig);
    config.preferred_batch_sizes = four;
    config.n_preferred = 1;
    rig_open(&rig, &config, 0);
    rig_run(&rig, send_eight, 8);
    assert_int_equal(atomic_load(&rig.model->n_executions), 2);
    assert_int_equal(atomic_load(&rig.model->sizes[0]), 4);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_preview_rows_and_limits_by_table),
        cmocka_unit_test(scheduler_is_due_returns_next_wakeup_time),
        cmocka_unit_test(batch_preview_long_queue_skips_bounded_misfits),
        cmocka_unit_test(batch_can_share_differing_params_or_inputs_are_separate),
        cmocka_unit_test(batch_waiting_calls_execute_together),
        cmocka_unit_test(batch_one_failing_request_leaves_others_ok),
        cmocka_unit_test(batch_queue_delay_collects_more_calls),
        cmocka_unit_test(batch_requests_in_delay_count_against_queue_limit),
        cmocka_unit_test(batch_full_or_preferred_size_skips_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
