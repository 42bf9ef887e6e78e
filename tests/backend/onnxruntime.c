/* What is only true of the onnxruntime backend: what it says of models, what it refuses to load,
 * and models whose inputs and outputs are not one tensor each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ask.h"
#include "onnx.h"
#include "subject.h"

/* ---- what it says of a model --------------------------------------------------------------------
 */

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

static void signatures(void **state) {
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
        struct open open;
        open_init(&open, *state, cases[i].model, NULL, NULL, 0);
        assert_string_equal(open.info.platform, "onnxruntime_onnx");
        assert_false(open.info.takes_any || open.info.cheap);
        assert_int_equal(open.info.n_inputs, 1);
        assert_int_equal(open.info.n_outputs, 1);
        check_info(open.info.inputs, cases[i].input, cases[i].input_type, cases[i].input_dims);
        check_info(open.info.outputs, cases[i].output, cases[i].output_type, cases[i].output_dims);
        open_fini(&open);
    }
}

static void several_inputs_and_outputs(void **state) {
    struct open open;
    open_init(&open, *state, "onnx_mixed", NULL, NULL, 0);
    assert_int_equal(open.info.n_inputs, 3);
    check_info(&open.info.inputs[0], "text", SLUICE_BYTES, "-1batch,1");
    check_info(&open.info.inputs[1], "number", SLUICE_FP64, "-1batch,2");
    check_info(&open.info.inputs[2], "count", SLUICE_INT32, "-1batch,1");
    assert_int_equal(open.info.n_outputs, 3);
    check_info(&open.info.outputs[2], "any", SLUICE_BOOL, "-1batch,1");
    open_fini(&open);
}

static void an_initializer_may_be_replaced(void **state) {
    struct open open;
    open_init(&open, *state, "onnx_optional", NULL, NULL, 0);
    assert_int_equal(open.info.n_inputs, 2);
    assert_false(open.info.inputs[0].optional);
    check_info(&open.info.inputs[1], "scale", SLUICE_FP32, "1");
    assert_true(open.info.inputs[1].optional);
    open_fini(&open);
}

/* ---- what it refuses to load --------------------------------------------------------------------
 */

static void models_it_refuses(void **state) {
    static const char *const cases[][2] = {
        {"refused_sequence", "output \"y\" is a sequence"},
        {"refused_optional_type", "input \"x\" is of ONNX's optional type"},
        {"refused_float8", "input \"x\" has elements of type float8e4m3fn"},
        {"refused_text", "can't load the model"},
        {"absent", "can't load the model"},
    };
    const struct subject *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_refused(subject, subject_path(subject->refused, cases[i][0]), NULL, NULL, cases[i][1]);
    }
}

static void parameters_it_refuses(void **state) {
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
    const struct subject *subject = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_refused(subject, subject_path(subject->models, "onnx_add"), cases[i][0], cases[i][1],
                     cases[i][2]);
    }
}

/* Each is accepted, warns of nothing, and leaves answers as they are. */
static void parameters_it_takes(void **state) {
    static const char *const cases[][2] = {
        {"intra_op_thread_count", "2"},
        {"intra_op_thread_count", "0"},
        {"inter_op_thread_count", "2"},
        {"execution_mode", "1"},
        {"graph_optimization_level", "disabled"},
        {"graph_optimization_level", "all"},
        {"enable_mem_arena", "0"},
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
        struct open open;
        struct ask ask;
        host_log_clear();
        open_init(&open, *state, "mlp", cases[i][0], cases[i][1], 1);
        onnx_ask(&ask, 3, dims, 2, values, 3 * 784);
        ask_want(&ask, 0);
        onnx_execute(&open, &ask, 1);
        const float *found = ask_good(&ask)->outputs[0].data;
        for (size_t k = 0; k < 30; k++) {
            first[k] = i == 0 ? found[k] : first[k];
            assert_true(found[k] - first[k] < 1e-5f && first[k] - found[k] < 1e-5f);
        }
        assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 0);
        ask_fini(&ask);
        open_fini(&open);
    }
}

/* ---- what it runs -------------------------------------------------------------------------------
 */

