/* Valid and invalid answers of a backend: the client gets a clear error, the bytes are released
 * once, and the next request is served. */
#include "serve/scheduler/host_callbacks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

static void send_one(struct rig *rig) {
    rig_send(rig, 0);
}

static const struct model_config on_instance = {.run_on = RUN_ON_INSTANCE};
static const struct model_config on_worker = {.run_on = RUN_ON_WORKER};

/* ---- invalid answers ------------------------------------------------------------------------- */

static void more_outputs(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->n_outputs = 3;
}

static void twice(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[1] = outputs[0];
}

static void wrong_order(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    sluice_output first = outputs[0];
    outputs[0] = outputs[1];
    outputs[1] = first;
}

static void wrong_datatype(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].datatype = SLUICE_INT32;
}

static void too_many_dims(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].rank = 65;
}

static void no_dims(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].dims = NULL;
}

static void negative_dim(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)outputs;
    dims[1] = -1;
}

static void overflowing_dims(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)outputs;
    dims[0] = INT64_MAX;
}

static void one_byte_short(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].n_bytes--;
}

static void no_address(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].data = NULL;
}

static void misaligned(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response, (void)dims;
    outputs[0].data = (const char *)outputs[0].data + 1;
}

static void nameless_param(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    static const sluice_param params[1] = {{.kind = SLUICE_PARAM_INT64}};
    (void)outputs, (void)dims;
    response->params = params;
    response->n_params = 1;
}

static void param_without_text(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    static const sluice_param params[1] = {
        {.name = "a", .name_bytes = 1, .kind = SLUICE_PARAM_STRING}};
    (void)outputs, (void)dims;
    response->params = params;
    response->n_params = 1;
}

static void outputs_nowhere(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->outputs = NULL;
}

static void params_nowhere(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->n_params = 3;
}

struct wrong {
    void (*corrupt_response)(sluice_response *response, sluice_output *outputs, int64_t *dims);
    const char *says;
};

static const struct wrong wrongs[] = {
    {more_outputs, "asked for 2 outputs and gave 3"},
    {wrong_order, "backend fake gave output number 0 where it is not expected"},
    {twice, "backend fake gave output number 0 where it is not expected"},
    {wrong_datatype, "output \"y\" of backend fake: expected datatype FP32, got number 8"},
    {too_many_dims, "expected at most 64 dimensions, got 65"},
    {no_dims, "2 without their sizes"},
    {negative_dim, "shape [1,-1] is not possible"},
    {overflowing_dims, "is not possible"},
    {one_byte_short, "FP32 of shape [1,4] is 16 bytes, got 15"},
    {no_address, "16 bytes at no address"},
    {misaligned, "not aligned to 4"},
    {nameless_param, "response parameter 0"},
    {param_without_text, "response parameter 0"},
    {outputs_nowhere, "2 outputs at no address"},
    {params_nowhere, "3 response parameters at no address"},
};

static void a_wrong_answer_is_an_error(const struct model_config *config) {
    static struct rig rig;
    rig_open(&rig, config, 0);
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        int released = atomic_load(&rig.model->n_released);
        rig.model->corrupt_response = wrongs[i].corrupt_response;
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].n_done, 1);
        assert_int_equal(rig.calls[0].error.status, ST_BACKEND_FAILED);
        assert_int_equal(rig.calls[0].n_outputs, 0);
        assert_int_equal(rig.calls[0].n_params, 0);
        if (!strstr(rig.calls[0].error.text, wrongs[i].says)) {
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, rig.calls[0].error.text,
                     wrongs[i].says);
        }
        assert_int_equal(atomic_load(&rig.model->n_released), released + 1);
        rig.model->corrupt_response = NULL;
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].error.status, ST_OK);
    }
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

/* The outputs are 16 and 8 bytes. */
static void respond_outputs_over_limit_are_refused(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    for (uint64_t limit = 23; limit <= 24; limit++) {
        int released = atomic_load(&rig.model->n_released);
        rig.version->max_output_size = limit;
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].error.status, limit < 24 ? ST_OUTPUT_TOO_LARGE : ST_OK);
        assert_int_equal(rig.calls[0].n_outputs, limit < 24 ? 0 : 2);
        assert_int_equal(atomic_load(&rig.model->n_released), released + 1);
        if (limit < 24) {
            assert_non_null(strstr(rig.calls[0].error.text, "24 bytes together; at most 23"));
        }
    }
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

