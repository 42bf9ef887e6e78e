/* ONNX models that are more than an identity: what each backend that runs them must make of
 * them. */
#include "onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void onnx_execute(struct open *open, struct ask *asks, size_t n) {
    const sluice_request *requests[8];
    for (size_t i = 0; i < n; i++) {
        requests[i] = &asks[i].request;
    }
    open->backend->execute(open->instances[0], requests, n);
}

void onnx_ask(struct ask *ask, uint64_t batch, const int64_t *dims, size_t rank,
              const float *values, size_t n) {
    ask_init(ask, batch);
    ask_input(ask, 0, "x", SLUICE_FP32, dims, rank, values, n * sizeof(float));
}

void onnx_ask_rows(struct ask *asks, size_t n) {
    static const int64_t dims[] = {1, 4};
    for (size_t i = 0; i < n; i++) {
        const float values[] = {(float)i, 1, 2, 3};
        onnx_ask(&asks[i], 1, dims, 2, values, 4);
    }
}

void onnx_fini(struct ask *asks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ask_fini(&asks[i]);
    }
}

void onnx_check(const sluice_output *output, const float *values, size_t n) {
    assert_int_equal(output->datatype, SLUICE_FP32);
    assert_int_equal(output->n_bytes, n * sizeof(float));
    assert_memory_equal(output->data, values, n * sizeof(float));
}

/* A model whose weights are in a file of their own, both in a folder that is named as the file
 * would be. */
static void a_model_that_is_a_folder(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {1, 2, 3, 4};
    struct open open;
    struct ask ask;
    open_init(&open, *state, "onnx_folder", NULL, NULL, 1);
    onnx_ask(&ask, 1, dims, 2, values, 4);
    ask_want(&ask, 0);
    onnx_execute(&open, &ask, 1);
    onnx_check(&ask_good(&ask)->outputs[0], (const float[]){11, 12, 13, 14}, 4);
    ask_fini(&ask);
    open_fini(&open);
}

static void ask_add(struct ask *ask, float a, float b) {
    static const int64_t dims[] = {1, 4};
    const float left[] = {a, a, a, a}, right[] = {b, b, b, b};
    ask_init(ask, 1);
    ask_input(ask, 0, "a", SLUICE_FP32, dims, 2, left, sizeof(left));
    ask_input(ask, 1, "b", SLUICE_FP32, dims, 2, right, sizeof(right));
}

/* Seen from outside by where its answers lie: side by side in what one run gave. */
static void a_batch_is_one_run(void **state) {
    struct open open;
    struct ask asks[3];
    open_init(&open, *state, "onnx_add", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_add(&asks[i], 1, (float)i);
        ask_want(&asks[i], 0);
    }
    onnx_execute(&open, asks, 3);
    const char *first = ask_good(&asks[0])->outputs[0].data;
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(ask_good(&asks[i])->outputs[0].data, first + i * 4 * sizeof(float));
    }
    onnx_fini(asks, 3);
    open_fini(&open);
}

/* The requests of a batch want different outputs, in different orders. */
static void wanted_outputs_only(void **state) {
    struct open open;
    struct ask asks[3];
    open_init(&open, *state, "onnx_add", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_add(&asks[i], 10, (float)i);
    }
    ask_want(&asks[0], 1);
    ask_want(&asks[1], 1);
    ask_want(&asks[1], 0);
    ask_want(&asks[2], 0);
    onnx_execute(&open, asks, 3);
    const float ten[] = {10, 10, 10, 10}, nine[] = {9, 9, 9, 9}, eleven[] = {11, 11, 11, 11},
                twelve[] = {12, 12, 12, 12};
    onnx_check(&ask_good(&asks[0])->outputs[0], ten, 4);
    onnx_check(&ask_good(&asks[1])->outputs[0], nine, 4);
    onnx_check(&ask_good(&asks[1])->outputs[1], eleven, 4);
    onnx_check(&ask_good(&asks[2])->outputs[0], twelve, 4);
    onnx_fini(asks, 3);
    open_fini(&open);
}

static void outputs_of_different_kinds(void **state) {
    static const int64_t dims[] = {1, 4};
    static const float values[] = {-1.5f, 0, 0.25f, 1e6f};
    static const int64_t rounded[] = {-2, 0, 0, 1000000};
    struct open open;
    struct ask ask;
    open_init(&open, *state, "onnx_three_outputs", NULL, NULL, 1);
    onnx_ask(&ask, 1, dims, 2, values, 4);
    for (uint32_t i = 0; i < 3; i++) {
        ask_want(&ask, 2 - i);
    }
    onnx_execute(&open, &ask, 1);
    const struct answer *answer = ask_good(&ask);
    assert_int_equal(answer->outputs[0].datatype, SLUICE_BOOL);
    assert_memory_equal(answer->outputs[0].data, "\0\0\1\1", 4);
    assert_int_equal(answer->outputs[1].datatype, SLUICE_INT64);
    assert_memory_equal(answer->outputs[1].data, rounded, sizeof(rounded));
    onnx_check(&answer->outputs[2], (const float[]){-3, 0, 0.5f, 2e6f}, 4);
    ask_fini(&ask);
    open_fini(&open);
}

