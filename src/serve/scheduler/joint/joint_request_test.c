/* The life of joint requests: what the backend gets, failures, cancellation, late answers, and that
 * each client gets its own part. The model has input x of any length and returns it as y. */
#include "serve/scheduler/joint/joint_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

static sluice_status describe(sluice_model *model, sluice_model_info *info, sluice_error *error) {
    static const int64_t free_dims[2] = {-1, -1};
    static const sluice_tensor_info tensors[2] = {
        {.name = "x", .datatype = SLUICE_FP32, .dims = free_dims, .rank = 2},
        {.name = "y", .datatype = SLUICE_FP32, .dims = free_dims, .rank = 2}};
    (void)model;
    (void)error;
    info->inputs = &tensors[0];
    info->n_inputs = 1;
    info->outputs = &tensors[1];
    info->n_outputs = 1;
    return SLUICE_OK;
}

static const struct model_padding PADDINGS[] = {
    {.kind = PADDING_VALUE, .param = {"p", 1}, .name = {"x", 1}, .value = {"0", 1}},
    {.kind = PADDING_CUT, .param = {"q", 1}, .name = {"y", 1}, .value = {"x", 1}},
};

/* x is padded, y is cut again. */
static void open_rig(struct rig *rig) {
    static sluice_backend backend;
    struct error err;
    const struct model_config config = {.has_max_batch_size = true,
                                        .max_batch_size = RIG_ROWS_MAX,
                                        .paddings = PADDINGS,
                                        .n_paddings = 2};
    backend = rig_backend;
    backend.model_describe = describe;
    if (rig_open_with(rig, &backend, &config, 0, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
}

/* One row of `length` numbers from `first` on. */
static void send_row(struct rig *rig, size_t i, int64_t length, float first) {
    struct rig_call *call = rig_make_unchecked(rig, i, 1, first);
    struct error err;
    call->dims[1] = length;
    call->piece.n_bytes = call->input.tensor.n_bytes = (size_t)length * sizeof(float);
    call->input.tensor.n_pieces = length > 0;
    assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err), ST_OK);
    rig_submit(call);
}

static void assert_own(const struct rig_call *call) {
    assert_int_equal(call->n_done, 1);
    if (call->error.status != ST_OK) {
        fail_msg("%s", call->error.text);
    }
    assert_int_equal(call->y_rank, 2);
    assert_int_equal(call->y_dims[0], 1);
    assert_int_equal(call->y_dims[1], call->dims[1]);
    assert_memory_equal(call->y, call->x, (size_t)call->dims[1] * sizeof(float));
}

/* Request 0 keeps the instance busy while the others queue. */
static void send_seven(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    send_row(rig, 0, 5, 100);
    rig_await_started(rig, 1);
    for (size_t i = 1; i < 7; i++) {
        send_row(rig, i, (int64_t)(i * 3 % 8), (float)(100 * (i + 1)));
    }
    atomic_store(&rig->model->gate_closed, false);
}