static void respond_invalid_response_is_backend_error(void **state) {
    (void)state;
    a_wrong_answer_is_an_error(&on_instance);
    a_wrong_answer_is_an_error(&on_worker);
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failure {
    sluice_status status;
    const char *text;
    enum status ours;
    const char *says;
};

static const struct failure failures[] = {
    {SLUICE_INVALID_ARGUMENT, "too hot", ST_BAD_REQUEST, "too hot"},
    {SLUICE_NOT_FOUND, "no label", ST_NOT_FOUND, "no label"},
    {SLUICE_UNAVAILABLE, "busy", ST_NOT_READY, "busy"},
    {SLUICE_UNSUPPORTED, "cannot", ST_UNSUPPORTED, "cannot"},
    {SLUICE_CANCELLED, "gone", ST_CANCELLED, "gone"},
    {SLUICE_NO_MEMORY, "full", ST_NO_MEMORY, "full"},
    {SLUICE_TOO_LARGE, "too much", ST_OUTPUT_TOO_LARGE, "too much"},
    {SLUICE_ALREADY_EXISTS, "twice", ST_ALREADY_EXISTS, "twice"},
    {SLUICE_INTERNAL, "broken", ST_BACKEND_FAILED, "broken"},
    {SLUICE_INTERNAL, NULL, ST_BACKEND_FAILED, "backend fake failed without a reason"},
    {(sluice_status)99, "odd", ST_BACKEND_FAILED, "odd"},
};

static void fail_by_row(sluice_model *model, const sluice_request *request) {
    const struct failure *row =
        &failures[(size_t)((const float *)request->inputs[0].pieces[0].data)[0]];
    sluice_response response = {.size = sizeof(response),
                                .status = row->status,
                                .error = row->text,
                                .final = 1,
                                .release = rig_release,
                                .cookie = model};
    backend_host()->respond(request, &response);
}

static void send_each_failure(struct rig *rig) {
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        rig_send(rig, i);
    }
}

static void respond_failure_status_and_text_are_mapped(void **state) {
    static struct rig rig;
    enum { N = sizeof(failures) / sizeof(failures[0]) };
    (void)state;
    rig_open(&rig, NULL, 0);
    rig.model->handle_request = fail_by_row;
    rig_run(&rig, send_each_failure, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(rig.calls[i].error.status, failures[i].ours);
        assert_string_equal(rig.calls[i].error.text, failures[i].says);
    }
    assert_int_equal(atomic_load(&rig.model->n_released), N);
    rig_close(&rig);
}

/* ---- several answers ------------------------------------------------------------------------- */

/* Outputs with final = 0, then a final answer without outputs. */
static void answer_then_end(sluice_model *model, const sluice_request *request) {
    sluice_response end = {
        .size = sizeof(end), .final = 1, .release = rig_release, .cookie = model};
    rig_answer(model, request, 0);
    backend_host()->respond(request, &end);
}

static void answer_twice(sluice_model *model, const sluice_request *request) {
    rig_answer(model, request, 0);
    rig_answer(model, request, 1);
}

static void answer_three_times(sluice_model *model, const sluice_request *request) {
    rig_answer(model, request, 0);
    rig_answer(model, request, 0);
    rig_answer(model, request, 1);
}

static void answer_then_fail(sluice_model *model, const sluice_request *request) {
    sluice_response failure = {.size = sizeof(failure),
                               .status = SLUICE_INTERNAL,
                               .error = "half way",
                               .final = 1,
                               .release = rig_release,
                               .cookie = model};
    rig_answer(model, request, 0);
    backend_host()->respond(request, &failure);
}

static void end_at_once(sluice_model *model, const sluice_request *request) {
    sluice_response end = {
        .size = sizeof(end), .final = 1, .release = rig_release, .cookie = model};
    backend_host()->respond(request, &end);
}

/* ---- outputs that are left out --------------------------------------------------------------- */

static void only_first(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->n_outputs = 1;
}

static void only_second(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)dims;
    outputs[0] = outputs[1];
    response->n_outputs = 1;
}

static void none(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->outputs = NULL;
    response->n_outputs = 0;
}

static void respond_outputs_that_are_left_out_are_not_in_the_response(void **state) {
    static struct rig rig;
    static const struct {
        void (*leave_out)(sluice_response *response, sluice_output *outputs, int64_t *dims);
        size_t n_outputs, rank;
    } rows[] = {{only_first, 1, 2}, {only_second, 1, 1}, {none, 0, 0}};
    const struct model_config *configs[] = {&on_instance, &on_worker};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, configs[i % 2], 0);
        rig.model->corrupt_response = rows[i / 2].leave_out;
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].error.status, ST_OK);
        assert_int_equal(rig.calls[0].n_outputs, rows[i / 2].n_outputs);
        assert_int_equal(rig.calls[0].y_rank, rows[i / 2].rank);
        assert_int_equal(atomic_load(&rig.model->n_released), 1);
        rig_close(&rig);
        assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    }
}

