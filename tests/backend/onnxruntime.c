/* Tests of the onnxruntime backend only: model descriptions, refused models, and models whose
 * inputs and outputs are not one tensor each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "onnx.h"
#include "test_request.h"
#include "under_test.h"

/* ---- model description ----------------------------------------------------------------------- */

/* A tensor as one line: NAME DATATYPE SYMBOL-or-NUMBER… */
static void check_info(const sluice_tensor_info *info, const char *name, sluice_datatype datatype,
                       const char *dims) {
    char text[128] = "";
    size_t n = 0;
    for (size_t i = 0; i < info->rank; i++) {
        const char *symbol = info->symbols[i];
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld%s", i ? "," : "",
                              (long long)info->dims[i], symbol);
        assert_true(info->dims[i] == -1 || symbol[0] == '\0');
    }
    assert_string_equal(info->name, name);
    assert_int_equal(info->datatype, datatype);
    assert_string_equal(text, dims);
}

static void onnxruntime_signature_by_table(void **state) {
    static const struct {
        const char *model;
        const char *input;
        sluice_datatype input_type;
        const char *input_dims;
        const char *output;
        sluice_datatype output_type;
        const char *output_dims;
    } cases[] = {
        {"onnx_identity_bf16", "x", SLUICE_BF16, "-1batch,4", "y", SLUICE_BF16, "-1batch,4"},
        {"onnx_string", "x", SLUICE_BYTES, "-1batch,-1n", "y", SLUICE_BYTES, "-1batch,-1n"},
        {"onnx_dynamic", "x", SLUICE_FP32, "-1rows,-1columns", "y", SLUICE_FP32,
         "-1columns,-1rows"},
        {"onnx_unnamed", "x", SLUICE_FP32, "-1,4", "y", SLUICE_FP32, "-1,4"},
        {"onnx_scalar_fixed", "x", SLUICE_FP32, "1,4", "y", SLUICE_FP32, "1,4"},
        {"onnx_rank0", "x", SLUICE_FP64, "", "y", SLUICE_FP64, ""},
        {"mlp", "x", SLUICE_FP32, "-1batch,784", "y", SLUICE_FP32, "-1batch,10"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct opened_model opened;
        opened_model_init(&opened, *state, cases[i].model, NULL, NULL, 0);
        assert_string_equal(opened.info.platform, "onnxruntime_onnx");
        assert_false(opened.info.takes_any || opened.info.cheap);
        assert_int_equal(opened.info.n_inputs, 1);
        assert_int_equal(opened.info.n_outputs, 1);
        check_info(opened.info.inputs, cases[i].input, cases[i].input_type, cases[i].input_dims);
        check_info(opened.info.outputs, cases[i].output, cases[i].output_type,
                   cases[i].output_dims);
        opened_model_fini(&opened);
    }
}

static void onnxruntime_time_follows_shapes_by_table(void **state) {
    static const struct {
        const char *model;
        int32_t follows;
    } cases[] = {
        {"onnx_add", 1},
        {"mlp", 1},
        {"cnn", 1},
        {"onnx_folder", 1},
        {"follows_pairs", 1},
        {"follows_kernel", 1},
        {"follows_reshape", 1},
        {"follows_range", 1},
        {"follows_linear", 1},
        {"onnx_loop", 0},
        {"onnx_fill", 0},
        {"onnx_positive", 0},
        {"onnx_upper", 0},
        {"values_reshape", 0},
        {"values_default", 0},
        {"values_expand", 0},
        {"values_random", 0},
        {"values_recurrent", 0},
        {"values_if", 0},
        {"values_contrib", 0},
        {"values_function", 0},
        {"values_steps", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct opened_model opened;
        opened_model_init(&opened, *state, cases[i].model, NULL, NULL, 0);
        if (opened.info.time_follows_shapes != cases[i].follows ||
            opened.info.data_dependent == cases[i].follows) {
            fail_msg("%s", cases[i].model);
        }
        opened_model_fini(&opened);
    }
}

static void onnxruntime_signature_several_tensors(void **state) {
    struct opened_model opened;
    opened_model_init(&opened, *state, "onnx_mixed", NULL, NULL, 0);
    assert_int_equal(opened.info.n_inputs, 3);
    check_info(&opened.info.inputs[0], "text", SLUICE_BYTES, "-1batch,1");
    check_info(&opened.info.inputs[1], "number", SLUICE_FP64, "-1batch,2");
    check_info(&opened.info.inputs[2], "count", SLUICE_INT32, "-1batch,1");
    assert_int_equal(opened.info.n_outputs, 3);
    check_info(&opened.info.outputs[2], "any", SLUICE_BOOL, "-1batch,1");
    opened_model_fini(&opened);
}

static void onnxruntime_initializer_is_optional_input(void **state) {
    struct opened_model opened;
    opened_model_init(&opened, *state, "onnx_optional", NULL, NULL, 0);
    assert_int_equal(opened.info.n_inputs, 2);
    assert_false(opened.info.inputs[0].optional);
    check_info(&opened.info.inputs[1], "scale", SLUICE_FP32, "1");
    assert_true(opened.info.inputs[1].optional);
    opened_model_fini(&opened);
}

/* ---- refused models -------------------------------------------------------------------------- */

static void onnxruntime_unsupported_model_is_refused(void **state) {
    static const char *const cases[][2] = {
        {"refused_sequence", "output \"y\" is a sequence"},
        {"refused_optional_type", "input \"x\" is of ONNX's optional type"},
        {"refused_float8", "input \"x\" has elements of type float8e4m3fn"},
        {"refused_text", "is not an ONNX model"},
        {"absent", "cannot be read"},
    };
    const struct backend_under_test *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model_refused(subject, test_model_path(subject->refused, cases[i][0]), NULL, NULL,
                             cases[i][1]);
    }
}

static void onnxruntime_invalid_parameter_is_refused(void **state) {
    static const char *const cases[][3] = {
        {"intra_op_thread_count", "-1", "0 to 1024"},
        {"intra_op_thread_count", "1025", "0 to 1024"},
        {"inter_op_thread_count", "12345678901234567890", "0 to 1024"},
        {"inter_op_thread_count", "", "0 to 1024"},
        {"execution_mode", "2", "0 (sequential) or 1 (parallel)"},
        {"graph_optimization_level", "99", "disabled, basic, extended or all"},
        {"enable_mem_arena", "yes", "0 or 1"},
        {"memory.enable_memory_arena_shrinkage", "gpu:0", "cpu:0"},
    };
    const struct backend_under_test *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model_refused(subject, test_model_path(subject->models, "onnx_add"), cases[i][0],
                             cases[i][1], cases[i][2]);
    }
}

