/* ONNX models beyond identity: tests for each backend that runs them. */
#include "onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void onnx_execute(struct opened_model *opened, struct test_request *test_requests, size_t n) {
    const sluice_request *requests[ONNX_REQUESTS_MAX];
    assert_true(n <= ONNX_REQUESTS_MAX);
    for (size_t i = 0; i < n; i++) {
        requests[i] = &test_requests[i].request;
    }
    opened->backend->execute(opened->instances[0], requests, n);
}

void onnx_request_init(struct test_request *test_request, uint64_t batch, const int64_t *dims,
                       size_t rank, const float *values, size_t n) {
    test_request_init(test_request, batch);
    test_request_add_input(test_request, 0, "x", SLUICE_FP32, dims, rank, values,
                           n * sizeof(float));
}

void onnx_requests_init_rows(struct test_request *test_requests, size_t n) {
    static const int64_t dims[] = {1, 4};
    for (size_t i = 0; i < n; i++) {
        const float values[] = {(float)i, 1, 2, 3};
        onnx_request_init(&test_requests[i], 1, dims, 2, values, 4);
    }
}

void onnx_requests_fini(struct test_request *test_requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        test_request_fini(&test_requests[i]);
    }
}

void onnx_check_output(const sluice_output *output, const float *values, size_t n) {
    assert_int_equal(output->datatype, SLUICE_FP32);
    assert_int_equal(output->n_bytes, n * sizeof(float));
    assert_memory_equal(output->data, values, n * sizeof(float));
}

/* A model with external weights, both files in a directory named like the model file. */
static void onnx_model_directory_is_loaded(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {1, 2, 3, 4};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_folder", NULL, NULL, 1);
    onnx_request_init(&test_request, 1, dims, 2, values, 4);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    onnx_check_output(&test_request_expect_ok(&test_request)->outputs[0],
                      (const float[]){11, 12, 13, 14}, 4);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void ask_add(struct test_request *test_request, float a, float b) {
    static const int64_t dims[] = {1, 4};
    const float left[] = {a, a, a, a}, right[] = {b, b, b, b};
    test_request_init(test_request, 1);
    test_request_add_input(test_request, 0, "a", SLUICE_FP32, dims, 2, left, sizeof(left));
    test_request_add_input(test_request, 1, "b", SLUICE_FP32, dims, 2, right, sizeof(right));
}

/* Observed by the answers' addresses: adjacent in the output of one run. */
static void onnx_batch_is_one_run(void **state) {
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, "onnx_add", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_add(&test_requests[i], 1, (float)i);
        test_request_want_output(&test_requests[i], 0);
    }
    onnx_execute(&opened, test_requests, 3);
    const char *first = test_request_expect_ok(&test_requests[0])->outputs[0].data;
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(test_request_expect_ok(&test_requests[i])->outputs[0].data,
                         first + i * 4 * sizeof(float));
    }
    onnx_requests_fini(test_requests, 3);
    opened_model_fini(&opened);
}

/* The requests of a batch want different outputs, in different orders. */
static void onnx_wanted_outputs_only_are_returned(void **state) {
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, "onnx_add", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_add(&test_requests[i], 10, (float)i);
    }
    test_request_want_output(&test_requests[0], 1);
    test_request_want_output(&test_requests[1], 1);
    test_request_want_output(&test_requests[1], 0);
    test_request_want_output(&test_requests[2], 0);
    onnx_execute(&opened, test_requests, 3);
    const float ten[] = {10, 10, 10, 10}, nine[] = {9, 9, 9, 9}, eleven[] = {11, 11, 11, 11},
                twelve[] = {12, 12, 12, 12};
    onnx_check_output(&test_request_expect_ok(&test_requests[0])->outputs[0], ten, 4);
    onnx_check_output(&test_request_expect_ok(&test_requests[1])->outputs[0], nine, 4);
    onnx_check_output(&test_request_expect_ok(&test_requests[1])->outputs[1], eleven, 4);
    onnx_check_output(&test_request_expect_ok(&test_requests[2])->outputs[0], twelve, 4);
    onnx_requests_fini(test_requests, 3);
    opened_model_fini(&opened);
}