static void optional_inputs(void **state) {
    static const int64_t dims[] = {1, 4}, one[] = {1};
    static const float values[] = {1, 2, 3, 4}, ten = 10;
    struct open open;
    struct ask asks[3];
    open_init(&open, *state, "onnx_optional_rows", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        onnx_ask(&asks[i], 1, dims, 2, values, 4);
        ask_want(&asks[i], 0);
        if (i == 1) {
            ask_input(&asks[i], 1, "scale", SLUICE_FP32, one, 1, &ten, sizeof(ten));
        }
    }
    onnx_execute(&open, asks, 3); /* as if the server had batched them: each keeps its own */
    onnx_check(&ask_good(&asks[0])->outputs[0], (const float[]){2, 4, 6, 8}, 4);
    onnx_check(&ask_good(&asks[1])->outputs[0], (const float[]){10, 20, 30, 40}, 4);
    onnx_check(&ask_good(&asks[2])->outputs[0], (const float[]){2, 4, 6, 8}, 4);
    onnx_fini(asks, 3);
    open_fini(&open);
}

static void a_bad_request_fails_alone(void **state) {
    static const int64_t dims[] = {1, 2};
    static const int64_t indices[][2] = {{0, 7}, {8, 0}, {1, 1}};
    struct open open;
    struct ask asks[3];
    host_log_clear();
    open_init(&open, *state, "onnx_lookup", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_init(&asks[i], 1);
        ask_input(&asks[i], 0, "x", SLUICE_INT64, dims, 2, indices[i], sizeof(indices[i]));
        ask_want(&asks[i], 0);
    }
    onnx_execute(&open, asks, 3);
    onnx_check(&ask_good(&asks[0])->outputs[0], (const float[]){0, 1, 2, 21, 22, 23}, 6);
    ask_bad(&asks[1], SLUICE_INVALID_ARGUMENT, "out of data bounds");
    onnx_check(&ask_good(&asks[2])->outputs[0], (const float[]){3, 4, 5, 3, 4, 5}, 6);
    assert_null(strchr(asks[1].answers[0].error, '\n'));
    /* it is in the answer, and not in the log as well */
    assert_int_equal(host_log_count(SLUICE_LOG_ERROR), 0);
    onnx_fini(asks, 3);
    open_fini(&open);
}

static void shapes_the_graph_refuses(void **state) {
    static const int64_t three[] = {1, 3}, two[] = {1, 2};
    static const float values[] = {1, 2, 3};
    struct open open;
    struct ask ask;
    open_init(&open, *state, "onnx_broadcast", NULL, NULL, 1);
    ask_init(&ask, 1);
    ask_input(&ask, 0, "a", SLUICE_FP32, three, 2, values, 12);
    ask_input(&ask, 1, "b", SLUICE_FP32, two, 2, values, 8);
    ask_want(&ask, 0);
    onnx_execute(&open, &ask, 1);
    ask_bad(&ask, SLUICE_INTERNAL, "broadcast");
    assert_null(strstr(ask.answers[0].error, "_src/")); /* where somebody built the library */
    ask_fini(&ask);
    open_fini(&open);
}

/* Strings through an operator that works on them, not only through a copy. */
static void strings_in_upper_case(void **state) {
    static const int64_t dims[] = {3};
    static const char bytes[] = "\x02\0\0\0hi\0\0\0\0\x03\0\0\0a-z";
    struct open open;
    struct ask ask;
    open_init(&open, *state, "onnx_upper", NULL, NULL, 1);
    ask_init(&ask, 1);
    ask_input(&ask, 0, "x", SLUICE_BYTES, dims, 1, bytes, sizeof(bytes) - 1);
    ask_want(&ask, 0);
    onnx_execute(&open, &ask, 1);
    const struct answer *answer = ask_good(&ask);
    assert_int_equal(answer->outputs[0].n_bytes, sizeof(bytes) - 1);
    assert_memory_equal(answer->outputs[0].data, "\x02\0\0\0HI\0\0\0\0\x03\0\0\0A-Z",
                        sizeof(bytes) - 1);
    ask_fini(&ask);
    open_fini(&open);
}