/* Each is accepted without a warning and leaves answers unchanged. */
static void onnxruntime_valid_parameter_keeps_outputs(void **state) {
    static const char *const cases[][2] = {
        {"intra_op_thread_count", "2"},
        {"intra_op_thread_count", "0"},
        {"inter_op_thread_count", "2"},
        {"execution_mode", "1"},
        {"graph_optimization_level", "disabled"},
        {"graph_optimization_level", "all"},
        {"enable_mem_arena", "0"},
        {"enable_mem_arena", "1"},
        {"arena_extend_strategy", "1"},
        {"enable_mem_pattern", "1"},
        {"memory.enable_memory_arena_shrinkage", "cpu:0"},
        {"session.set_denormal_as_zero", "1"},
        {"session.intra_op.allow_spinning", "0"},
    };
    static const int64_t dims[] = {3, 784};
    float values[3 * 784], first[30];
    for (size_t i = 0; i < 3 * 784; i++) {
        values[i] = (float)(i % 17) / 17;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct opened_model opened;
        struct test_request test_request;
        host_log_clear();
        opened_model_init(&opened, *state, "mlp", cases[i][0], cases[i][1], 1);
        onnx_request_init(&test_request, 3, dims, 2, values, 3 * 784);
        test_request_want_output(&test_request, 0);
        onnx_execute(&opened, &test_request, 1);
        const float *found = test_request_expect_ok(&test_request)->outputs[0].data;
        for (size_t k = 0; k < 30; k++) {
            first[k] = i == 0 ? found[k] : first[k];
            assert_true(found[k] - first[k] < 1e-5f && first[k] - found[k] < 1e-5f);
        }
        assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 0);
        test_request_fini(&test_request);
        opened_model_fini(&opened);
    }
}