static void onnx_outputs_of_different_datatypes(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {-1.5f, 0, 0.25f, 1e6f};
    static const int64_t rounded[] = {-2, 0, 0, 1000000};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_three_outputs", NULL, NULL, 1);
    onnx_request_init(&test_request, 1, dims, 2, values, 4);
    for (uint32_t i = 0; i < 3; i++) {
        test_request_want_output(&test_request, 2 - i);
    }
    onnx_execute(&opened, &test_request, 1);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    assert_int_equal(response_kept->outputs[0].datatype, SLUICE_BOOL);
    assert_memory_equal(response_kept->outputs[0].data, "\0\0\1\1", 4);
    assert_int_equal(response_kept->outputs[1].datatype, SLUICE_INT64);
    assert_memory_equal(response_kept->outputs[1].data, rounded, sizeof(rounded));
    onnx_check_output(&response_kept->outputs[2], (const float[]){-3, 0, 0.5f, 2e6f}, 4);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* The graph passes its input through. A single request's own bytes may be returned; those of a
 * batch are in gathered memory that the next batch overwrites. */
static void onnx_passthrough_output_is_not_overwritten(void **state) {
    struct opened_model opened;
    struct test_request test_requests[4];
    opened_model_init(&opened, *state, "onnx_passthrough", NULL, NULL, 1);
    onnx_requests_init_rows(test_requests, 4);
    for (size_t i = 0; i < 4; i++) {
        test_request_want_output(&test_requests[i], 0);
        test_request_want_output(&test_requests[i], 1);
    }
    onnx_execute(&opened, test_requests, 1);
    onnx_execute(&opened, test_requests + 1, 2);
    test_request_split_input(&test_requests[3], 0, 4);
    onnx_execute(&opened, test_requests + 3, 1);
    for (size_t i = 0; i < 4; i++) {
        const struct test_response *response_kept = test_request_expect_ok(&test_requests[i]);
        onnx_check_output(&response_kept->outputs[0], (const float[]){(float)i, 1, 2, 3}, 4);
        onnx_check_output(&response_kept->outputs[1], (const float[]){(float)(2 * i), 2, 4, 6}, 4);
    }
    onnx_requests_fini(test_requests, 4);
    opened_model_fini(&opened);
}

/* A scalar for the whole batch cannot be split: each request gets its own run. */
static void onnx_scalar_output_splits_batch(void **state) {
    static const int64_t dims[] = {1, 4};
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, "onnx_total", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        const float values[] = {1, 1, 1, (float)i};
        onnx_request_init(&test_requests[i], 1, dims, 2, values, 4);
        test_request_want_output(&test_requests[i], 0);
    }
    onnx_execute(&opened, test_requests, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct test_response *response_kept = test_request_expect_ok(&test_requests[i]);
        assert_int_equal(response_kept->outputs[0].rank, 0);
        onnx_check_output(&response_kept->outputs[0], (const float[]){3 + (float)i}, 1);
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

static void onnx_dynamic_shapes_by_table(void **state) {
    static const float values[] = {1, 2, 3, 4, 5, 6};
    static const struct {
        int64_t dims[2];
        float turned[6];
    } cases[] = {
        {{2, 3}, {1, 4, 2, 5, 3, 6}}, {{3, 2}, {1, 3, 5, 2, 4, 6}}, {{6, 1}, {1, 2, 3, 4, 5, 6}}};
    struct opened_model opened;
    opened_model_init(&opened, *state, "onnx_dynamic", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        struct test_request test_request;
        onnx_request_init(&test_request, 1, cases[i].dims, 2, values, 6);
        test_request_want_output(&test_request, 0);
        onnx_execute(&opened, &test_request, 1);
        const struct test_response *response_kept = test_request_expect_ok(&test_request);
        assert_int_equal(response_kept->outputs[0].dims[0], cases[i].dims[1]);
        onnx_check_output(&response_kept->outputs[0], cases[i].turned, 6);
        test_request_fini(&test_request);
    }
    opened_model_fini(&opened);
}

static void onnx_scalar_input_and_output(void **state) {
    static const double three = 3;
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_rank0", NULL, NULL, 1);
    test_request_init(&test_request, 1);
    test_request_add_input(&test_request, 0, "x", SLUICE_FP64, NULL, 0, &three, sizeof(three));
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    assert_int_equal(response_kept->outputs[0].rank, 0);
    assert_true(*(const double *)response_kept->outputs[0].data == 9);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

int onnx_run(struct backend_under_test *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(onnx_model_directory_is_loaded, subject),
        cmocka_unit_test_prestate(onnx_batch_is_one_run, subject),
        cmocka_unit_test_prestate(onnx_wanted_outputs_only_are_returned, subject),
        cmocka_unit_test_prestate(onnx_outputs_of_different_datatypes, subject),
        cmocka_unit_test_prestate(onnx_passthrough_output_is_not_overwritten, subject),
        cmocka_unit_test_prestate(onnx_scalar_output_splits_batch, subject),
        cmocka_unit_test_prestate(onnx_dynamic_shapes_by_table, subject),
        cmocka_unit_test_prestate(onnx_scalar_input_and_output, subject),
    };
    return cmocka_run_group_tests_name("ONNX models", tests, NULL, NULL);
}