struct series {
    void (*handle_request)(sluice_model *model, const sluice_request *request);
    int n_released;
    enum status status;
    const char *says;
};

static const struct series serieses[] = {
    {rig_echo, 1, ST_OK, ""},
    {answer_then_end, 2, ST_OK, ""},
    {answer_twice, 2, ST_UNSUPPORTED, "more than one answer"},
    {answer_three_times, 3, ST_UNSUPPORTED, "more than one answer"},
    {answer_then_fail, 2, ST_BACKEND_FAILED, "half way"},
    {end_at_once, 1, ST_OK, ""},
};

static void respond_several_responses_deliver_one(void **state) {
    static struct rig rig;
    const struct model_config *configs[] = {&on_instance, &on_worker};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(serieses) / sizeof(serieses[0]); i++) {
        const struct series *row = &serieses[i / 2];
        rig_open(&rig, configs[i % 2], 0);
        rig.model->handle_request = row->handle_request;
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].n_done, 1);
        assert_int_equal(rig.calls[0].error.status, row->status);
        assert_non_null(strstr(rig.calls[0].error.text, row->says));
        size_t expected = row->status == ST_OK && row->handle_request != end_at_once ? 2 : 0;
        assert_int_equal(rig.calls[0].n_outputs, expected);
        assert_int_equal(atomic_load(&rig.model->n_released), row->n_released);
        rig_close(&rig);
        assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    }
}

/* ---- contents of an answer ------------------------------------------------------------------- */

/* A higher rank than described, with a parameter: exceeds the prepared memory. */
static void deeper(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    static const sluice_param params[1] = {{.name = "note",
                                            .name_bytes = 4,
                                            .kind = SLUICE_PARAM_STRING,
                                            .string = "deep",
                                            .string_bytes = 4}};
    dims[1] = 2;
    dims[2] = 2;
    outputs[0].rank = 4;
    response->params = params;
    response->n_params = 1;
}

static void respond_unexpected_shape_passes_with_warning(void **state) {
    static struct rig rig;
    const int64_t expected[4] = {1, 2, 2, 1};
    (void)state;
    rig_open(&rig, &on_instance, 0);
    rig.model->corrupt_response = deeper;
    for (int i = 0; i < 2; i++) { /* logged once */
        rig_run(&rig, send_one, 1);
        assert_int_equal(rig.calls[0].error.status, ST_OK);
        assert_int_equal(rig.calls[0].y_rank, 4);
        assert_memory_equal(rig.calls[0].y_dims, expected, sizeof(expected));
        assert_int_equal(rig.calls[0].n_params, 1);
        assert_string_equal(rig.calls[0].text, "deep");
    }
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void without_release(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)outputs, (void)dims;
    response->release = NULL;
}

static void respond_without_release_callback_is_ok(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, NULL, 0);
    rig.model->corrupt_response = without_release;
    rig_run(&rig, send_one, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(atomic_load(&rig.model->n_released), 0);
    rig_close(&rig);
}

/* ---- the request that the backend receives --------------------------------------------------- */

static void check_request(sluice_model *model, const sluice_request *request) {
    assert_int_equal(request->size, sizeof(*request));
    assert_string_equal(request->id, "r\xc3\xa4");
    assert_int_equal(request->id_bytes, 3);
    assert_int_equal(request->batch, 2);
    assert_int_equal(request->n_inputs, 1);
    assert_string_equal(request->inputs[0].name, "x");
    assert_int_equal(request->inputs[0].index, 0);
    assert_int_equal(request->inputs[0].datatype, SLUICE_FP32);
    assert_int_equal(request->inputs[0].n_bytes, 32);
    assert_int_equal(request->n_wanted, 1);
    assert_int_equal(request->wanted[0], 1); /* rows only */
    assert_int_equal(request->n_params, 2);
    assert_string_equal(request->params[0].name, "k");
    assert_int_equal(request->params[0].kind, SLUICE_PARAM_STRING);
    assert_int_equal(request->params[0].string_bytes, 3);
    assert_memory_equal(request->params[0].string, "v\0w", 4);
    assert_int_equal(request->params[1].kind, SLUICE_PARAM_UINT64);
    assert_true(request->params[1].uint64 == UINT64_MAX);
    assert_int_equal(request->deadline_ns, INT64_MAX);
    rig_echo(model, request);
}