/* ---- outputs whose shape is known before the run ------------------------------------------------
 */

static void run_row(struct open *open, const float *values, size_t n, const float *want,
                    size_t n_want) {
    const int64_t dims[] = {(int64_t)n};
    struct ask ask;
    onnx_ask(&ask, 1, dims, 1, values, n);
    ask_want(&ask, 0);
    onnx_execute(open, &ask, 1);
    const struct answer *answer = ask_good(&ask);
    assert_int_equal(answer->outputs[0].rank, 1);
    assert_int_equal(answer->outputs[0].dims[0], n_want);
    onnx_check(&answer->outputs[0], want, n_want);
    ask_fini(&ask);
}

/* As many as the model says, then fewer, then as many again. */
static void a_model_that_makes_another_shape(void **state) {
    static const float all[] = {1, 2, 3}, some[] = {1, -2, 3}, left[] = {1, 3};
    struct open open;
    open_init(&open, *state, "onnx_positive", NULL, NULL, 1);
    run_row(&open, all, 3, all, 3);
    run_row(&open, some, 3, left, 2);
    run_row(&open, all, 3, all, 3);
    run_row(&open, some, 2, left, 1);
    open_fini(&open);
}

/* The next run writes where the one before did; its answer may not have been sent yet. */
static void answers_that_wait(void **state) {
    struct open open;
    struct ask asks[6];
    open_init(&open, *state, "onnx_constant_output", NULL, NULL, 1);
    onnx_ask_rows(asks, 6);
    for (size_t i = 0; i < 6; i++) {
        ask_want(&asks[i], 1);
        if (i == 0 || i == 5) {
            ask_want(&asks[i], 0);
        }
    }
    onnx_execute(&open, asks, 1);
    onnx_execute(&open, asks + 1, 1);
    onnx_execute(&open, asks + 2, 3);
    onnx_execute(&open, asks + 5, 1);
    for (size_t i = 0; i < 6; i++) {
        const struct answer *answer = ask_good(&asks[i]);
        onnx_check(&answer->outputs[0], (const float[]){(float)(2 * i), 2, 4, 6}, 4);
    }
    onnx_check(&ask_good(&asks[0])->outputs[1], (const float[]){7, 8, 9}, 3);
    onnx_check(&ask_good(&asks[5])->outputs[1], (const float[]){7, 8, 9}, 3);
    onnx_fini(asks, 6);
    open_fini(&open);
}

static void larger_ones(void **state) {
    static const int64_t dims[] = {1, 600};
    float values[600], want[1200];
    struct open open;
    struct ask ask;
    for (size_t i = 0; i < 600; i++) {
        values[i] = want[i] = want[600 + i] = (float)i;
    }
    open_init(&open, *state, "onnx_wide", NULL, NULL, 1);
    onnx_ask(&ask, 1, dims, 2, values, 600);
    ask_want(&ask, 0);
    onnx_execute(&open, &ask, 1);
    onnx_check(&ask_good(&ask)->outputs[0], want, 1200);
    ask_fini(&ask);
    open_fini(&open);
}

int onnxruntime_run(struct subject *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(signatures, subject),
        cmocka_unit_test_prestate(several_inputs_and_outputs, subject),
        cmocka_unit_test_prestate(an_initializer_may_be_replaced, subject),
        cmocka_unit_test_prestate(models_it_refuses, subject),
        cmocka_unit_test_prestate(parameters_it_refuses, subject),
        cmocka_unit_test_prestate(parameters_it_takes, subject),
        cmocka_unit_test_prestate(optional_inputs, subject),
        cmocka_unit_test_prestate(a_bad_request_fails_alone, subject),
        cmocka_unit_test_prestate(shapes_the_graph_refuses, subject),
        cmocka_unit_test_prestate(strings_in_upper_case, subject),
        cmocka_unit_test_prestate(a_model_that_makes_another_shape, subject),
        cmocka_unit_test_prestate(answers_that_wait, subject),
        cmocka_unit_test_prestate(larger_ones, subject),
    };
    return onnx_run(subject) + cmocka_run_group_tests_name("onnxruntime", tests, NULL, NULL);
}