static void joint_requests_of_unequal_lengths_are_one_execution(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig_run(&rig, send_seven, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_own(&rig.calls[i]);
    }
    assert_int_equal(atomic_load(&rig.model->n_executions), 2);
    assert_int_equal(atomic_load(&rig.model->n_started), 2); /* each is one request */
    assert_int_equal(atomic_load(&rig.model->n_released), 2);
    rig_await_unused(&rig);
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail_with(const sluice_request *request, const char *text) {
    sluice_response response = {
        .size = sizeof(response), .status = SLUICE_INVALID_ARGUMENT, .error = text, .final = 1};
    backend_host()->respond(request, &response);
}

/* Fails when any row begins with 400. */
static void fail_400(sluice_model *model, const sluice_request *request) {
    const sluice_input *x = &request->inputs[0];
    for (int64_t row = 0; row < x->dims[0]; row++) {
        if (((const float *)x->pieces[0].data)[row * x->dims[1]] == 400) {
            fail_with(request, "not this one");
            return;
        }
    }
    rig_echo(model, request);
}

static void joint_request_that_fails_is_halved(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig.model->handle_request = fail_400;
    rig_run(&rig, send_seven, 7);
    for (size_t i = 0; i < 7; i++) {
        if (i != 3) {
            assert_own(&rig.calls[i]);
        }
    }
    assert_int_equal(rig.calls[3].error.status, ST_BAD_REQUEST);
    assert_string_equal(rig.calls[3].error.text, "not this one");
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

/* A batch gets a row too few: it cannot be divided. */
static void drop_row(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response;
    if (dims[0] > 1) {
        dims[0]--;
        outputs[0].n_bytes = (size_t)(dims[0] * dims[1]) * sizeof(float);
    }
}

static void joint_answer_that_cannot_be_divided_is_asked_for_again(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig.model->corrupt_response = drop_row;
    rig_run(&rig, send_seven, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_own(&rig.calls[i]);
    }
    assert_int_equal(atomic_load(&rig.model->n_released), atomic_load(&rig.model->n_started));
    rig_close(&rig);
}

static void give_none(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs;
    (void)dims;
    response->n_outputs = 0;
}

static void joint_answer_without_outputs_has_none_for_any_call(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig.model->corrupt_response = give_none;
    rig_run(&rig, send_seven, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(rig.calls[i].error.status, ST_OK);
        assert_int_equal(rig.calls[i].n_outputs, 0);
    }
    rig_close(&rig);
}

/* ---- padding that is too large --------------------------------------------------------------- */

enum { LONG = 3 << 19 };

static float large[LONG];

/* 8 rows of 6 MiB: more than 4 times what was sent and 16 MiB. */
static void send_one_long(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    send_row(rig, 0, 5, 100);
    rig_await_started(rig, 1);
    for (size_t i = 1; i < 8; i++) {
        send_row(rig, i, 1, (float)i);
    }
    struct rig_call *call = rig_make_unchecked(rig, 8, 1, 0);
    struct error err;
    call->dims[1] = LONG;
    call->piece = (struct piece){large, sizeof(large)};
    call->input.tensor.n_bytes = sizeof(large);
    assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err), ST_OK);
    rig_submit(call);
    atomic_store(&rig->model->gate_closed, false);
}

static void joint_request_with_too_much_padding_is_halved(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig_run(&rig, send_one_long, 9);
    for (size_t i = 0; i < 8; i++) {
        assert_own(&rig.calls[i]);
    }
    assert_int_equal(rig.calls[8].error.status, ST_OK);
    assert_int_equal(rig.calls[8].y_dims[1], LONG);
    assert_int_equal(atomic_load(&rig.model->n_executions), 3);
    rig_close(&rig);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static atomic_uint_least64_t taken_bytes, most_bytes;

static bool take_some(void *user, uint64_t n_bytes) {
    uint64_t limit = *(const uint64_t *)user;
    uint64_t before = atomic_load(&taken_bytes);
    if (before + n_bytes > limit) {
        return false;
    }
    atomic_fetch_add(&taken_bytes, n_bytes);
    atomic_store(&most_bytes, before + n_bytes);
    return true;
}

static void give_some(void *user, uint64_t n_bytes) {
    (void)user;
    assert_true(atomic_fetch_sub(&taken_bytes, n_bytes) >= n_bytes);
}

enum { WIDE = 8192 };

/* Four rows of 32 KiB. */
static void send_wide(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    send_row(rig, 0, 5, 100);
    rig_await_started(rig, 1);
    for (size_t i = 1; i < 5; i++) {
        struct rig_call *call = rig_make_unchecked(rig, i, 1, 0);
        struct error err;
        call->dims[1] = WIDE;
        call->piece = (struct piece){large, WIDE * sizeof(float)};
        call->input.tensor.n_bytes = call->piece.n_bytes;
        assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err),
                         ST_OK);
        rig_submit(call);
    }
    atomic_store(&rig->model->gate_closed, false);
}

/* It counts as what clients hold; a batch that does not fit is executed in parts. */
static void joint_request_counts_in_budget(void **state) {
    static struct rig rig;
    static uint64_t limits[] = {1 << 20, 0};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct shared_budget budget = {take_some, give_some, &limits[i]};
        open_rig(&rig);
        rig.version->joint_budget.user = &budget;
        atomic_store(&most_bytes, 0);
        rig_run(&rig, send_wide, 5);
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(rig.calls[k].error.status, ST_OK);
        }
        assert_int_equal(atomic_load(&rig.model->n_executions), limits[i] > 0 ? 2 : 5);
        assert_int_equal(atomic_load(&most_bytes) > 0, limits[i] > 0);
        rig_await_unused(&rig);
        assert_int_equal(atomic_load(&taken_bytes), 0);
        rig_close(&rig);
    }
}