/* ---- execution ------------------------------------------------------------------------------- */

static void onnxruntime_optional_input_is_per_request(void **state) {
    static const int64_t dims[] = {1, 4}, one[] = {1};
    static const float values[] = {1, 2, 3, 4}, ten = 10;
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, "onnx_optional_rows", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        onnx_request_init(&test_requests[i], 1, dims, 2, values, 4);
        test_request_want_output(&test_requests[i], 0);
        if (i == 1) {
            test_request_add_input(&test_requests[i], 1, "scale", SLUICE_FP32, one, 1, &ten,
                                   sizeof(ten));
        }
    }
    onnx_execute(&opened, test_requests, 3); /* as if the server had batched them: each keeps its
                                                own */
    onnx_check_output(&test_request_expect_ok(&test_requests[0])->outputs[0],
                      (const float[]){2, 4, 6, 8}, 4);
    onnx_check_output(&test_request_expect_ok(&test_requests[1])->outputs[0],
                      (const float[]){10, 20, 30, 40}, 4);
    onnx_check_output(&test_request_expect_ok(&test_requests[2])->outputs[0],
                      (const float[]){2, 4, 6, 8}, 4);
    onnx_requests_fini(test_requests, 3);
    opened_model_fini(&opened);
}

static void onnxruntime_bad_request_fails_alone(void **state) {
    static const int64_t dims[] = {1, 2};
    static const int64_t indices[][2] = {{0, 7}, {8, 0}, {1, 1}};
    struct opened_model opened;
    struct test_request test_requests[3];
    host_log_clear();
    opened_model_init(&opened, *state, "onnx_lookup", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        test_request_init(&test_requests[i], 1);
        test_request_add_input(&test_requests[i], 0, "x", SLUICE_INT64, dims, 2, indices[i],
                               sizeof(indices[i]));
        test_request_want_output(&test_requests[i], 0);
    }
    onnx_execute(&opened, test_requests, 3);
    onnx_check_output(&test_request_expect_ok(&test_requests[0])->outputs[0],
                      (const float[]){0, 1, 2, 21, 22, 23}, 6);
    test_request_expect_error(&test_requests[1], SLUICE_INVALID_ARGUMENT, "out of data bounds");
    onnx_check_output(&test_request_expect_ok(&test_requests[2])->outputs[0],
                      (const float[]){3, 4, 5, 3, 4, 5}, 6);
    assert_null(strchr(test_requests[1].responses[0].error, '\n'));
    /* reported in the answer, not in the log too */
    assert_int_equal(host_log_count(SLUICE_LOG_ERROR), 0);
    onnx_requests_fini(test_requests, 3);
    opened_model_fini(&opened);
}

static void onnxruntime_bad_request_halves_batch(void **state) {
    enum { N = 16, BAD = 9 };
    static const int64_t dims[] = {1, 2}, good[] = {0, 7}, bad[] = {8, 0};
    struct opened_model opened;
    struct test_request test_requests[N];
    opened_model_init(&opened, *state, "onnx_lookup", NULL, NULL, 1);
    for (size_t i = 0; i < N; i++) {
        test_request_init(&test_requests[i], 1);
        test_request_add_input(&test_requests[i], 0, "x", SLUICE_INT64, dims, 2,
                               i == BAD ? bad : good, sizeof(good));
        test_request_want_output(&test_requests[i], 0);
    }
    size_t n_before = host_computed_count();
    onnx_execute(&opened, test_requests, N);
    /* 16, 8 of them, the other 8, 4, 2, 1, the bad one, 2, 4 */
    assert_int_equal(host_computed_count() - n_before, 9);
    for (size_t i = 0; i < N; i++) {
        if (i == BAD) {
            test_request_expect_error(&test_requests[i], SLUICE_INVALID_ARGUMENT, "out of data");
        } else {
            onnx_check_output(&test_request_expect_ok(&test_requests[i])->outputs[0],
                              (const float[]){0, 1, 2, 21, 22, 23}, 6);
        }
    }
    onnx_requests_fini(test_requests, N);
    opened_model_fini(&opened);
}

