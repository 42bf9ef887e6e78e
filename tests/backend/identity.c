/* Tests of the identity backend only: it accepts any shape and datatype, and its parameters make it
 * slow, failing or asynchronous. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <pthread.h>

#include <cmocka.h>

#include "test_request.h"
#include "under_test.h"

/* Two inputs, of which `skip` (or neither) is left out; outputs 1 and 0 are wanted, in this
 * order. */
static void ask_two(struct test_request *test_request, int skip) {
    static const int64_t scalar[] = {0}, pair[] = {2};
    static const int64_t number = 42;
    test_request_init(test_request, 1);
    if (skip != 0) {
        test_request_add_input(test_request, 0, "a", SLUICE_INT64, scalar, 0, &number,
                               sizeof(number));
    }
    if (skip != 1) {
        test_request_add_input(test_request, 1, "b", SLUICE_UINT8, pair, 1, "xy", 2);
    }
    test_request_want_output(test_request, 1);
    test_request_want_output(test_request, 0);
}

static void execute_one(struct opened_model *opened, struct test_request *test_request) {
    const sluice_request *requests[] = {&test_request->request};
    opened->backend->execute(opened->instances[0], requests, 1);
}

static void check_two(const struct test_response *response_kept) {
    assert_int_equal(response_kept->n_outputs, 2);
    assert_int_equal(response_kept->outputs[0].datatype, SLUICE_UINT8);
    assert_memory_equal(response_kept->outputs[0].data, "xy", 2);
    assert_int_equal(response_kept->outputs[1].rank, 0);
    assert_int_equal(*(const int64_t *)response_kept->outputs[1].data, 42);
}

static void identity_any_tensor_echoes_without_copy(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "", NULL, NULL, 1);
    assert_true(opened.info.takes_any && opened.info.cheap);
    ask_two(&test_request, -1);
    execute_one(&opened, &test_request);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    check_two(response_kept);
    assert_null(response_kept->release); /* nothing was copied */
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void identity_missing_input_is_invalid_argument(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "", NULL, NULL, 1);
    for (int skip = 0; skip < 2; skip++) {
        ask_two(&test_request, skip);
        execute_one(&opened, &test_request);
        test_request_expect_error(&test_request, SLUICE_INVALID_ARGUMENT,
                                  skip == 0 ? "input 0" : "input 1");
        test_request_fini(&test_request);
    }
    opened_model_fini(&opened);
}

static void identity_invalid_parameter_fails_load(void **state) {
    static const char *const cases[][3] = {
        {"delay_us", "-1", "0 to 60000000"},
        {"delay_us", "60000001", "0 to 60000000"},
        {"delay_us", "18446744073709551617", "0 to 60000000"},
        {"delay_us", "", "0 to 60000000"},
        {"delay_us", "1 ", "got \"1 \""},
        {"responses", "0", "1 to 1000"},
        {"responses", "1001", "1 to 1000"},
        {"respond_from", "elsewhere", "\"execute\" or \"thread\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_model_refused(*state, "", cases[i][0], cases[i][1], cases[i][2]);
    }
}

static void identity_fail_parameter_is_error_text(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "", "fail", "out of ink", 1);
    ask_two(&test_request, -1);
    execute_one(&opened, &test_request);
    test_request_expect_error(&test_request, SLUICE_INTERNAL, "out of ink");
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void identity_responses_parameter_sends_several(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "", "responses", "4", 1);
    ask_two(&test_request, -1);
    test_request_split_input(&test_request, 1, 1);
    execute_one(&opened, &test_request);
    test_request_expect_ok(&test_request);
    assert_int_equal(test_request.n_responses, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(test_request.responses[i].final, i == 3);
        check_two(&test_request.responses[i]);
    }
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* Execution takes at least the delay (a clock can't show less); an asynchronous answer arrives
 * after execute returned, which has not waited. */
static void identity_delay_is_waited(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    uint64_t before = host_get()->now_ns();
    opened_model_init(&opened, *state, "", "delay_us", "20000", 1);
    assert_false(opened.info.cheap);
    ask_two(&test_request, -1);
    execute_one(&opened, &test_request);
    assert_true(test_request.is_final);
    check_two(test_request_expect_ok(&test_request));
    assert_true(host_get()->now_ns() - before >= 20000000);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* All requests are cancelled, so the delay of a minute ends (the test's time limit would detect
 * it). */
static void identity_delay_ends_on_cancel(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, "", "delay_us", "60000000", 1);
    ask_two(&test_request, -1);
    test_request.cancelled = true;
    execute_one(&opened, &test_request);
    test_request_expect_error(&test_request, SLUICE_CANCELLED, "cancelled");
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void identity_respond_from_thread_answers_all(void **state) {
    struct opened_model opened;
    struct test_request test_requests[100];
    opened_model_init(&opened, *state, "", "respond_from", "thread", 2);
    for (size_t i = 0; i < 100; i++) {
        const sluice_request *requests[] = {&test_requests[i].request};
        ask_two(&test_requests[i], -1);
        opened.backend->execute(opened.instances[i % 2], requests, 1);
    }
    for (size_t i = 0; i < 100; i++) {
        check_two(test_request_expect_ok(&test_requests[i]));
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

int identity_run(struct backend_under_test *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(identity_any_tensor_echoes_without_copy, subject),
        cmocka_unit_test_prestate(identity_missing_input_is_invalid_argument, subject),
        cmocka_unit_test_prestate(identity_invalid_parameter_fails_load, subject),
        cmocka_unit_test_prestate(identity_fail_parameter_is_error_text, subject),
        cmocka_unit_test_prestate(identity_responses_parameter_sends_several, subject),
        cmocka_unit_test_prestate(identity_delay_is_waited, subject),
        cmocka_unit_test_prestate(identity_delay_ends_on_cancel, subject),
        cmocka_unit_test_prestate(identity_respond_from_thread_answers_all, subject),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