/* The graph hands its input through. One request's own bytes may come back; those of a batch were
 * put together in memory that the next batch uses again. */
static void an_input_that_is_an_output(void **state) {
    struct open open;
    struct ask asks[4];
    open_init(&open, *state, "onnx_passthrough", NULL, NULL, 1);
    onnx_ask_rows(asks, 4);
    for (size_t i = 0; i < 4; i++) {
        ask_want(&asks[i], 0);
        ask_want(&asks[i], 1);
    }
    onnx_execute(&open, asks, 1);
    onnx_execute(&open, asks + 1, 2);
    ask_split(&asks[3], 0, 4);
    onnx_execute(&open, asks + 3, 1);
    for (size_t i = 0; i < 4; i++) {
        const struct answer *answer = ask_good(&asks[i]);
        onnx_check(&answer->outputs[0], (const float[]){(float)i, 1, 2, 3}, 4);
        onnx_check(&answer->outputs[1], (const float[]){(float)(2 * i), 2, 4, 6}, 4);
    }
    onnx_fini(asks, 4);
    open_fini(&open);
}

/* A scalar for the whole batch can't be shared out: each request gets its own. */
static void an_output_without_the_batch(void **state) {
    static const int64_t dims[] = {1, 4};
    struct open open;
    struct ask asks[3];
    open_init(&open, *state, "onnx_total", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        const float values[] = {1, 1, 1, (float)i};
        onnx_ask(&asks[i], 1, dims, 2, values, 4);
        ask_want(&asks[i], 0);
    }
    onnx_execute(&open, asks, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct answer *answer = ask_good(&asks[i]);
        assert_int_equal(answer->outputs[0].rank, 0);
        onnx_check(&answer->outputs[0], (const float[]){3 + (float)i}, 1);
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

static void shapes_that_change(void **state) {
    static const float values[] = {1, 2, 3, 4, 5, 6};
    static const struct {
        int64_t dims[2];
        float turned[6];
    } cases[] = {
        {{2, 3}, {1, 4, 2, 5, 3, 6}}, {{3, 2}, {1, 3, 5, 2, 4, 6}}, {{6, 1}, {1, 2, 3, 4, 5, 6}}};
    struct open open;
    open_init(&open, *state, "onnx_dynamic", NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        struct ask ask;
        onnx_ask(&ask, 1, cases[i].dims, 2, values, 6);
        ask_want(&ask, 0);
        onnx_execute(&open, &ask, 1);
        const struct answer *answer = ask_good(&ask);
        assert_int_equal(answer->outputs[0].dims[0], cases[i].dims[1]);
        onnx_check(&answer->outputs[0], cases[i].turned, 6);
        ask_fini(&ask);
    }
    open_fini(&open);
}

static void a_scalar(void **state) {
    static const double three = 3;
    struct open open;
    struct ask ask;
    open_init(&open, *state, "onnx_rank0", NULL, NULL, 1);
    ask_init(&ask, 1);
    ask_input(&ask, 0, "x", SLUICE_FP64, NULL, 0, &three, sizeof(three));
    ask_want(&ask, 0);
    onnx_execute(&open, &ask, 1);
    const struct answer *answer = ask_good(&ask);
    assert_int_equal(answer->outputs[0].rank, 0);
    assert_true(*(const double *)answer->outputs[0].data == 9);
    ask_fini(&ask);
    open_fini(&open);
}

int onnx_run(struct subject *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_model_that_is_a_folder, subject),
        cmocka_unit_test_prestate(a_batch_is_one_run, subject),
        cmocka_unit_test_prestate(wanted_outputs_only, subject),
        cmocka_unit_test_prestate(outputs_of_different_kinds, subject),
        cmocka_unit_test_prestate(an_input_that_is_an_output, subject),
        cmocka_unit_test_prestate(an_output_without_the_batch, subject),
        cmocka_unit_test_prestate(shapes_that_change, subject),
        cmocka_unit_test_prestate(a_scalar, subject),
    };
    return cmocka_run_group_tests_name("ONNX models", tests, NULL, NULL);
}