static void onnxruntime_incompatible_shapes_are_an_error(void **state) {
    static const int64_t three[] = {1, 3}, two[] = {1, 2};
    static const float values[] = {1, 2, 3};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_broadcast", NULL, NULL, 1);
    test_request_init(&test_request, 1);
    test_request_add_input(&test_request, 0, "a", SLUICE_FP32, three, 2, values, 12);
    test_request_add_input(&test_request, 1, "b", SLUICE_FP32, two, 2, values, 8);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    test_request_expect_error(&test_request, SLUICE_INVALID_ARGUMENT, "broadcast");
    assert_null(strstr(test_request.responses[0].error, "_src/")); /* path of the library's build */
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void run_fill(struct opened_model *opened, int64_t n, sluice_status want, const char *says) {
    static const int64_t dims[] = {1};
    struct test_request test_request;
    test_request_init(&test_request, 1);
    test_request_add_input(&test_request, 0, "n", SLUICE_INT64, dims, 1, &n, sizeof(n));
    test_request_want_output(&test_request, 0);
    onnx_execute(opened, &test_request, 1);
    if (want == SLUICE_OK) {
        assert_int_equal(test_request_expect_ok(&test_request)->outputs[0].n_bytes, n * 4);
    } else {
        test_request_expect_error(&test_request, want, says);
    }
    test_request_fini(&test_request);
}

/* A request of 8 bytes that asks for more memory than a result may have, and for impossible
 * shapes. */
static void onnxruntime_output_over_limit_is_not_allocated(void **state) {
    static const int64_t most = MAX_OUTPUT_BYTES / 4;
    struct opened_model opened;
    opened_model_init(&opened, *state, "onnx_fill", NULL, NULL, 1);
    run_fill(&opened, most, SLUICE_OK, NULL);
    run_fill(&opened, most + 64, SLUICE_TOO_LARGE, "67109120 bytes; at most 67108864");
    run_fill(&opened, (int64_t)1 << 40, SLUICE_TOO_LARGE, "--max-output-size");
    run_fill(&opened, INT64_MAX, SLUICE_INVALID_ARGUMENT, "ConstantOfShape");
    run_fill(&opened, -1, SLUICE_INVALID_ARGUMENT, "ConstantOfShape");
    run_fill(&opened, 3, SLUICE_OK, NULL);
    opened_model_fini(&opened);
}

/* Strings through an operator that processes them, not only a copy. */
static void onnxruntime_string_operator_output(void **state) {
    static const int64_t dims[] = {3};
    static const char bytes[] = "\x02\0\0\0hi\0\0\0\0\x03\0\0\0a-z";
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_upper", NULL, NULL, 1);
    test_request_init(&test_request, 1);
    test_request_add_input(&test_request, 0, "x", SLUICE_BYTES, dims, 1, bytes, sizeof(bytes) - 1);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    assert_int_equal(response_kept->outputs[0].n_bytes, sizeof(bytes) - 1);
    assert_memory_equal(response_kept->outputs[0].data, "\x02\0\0\0HI\0\0\0\0\x03\0\0\0A-Z",
                        sizeof(bytes) - 1);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* ---- preallocated outputs -------------------------------------------------------------------- */

static void run_row(struct opened_model *opened, const float *values, size_t n, const float *want,
                    size_t n_want) {
    const int64_t dims[] = {(int64_t)n};
    struct test_request test_request;
    onnx_request_init(&test_request, 1, dims, 1, values, n);
    test_request_want_output(&test_request, 0);
    onnx_execute(opened, &test_request, 1);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    assert_int_equal(response_kept->outputs[0].rank, 1);
    assert_int_equal(response_kept->outputs[0].dims[0], n_want);
    onnx_check_output(&response_kept->outputs[0], want, n_want);
    test_request_fini(&test_request);
}

/* As many rows as described, then fewer, then as many again. */
static void onnxruntime_prealloc_shape_mismatch_is_rerun(void **state) {
    static const float all[] = {1, 2, 3}, some[] = {1, -2, 3}, left[] = {1, 3};
    struct opened_model opened;
    opened_model_init(&opened, *state, "onnx_positive", NULL, NULL, 1);
    run_row(&opened, all, 3, all, 3);
    run_row(&opened, some, 3, left, 2);
    run_row(&opened, all, 3, all, 3);
    run_row(&opened, some, 2, left, 1);
    opened_model_fini(&opened);
}

/* The next run writes to the same memory while the first answer may not be sent yet. */
static void onnxruntime_prealloc_held_outputs_are_copied(void **state) {
    struct opened_model opened;
    struct test_request test_requests[6];
    opened_model_init(&opened, *state, "onnx_constant_output", NULL, NULL, 1);
    onnx_requests_init_rows(test_requests, 6);
    for (size_t i = 0; i < 6; i++) {
        test_request_want_output(&test_requests[i], 1);
        if (i == 0 || i == 5) {
            test_request_want_output(&test_requests[i], 0);
        }
    }
    onnx_execute(&opened, test_requests, 1);
    onnx_execute(&opened, test_requests + 1, 1);
    onnx_execute(&opened, test_requests + 2, 3);
    onnx_execute(&opened, test_requests + 5, 1);
    for (size_t i = 0; i < 6; i++) {
        const struct test_response *response_kept = test_request_expect_ok(&test_requests[i]);
        onnx_check_output(&response_kept->outputs[0], (const float[]){(float)(2 * i), 2, 4, 6}, 4);
    }
    onnx_check_output(&test_request_expect_ok(&test_requests[0])->outputs[1],
                      (const float[]){7, 8, 9}, 3);
    onnx_check_output(&test_request_expect_ok(&test_requests[5])->outputs[1],
                      (const float[]){7, 8, 9}, 3);
    onnx_requests_fini(test_requests, 6);
    opened_model_fini(&opened);
}

static void onnxruntime_prealloc_large_output_is_not_preallocated(void **state) {
    static const int64_t dims[] = {1, 600};
    float values[600], want[1200];
    struct opened_model opened;
    struct test_request test_request;
    for (size_t i = 0; i < 600; i++) {
        values[i] = want[i] = want[600 + i] = (float)i;
    }
    opened_model_init(&opened, *state, "onnx_wide", NULL, NULL, 1);
    onnx_request_init(&test_request, 1, dims, 2, values, 600);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    onnx_check_output(&test_request_expect_ok(&test_request)->outputs[0], want, 1200);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

int onnxruntime_run(struct backend_under_test *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(onnxruntime_signature_by_table, subject),
        cmocka_unit_test_prestate(onnxruntime_time_follows_shapes_by_table, subject),
        cmocka_unit_test_prestate(onnxruntime_signature_several_tensors, subject),
        cmocka_unit_test_prestate(onnxruntime_initializer_is_optional_input, subject),
        cmocka_unit_test_prestate(onnxruntime_unsupported_model_is_refused, subject),
        cmocka_unit_test_prestate(onnxruntime_invalid_parameter_is_refused, subject),
        cmocka_unit_test_prestate(onnxruntime_valid_parameter_keeps_outputs, subject),
        cmocka_unit_test_prestate(onnxruntime_optional_input_is_per_request, subject),
        cmocka_unit_test_prestate(onnxruntime_bad_request_fails_alone, subject),
        cmocka_unit_test_prestate(onnxruntime_bad_request_halves_batch, subject),
        cmocka_unit_test_prestate(onnxruntime_incompatible_shapes_are_an_error, subject),
        cmocka_unit_test_prestate(onnxruntime_output_over_limit_is_not_allocated, subject),
        cmocka_unit_test_prestate(onnxruntime_string_operator_output, subject),
        cmocka_unit_test_prestate(onnxruntime_prealloc_shape_mismatch_is_rerun, subject),
        cmocka_unit_test_prestate(onnxruntime_prealloc_held_outputs_are_copied, subject),
        cmocka_unit_test_prestate(onnxruntime_prealloc_large_output_is_not_preallocated, subject),
    };
    return onnx_run(subject) + cmocka_run_group_tests_name("onnxruntime", tests, NULL, NULL);
}