static void send_with_everything(struct rig *rig) {
    static struct infer_requested_output wanted[1];
    static const struct param params[2] = {
        {.name = STR("k"), .kind = PARAM_STRING, .string = STR("v\0w")},
        {.name = STR("big"), .kind = PARAM_UINT64, .uint64 = UINT64_MAX}};
    struct error err;
    struct rig_call *call = rig_make(rig, 0, 2, 1);
    wanted[0].name = STR("rows");
    call->request.id = str_make("r\xc3\xa4tail", 3); /* not NUL-terminated at its end */
    call->request.wanted = wanted;
    call->request.n_wanted = 1;
    call->request.params = (struct params){params, 2};
    call->request.deadline_ns = INT64_MAX;
    assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err), ST_OK);
    rig_submit(call);
}

static void backend_request_has_all_fields(void **state) {
    static struct rig rig;
    (void)state;
    rig_open(&rig, &on_worker, 0); /* assertions must fail on this thread */
    rig.model->handle_request = check_request;
    rig_run(&rig, send_with_everything, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[0].n_outputs, 1);
    assert_int_equal(rig.calls[0].y_rank, 1);
    assert_int_equal(rig.calls[0].y_dims[0], 2);
    rig_close(&rig);
}

/* ---- reshaping ------------------------------------------------------------------------------- */

static void check_reshaped(sluice_model *model, const sluice_request *request) {
    const sluice_input *x = &request->inputs[0];
    assert_int_equal(x->rank, 2); /* the model's shape, not the client's */
    assert_int_equal(x->dims[0], 3);
    assert_int_equal(x->dims[1], RIG_WIDTH);
    rig_echo(model, request);
}

static void send_three_dimensions(struct rig *rig) {
    static const int64_t dims[3] = {3, 2, 2};
    struct rig_call *call = rig_make_unchecked(rig, 0, 3, 1);
    struct error err;
    call->input.tensor.shape = (struct shape){dims, 3};
    assert_int_equal(infer_check(&call->request, model_version_spec(rig->version), &err), ST_OK);
    rig_submit(call);
}

/* The output has one number per row too many for the reshape. */
static void wider(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    (void)response;
    dims[1] = 3;
    outputs[0].n_bytes = 3 * 3 * sizeof(float);
}

static void backend_request_and_response_are_reshaped(void **state) {
    static struct rig rig;
    const int64_t seen[2] = {2, 2}, own[1] = {RIG_WIDTH}, expected[3] = {3, 2, 2};
    struct model_config_tensor x = {.name = STR("x"),
                                    .dims = {seen, 2},
                                    .has_dims = true,
                                    .reshape = {own, 1},
                                    .has_reshape = true};
    struct model_config_tensor y = x;
    y.name = STR("y");
    struct model_config config = {.has_max_batch_size = true,
                                  .max_batch_size = RIG_ROWS_MAX,
                                  .run_on = RUN_ON_WORKER,
                                  .inputs = &x,
                                  .n_inputs = 1,
                                  .outputs = &y,
                                  .n_outputs = 1};
    (void)state;
    rig_open(&rig, &config, 0);
    rig.model->handle_request = check_reshaped;
    rig_run(&rig, send_three_dimensions, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[0].y_rank, 3);
    assert_memory_equal(rig.calls[0].y_dims, expected, sizeof(expected));
    assert_memory_equal(rig.calls[0].y, rig.calls[0].x, rig.calls[0].piece.n_bytes);
    rig.model->corrupt_response = wider;
    rig_run(&rig, send_three_dimensions, 1);
    assert_int_equal(rig.calls[0].error.status, ST_BACKEND_FAILED);
    assert_non_null(
        strstr(rig.calls[0].error.text, "expected shape [-1,4], to be reshaped, got [3,3]"));
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(respond_outputs_over_limit_are_refused),
        cmocka_unit_test(respond_invalid_response_is_backend_error),
        cmocka_unit_test(respond_outputs_that_are_left_out_are_not_in_the_response),
        cmocka_unit_test(respond_failure_status_and_text_are_mapped),
        cmocka_unit_test(respond_several_responses_deliver_one),
        cmocka_unit_test(respond_unexpected_shape_passes_with_warning),
        cmocka_unit_test(respond_without_release_callback_is_ok),
        cmocka_unit_test(backend_request_has_all_fields),
        cmocka_unit_test(backend_request_and_response_are_reshaped),
    };
    return cmocka_run_group_tests_name("serve/scheduler/host_callbacks", tests, NULL, NULL);
}