/* ---- cancellation ---------------------------------------------------------------------------- */

/* Request 0 keeps the instance busy. The others are taken together and wait in the gate's second
 * execution. */
static void cancel_while_running(struct rig *rig) {
    rig_await_started(rig, 2);
    call_cancel(&rig->calls[1].call);
    assert_int_equal(backend_host()->is_cancelled(rig->model->kept), 0);
    call_cancel(&rig->calls[2].call);
    assert_int_equal(backend_host()->is_cancelled(rig->model->kept), 1);
    rig_echo(rig->model, rig->model->kept);
}

static void keep_second(sluice_model *model, const sluice_request *request) {
    if (request->inputs[0].dims[0] > 1) {
        model->kept = request;
    } else {
        rig_echo(model, request);
    }
}

static void send_three(struct rig *rig) {
    rig->model->handle_request = keep_second;
    atomic_store(&rig->model->gate_closed, true);
    send_row(rig, 0, 5, 100);
    rig_await_started(rig, 1);
    send_row(rig, 1, 2, 200);
    send_row(rig, 2, 3, 300);
    atomic_store(&rig->model->gate_closed, false);
    while (atomic_load(&rig->version->n_in_flight) > 2) { /* request 0 is answered */
        rig_pause();
    }
    rig_then(rig, cancel_while_running);
}

/* The answer comes from another thread than that which executed, after `execute` has returned or
 * while it does. */
static void joint_request_is_cancelled_when_all_are(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig_run(&rig, send_three, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_own(&rig.calls[i]);
    }
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

static void fail_later(struct rig *rig) {
    rig_await_started(rig, 2);
    struct instance *instance = &rig->version->instances[0];
    while (atomic_load(&instance->busy)) { /* `execute` has returned */
        rig_pause();
    }
    fail_with(rig->model->kept, "too late");
}

static void send_three_that_fail(struct rig *rig) {
    send_three(rig);
    rig->step = fail_later;
}

/* Nothing executes them again then. */
static void joint_request_that_fails_late_fails_all(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig_run(&rig, send_three_that_fail, 3);
    assert_own(&rig.calls[0]);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(rig.calls[i].error.status, ST_BAD_REQUEST);
        assert_string_equal(rig.calls[i].error.text, "too late");
    }
    rig_close(&rig);
}

/* A request that was cancelled in the gate before it was executed. */
static void send_and_cancel(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    send_row(rig, 0, 5, 100);
    rig_await_started(rig, 1);
    send_row(rig, 1, 2, 200);
    send_row(rig, 2, 3, 300);
    call_cancel(&rig->calls[1].call);
    atomic_store(&rig->model->gate_closed, false);
}

static void joint_request_has_no_cancelled_part(void **state) {
    static struct rig rig;
    (void)state;
    open_rig(&rig);
    rig_run(&rig, send_and_cancel, 3);
    assert_own(&rig.calls[0]);
    assert_int_equal(rig.calls[1].error.status, ST_CANCELLED);
    assert_own(&rig.calls[2]);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_requests_of_unequal_lengths_are_one_execution),
        cmocka_unit_test(joint_request_that_fails_is_halved),
        cmocka_unit_test(joint_answer_that_cannot_be_divided_is_asked_for_again),
        cmocka_unit_test(joint_answer_without_outputs_has_none_for_any_call),
        cmocka_unit_test(joint_request_with_too_much_padding_is_halved),
        cmocka_unit_test(joint_request_counts_in_budget),
        cmocka_unit_test(joint_request_is_cancelled_when_all_are),
        cmocka_unit_test(joint_request_that_fails_late_fails_all),
        cmocka_unit_test(joint_request_has_no_cancelled_part),
    };
    return cmocka_run_group_tests_name("serve/scheduler/joint_request", tests, NULL, NULL);
}
