/* Tests of the openvino backend only: model descriptions, refused models, IR models, and numbers
 * that the library would truncate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "onnx.h"
#include "test_request.h"
#include "under_test.h"

/* A tensor as one line: NAME DATATYPE DIMS */
static void check_info(const sluice_tensor_info *info, const char *name, sluice_datatype datatype,
                       const char *dims) {
    char text[128] = "";
    size_t n = 0;
    for (size_t i = 0; i < info->rank; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", i ? "," : "",
                              (long long)info->dims[i]);
    }
    assert_string_equal(info->name, name);
    assert_int_equal(info->datatype, datatype);
    assert_null(info->symbols);
    assert_string_equal(text, dims);
}

static void openvino_signature_by_table(void **state) {
    static const struct {
        const char *model;
        sluice_datatype datatype;
        const char *input_dims;
        const char *output_dims;
    } cases[] = {
        {"onnx_identity_bf16", SLUICE_BF16, "-1,4", "-1,4"},
        {"onnx_identity_fp16", SLUICE_FP16, "-1,4", "-1,4"},
        {"onnx_dynamic", SLUICE_FP32, "-1,-1", "-1,-1"},
        {"onnx_scalar_fixed", SLUICE_FP32, "1,4", "1,4"},
        {"onnx_rank0", SLUICE_FP64, "", ""},
        {"mlp", SLUICE_FP32, "-1,784", "-1,10"},
        {"ir_mlp", SLUICE_FP32, "-1,784", "-1,10"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct opened_model opened;
        opened_model_init(&opened, *state, cases[i].model, NULL, NULL, 0);
        assert_string_equal(opened.info.platform, "openvino");
        assert_false(opened.info.takes_any || opened.info.cheap);
        assert_int_equal(opened.info.n_inputs, 1);
        assert_int_equal(opened.info.n_outputs, 1);
        check_info(opened.info.inputs, "x", cases[i].datatype, cases[i].input_dims);
        check_info(opened.info.outputs, "y", cases[i].datatype, cases[i].output_dims);
        opened_model_fini(&opened);
    }
}

static void openvino_time_follows_shapes_by_table(void **state) {
    static const struct {
        const char *model;
        int32_t follows;
    } cases[] = {
        {"onnx_scalar_fixed", 1},
        {"ir_onnx_scalar_fixed", 1},
        {"mlp", 0},
        {"ir_mlp", 0},
        {"ir_follows_pairs", 0},
        {"onnx_fill", 0},
        {"ir_onnx_fill", 0},
        {"onnx_loop", 0},
        {"ir_onnx_loop", 0},
        {"ir_values_expand", 0},
        {"values_steps", 0},
        {"ir_values_steps", 0},
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

/* OpenVINO keeps the default value and accepts no other: there is no such input. */
static void openvino_initializer_is_constant(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {1, 2, 3, 4};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_optional_rows", NULL, NULL, 1);
    assert_int_equal(opened.info.n_inputs, 1);
    onnx_request_init(&test_request, 1, dims, 2, values, 4);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    onnx_check_output(&test_request_expect_ok(&test_request)->outputs[0],
                      (const float[]){2, 4, 6, 8}, 4);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void openvino_unsupported_model_is_refused(void **state) {
    static const char *const cases[][2] = {
        {"refused_sequence", "the model: No conversion rule found for operations"},
        {"refused_optional_type", "OptionalGetElement"},
        {"refused_float8", "input \"x\" has elements of type f8e4m3"},
        {"refused_text", "is not an ONNX model"},
        {"refused_cut", "ends in the middle"},
        {"refused_ir_cut", "OpenVINO can't load the model: Start-end tags mismatch"},
        {"refused_ir_newer", "IR model of a version that OpenVINO 2"},
        {"refused_ir_weights", "OpenVINO can't load the model: Incorrect weights in bin file"},
        {"absent", "cannot be read"},
    };
    const struct backend_under_test *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model_refused(subject, test_model_path(subject->refused, cases[i][0]), NULL, NULL,
                             cases[i][1]);
    }
    expect_model_refused(
        subject, test_model_path(subject->models, "onnx_mixed"), NULL, NULL,
        "input \"text\" is of strings, which OpenVINO's C interface can't hand over");
}

static void openvino_invalid_parameter_is_refused(void **state) {
    static const char *const cases[][3] = {
        {"INFERENCE_NUM_THREADS", "-1", "0 to 1024"},
        {"INFERENCE_NUM_THREADS", "1025", "0 to 1024"},
        {"INFERENCE_NUM_THREADS", "12345678901234567890", "0 to 1024"},
        {"INFERENCE_NUM_THREADS", "", "0 to 1024"},
        {"PERFORMANCE_HINT", "latency", "LATENCY or THROUGHPUT"},
        {"EXECUTION_MODE_HINT", "2", "PERFORMANCE or ACCURACY"},
        {"INFERENCE_PRECISION_HINT", "i8", "f32, bf16 or f16"},
        {"HINT_BF16", "1", "YES or NO"},
        {"ENABLE_CPU_PINNING", "TRUE", "YES or NO"},
        {"CPU_RUNTIME_CACHE_CAPACITY", "5001", "0 to 5000"},
        {"NUM_STREAMS", "4", "instance_group says how many"},
        {"TARGET_DEVICE", "GPU", "CPU"},
        {"RESHAPE_IO_LAYOUTS", "YES", "NO"},
        {"CPU_EXTENSION_PATH", "/lib/own.so", "no code is loaded for a model"},
    };
    const struct backend_under_test *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model_refused(subject, test_model_path(subject->models, "onnx_add"), cases[i][0],
                             cases[i][1], cases[i][2]);
    }
}

enum { N_PIXELS = 784, N_CLASSES = 10, MAX_ROWS = 400 };

/* Answers of a model shaped like the MLP to three rows. */
static void classify(const struct backend_under_test *subject, const char *model, const char *key,
                     const char *value, float found[3 * N_CLASSES]) {
    static const int64_t dims[] = {3, N_PIXELS};
    float values[3 * N_PIXELS];
    struct opened_model opened;
    struct test_request test_request;
    for (size_t i = 0; i < 3 * N_PIXELS; i++) {
        values[i] = (float)(i % 17) / 17;
    }
    opened_model_init(&opened, subject, model, key, value, 1);
    onnx_request_init(&test_request, 3, dims, 2, values, 3 * N_PIXELS);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    assert_int_equal(response_kept->outputs[0].n_bytes, 3 * N_CLASSES * sizeof(float));
    memcpy(found, response_kept->outputs[0].data, 3 * N_CLASSES * sizeof(float));
    /* inputs are unchanged: the library computes in its own memory */
    assert_memory_equal(test_request.pieces[0][0].data, values, sizeof(values));
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void same(const float *a, const float *b, float tolerance) {
    for (size_t i = 0; i < 3 * N_CLASSES; i++) {
        assert_true(a[i] - b[i] < tolerance && b[i] - a[i] < tolerance);
    }
}

/* Each is accepted without a warning and leaves answers unchanged, except for the precision. */
static void openvino_valid_parameter_keeps_outputs(void **state) {
    static const char *const cases[][2] = {
        {"INFERENCE_NUM_THREADS", "2"},
        {"INFERENCE_NUM_THREADS", "0"},
        {"PERFORMANCE_HINT", "THROUGHPUT"},
        {"EXECUTION_MODE_HINT", "ACCURACY"},
        {"INFERENCE_PRECISION_HINT", "f32"},
        {"HINT_BF16", "NO"},
        {"HINT_BF16", "YES"},
        {"ENABLE_HYPER_THREADING", "NO"},
        {"ENABLE_CPU_PINNING", "YES"},
        {"CPU_DENORMALS_OPTIMIZATION", "YES"},
        {"CPU_RUNTIME_CACHE_CAPACITY", "0"},
        {"NUM_STREAMS", "1"},
        {"TARGET_DEVICE", "CPU"},
        {"RESHAPE_IO_LAYOUTS", "NO"},
    };
    float first[3 * N_CLASSES], found[3 * N_CLASSES];
    classify(*state, "mlp", NULL, NULL, first);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        host_log_clear();
        classify(*state, "mlp", cases[i][0], cases[i][1], found);
        same(first, found, strcmp(cases[i][1], "YES") == 0 ? 0.02f : 1e-5f);
        assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 0);
    }
}

static void openvino_ir_model_equals_onnx_model(void **state) {
    float onnx[3 * N_CLASSES], ir[3 * N_CLASSES];
    classify(*state, "mlp", NULL, NULL, onnx);
    classify(*state, "ir_mlp", NULL, NULL, ir);
    same(onnx, ir, 1e-6f);
}

/* The library would silently keep their lower halves. */
static void openvino_int64_outside_int32_is_refused(void **state) {
    static const int64_t dims[] = {1, 4};
    static const struct {
        sluice_datatype datatype;
        int64_t value;
        const char *part; /* of the error text; NULL: accepted */
    } cases[] = {
        {SLUICE_INT64, INT32_MAX, NULL},
        {SLUICE_INT64, INT32_MIN, NULL},
        {SLUICE_INT64, INT32_MAX + INT64_C(1), "has 2147483648, and OpenVINO computes"},
        {SLUICE_INT64, INT32_MIN - INT64_C(1), "has -2147483649"},
        {SLUICE_INT64, INT64_MIN, "values from -2147483648 to 2147483647"},
        {SLUICE_UINT64, INT32_MAX, NULL},
        {SLUICE_UINT64, INT32_MAX + INT64_C(1), "values from 0 to 2147483647"},
        {SLUICE_UINT64, -1, "has 18446744073709551615"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t values[] = {1, 2, 3, cases[i].value};
        struct opened_model opened;
        struct test_request test_requests[2];
        opened_model_init(&opened, *state, test_identity_model(cases[i].datatype), NULL, NULL, 1);
        for (size_t k = 0; k < 2; k++) { /* the other request of the batch is answered */
            test_request_init(&test_requests[k], 1);
            test_request_add_input(&test_requests[k], 0, "x", cases[i].datatype, dims, 2,
                                   k ? (const int64_t[]){5, 6, 7, 8} : values, sizeof(values));
            test_request_want_output(&test_requests[k], 0);
        }
        onnx_execute(&opened, test_requests, 2);
        if (cases[i].part) {
            test_request_expect_error(&test_requests[0], SLUICE_INVALID_ARGUMENT, cases[i].part);
        } else {
            assert_memory_equal(test_request_expect_ok(&test_requests[0])->outputs[0].data, values,
                                sizeof(values));
        }
        assert_int_equal(
            ((const int64_t *)test_request_expect_ok(&test_requests[1])->outputs[0].data)[3], 8);
        test_request_fini(&test_requests[0]);
        test_request_fini(&test_requests[1]);
        opened_model_fini(&opened);
    }
}

/* A failing request between two good ones must not get outputs of the run before. */
static void openvino_incompatible_shapes_are_an_error(void **state) {
    static const int64_t dims[][2] = {{1, 3}, {1, 2}, {1, 1}};
    static const float values[] = {1, 2, 3};
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, "onnx_broadcast", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        test_request_init(&test_requests[i], 1);
        test_request_add_input(&test_requests[i], 0, "a", SLUICE_FP32, dims[0], 2, values, 12);
        test_request_add_input(&test_requests[i], 1, "b", SLUICE_FP32, dims[i], 2, values,
                               (size_t)dims[i][1] * 4);
        test_request_want_output(&test_requests[i], 0);
        onnx_execute(&opened, &test_requests[i], 1);
    }
    onnx_check_output(&test_request_expect_ok(&test_requests[0])->outputs[0],
                      (const float[]){2, 4, 6}, 3);
    test_request_expect_error(&test_requests[1], SLUICE_INTERNAL,
                              "Eltwise shape infer input shapes dim index: 1 mismatch");
    /* a place in the library's source */
    assert_null(strstr(test_requests[1].responses[0].error, "src/"));
    assert_null(strchr(test_requests[1].responses[0].error, '\n'));
    onnx_check_output(&test_request_expect_ok(&test_requests[2])->outputs[0],
                      (const float[]){2, 3, 4}, 3);
    for (size_t i = 0; i < 3; i++) {
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

/* ONNX Runtime refuses it; the backend's README mentions the difference. */
static void openvino_index_out_of_range_gives_zeros(void **state) {
    static const int64_t dims[] = {1, 2}, indices[] = {8, 1};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_lookup", NULL, NULL, 1);
    test_request_init(&test_request, 1);
    test_request_add_input(&test_request, 0, "x", SLUICE_INT64, dims, 2, indices, sizeof(indices));
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    onnx_check_output(&test_request_expect_ok(&test_request)->outputs[0],
                      (const float[]){0, 0, 0, 3, 4, 5}, 6);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void openvino_fp64_logs_warning(void **state) {
    struct opened_model opened;
    host_log_clear();
    opened_model_init(&opened, *state, "onnx_rank0", NULL, NULL, 0);
    assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 1);
    assert_true(host_log_has("FP64 as FP32"));
    opened_model_fini(&opened);
}

/* An in-place operator must not write to the request's memory, which is tempting for a model
 * without a copy of its own. */
static void openvino_inputs_are_not_written(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {1, -2, 3, -4};
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "onnx_unnamed", NULL, NULL, 1);
    onnx_request_init(&test_request, 1, dims, 2, values, 4);
    test_request_want_output(&test_request, 0);
    onnx_execute(&opened, &test_request, 1);
    onnx_check_output(&test_request_expect_ok(&test_request)->outputs[0],
                      (const float[]){-1, 2, -3, 4}, 4);
    assert_memory_equal(test_request.pieces[0][0].data, values, sizeof(values));
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* KiB of executable memory without a file: code generated by the library. */
static long made_code_kib(void) {
    char line[512], permissions[8], name[256];
    unsigned long from = 0, to = 0, total = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        int n = sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, permissions, name);
        if (n == 3 && permissions[2] == 'x') {
            total += to - from;
        }
    }
    fclose(file);
    return (long)(total / 1024);
}

static void run_rows(struct opened_model *opened, int64_t rows) {
    static float values[MAX_ROWS * N_PIXELS];
    const int64_t dims[] = {rows, N_PIXELS};
    struct test_request test_request;
    onnx_request_init(&test_request, (uint64_t)rows, dims, 2, values, (size_t)rows * N_PIXELS);
    test_request_want_output(&test_request, 0);
    onnx_execute(opened, &test_request, 1);
    assert_int_equal(test_request_expect_ok(&test_request)->outputs[0].dims[0], rows);
    test_request_fini(&test_request);
}

/* The library generates code per shape, and without a bound would keep 190 MB for these. */
static void openvino_many_shapes_code_cache_is_bounded(void **state) {
    struct opened_model opened;
    opened_model_init(&opened, *state, "mlp", NULL, NULL, 1);
    for (int64_t rows = 1; rows <= 20; rows++) {
        run_rows(&opened, MAX_ROWS - rows);
    }
    long before = made_code_kib();
    assert_true(before > 0);
    for (int64_t rows = MAX_ROWS - 20; rows > MAX_ROWS - 320; rows--) {
        run_rows(&opened, rows);
    }
    long grown = made_code_kib() - before;
    if (grown > 60L * 1024) {
        fail_msg("300 shapes left %ld KiB of code behind", grown);
    }
    opened_model_fini(&opened);
}

int openvino_run(struct backend_under_test *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(openvino_signature_by_table, subject),
        cmocka_unit_test_prestate(openvino_time_follows_shapes_by_table, subject),
        cmocka_unit_test_prestate(openvino_initializer_is_constant, subject),
        cmocka_unit_test_prestate(openvino_unsupported_model_is_refused, subject),
        cmocka_unit_test_prestate(openvino_invalid_parameter_is_refused, subject),
        cmocka_unit_test_prestate(openvino_valid_parameter_keeps_outputs, subject),
        cmocka_unit_test_prestate(openvino_ir_model_equals_onnx_model, subject),
        cmocka_unit_test_prestate(openvino_int64_outside_int32_is_refused, subject),
        cmocka_unit_test_prestate(openvino_incompatible_shapes_are_an_error, subject),
        cmocka_unit_test_prestate(openvino_index_out_of_range_gives_zeros, subject),
        cmocka_unit_test_prestate(openvino_fp64_logs_warning, subject),
        cmocka_unit_test_prestate(openvino_inputs_are_not_written, subject),
        cmocka_unit_test_prestate(openvino_many_shapes_code_cache_is_bounded, subject),
    };
    return onnx_run(subject) + cmocka_run_group_tests_name("openvino", tests, NULL, NULL);
}
