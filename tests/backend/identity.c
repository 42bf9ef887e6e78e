/* What is only true of the identity backend: it takes any shape and datatype, and its parameters
 * make it slow, failing or asynchronous. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <pthread.h>

#include <cmocka.h>

#include "ask.h"
#include "subject.h"

/* Two inputs, of which `skip` (or neither) is left out; outputs 1 and 0 are wanted, in this order.
 */
static void ask_two(struct ask *ask, int skip) {
    static const int64_t scalar[] = {0}, pair[] = {2};
    static const int64_t number = 42;
    ask_init(ask, 1);
    if (skip != 0) {
        ask_input(ask, 0, "a", SLUICE_INT64, scalar, 0, &number, sizeof(number));
    }
    if (skip != 1) {
        ask_input(ask, 1, "b", SLUICE_UINT8, pair, 1, "xy", 2);
    }
    ask_want(ask, 1);
    ask_want(ask, 0);
}

static void execute_one(struct open *open, struct ask *ask) {
    const sluice_request *requests[] = {&ask->request};
    open->backend->execute(open->instances[0], requests, 1);
}

static void check_two(const struct answer *answer) {
    assert_int_equal(answer->n_outputs, 2);
    assert_int_equal(answer->outputs[0].datatype, SLUICE_UINT8);
    assert_memory_equal(answer->outputs[0].data, "xy", 2);
    assert_int_equal(answer->outputs[1].rank, 0);
    assert_int_equal(*(const int64_t *)answer->outputs[1].data, 42);
}

static void it_takes_anything_and_is_cheap(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, "", NULL, NULL, 1);
    assert_true(open.info.takes_any && open.info.cheap);
    ask_two(&ask, -1);
    execute_one(&open, &ask);
    const struct answer *answer = ask_good(&ask);
    check_two(answer);
    assert_null(answer->release); /* nothing was copied */
    ask_fini(&ask);
    open_fini(&open);
}

static void a_missing_input_is_the_requests_fault(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, "", NULL, NULL, 1);
    for (int skip = 0; skip < 2; skip++) {
        ask_two(&ask, skip);
        execute_one(&open, &ask);
        ask_bad(&ask, SLUICE_INVALID_ARGUMENT, skip == 0 ? "input 0" : "input 1");
        ask_fini(&ask);
    }
    open_fini(&open);
}

static void bad_parameters_fail_the_load(void **state) {
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
        open_refused(*state, "", cases[i][0], cases[i][1], cases[i][2]);
    }
}

static void fail_is_the_sentence(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, "", "fail", "out of ink", 1);
    ask_two(&ask, -1);
    execute_one(&open, &ask);
    ask_bad(&ask, SLUICE_INTERNAL, "out of ink");
    ask_fini(&ask);
    open_fini(&open);
}

static void several_responses(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, "", "responses", "4", 1);
    ask_two(&ask, -1);
    ask_split(&ask, 1, 1);
    execute_one(&open, &ask);
    ask_good(&ask);
    assert_int_equal(ask.n_answers, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ask.answers[i].final, i == 3);
        check_two(&ask.answers[i]);
    }
    ask_fini(&ask);
    open_fini(&open);
}

/* Execution takes at least the delay (a clock can't show less), and another thread's answer comes
 * after execute, which has waited for nothing. */
static void a_delay_passes(void **state) {
    struct open open;
    struct ask ask;
    uint64_t before = host_get()->now_ns();
    open_init(&open, *state, "", "delay_us", "20000", 1);
    assert_false(open.info.cheap);
    ask_two(&ask, -1);
    execute_one(&open, &ask);
    assert_true(ask.is_final);
    check_two(ask_good(&ask));
    assert_true(host_get()->now_ns() - before >= 20000000);
    ask_fini(&ask);
    open_fini(&open);
}

/* Nobody waits: the minute is not waited for either (the test would be ended by its limit). */
static void a_delay_ends_when_nobody_waits(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, "", "delay_us", "60000000", 1);
    ask_two(&ask, -1);
    ask.cancelled = true;
    execute_one(&open, &ask);
    ask_bad(&ask, SLUICE_CANCELLED, "cancelled");
    ask_fini(&ask);
    open_fini(&open);
}

static void answers_from_a_thread(void **state) {
    struct open open;
    struct ask asks[100];
    open_init(&open, *state, "", "respond_from", "thread", 2);
    for (size_t i = 0; i < 100; i++) {
        const sluice_request *requests[] = {&asks[i].request};
        ask_two(&asks[i], -1);
        open.backend->execute(open.instances[i % 2], requests, 1);
    }
    for (size_t i = 0; i < 100; i++) {
        check_two(ask_good(&asks[i]));
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

int identity_run(struct subject *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(it_takes_anything_and_is_cheap, subject),
        cmocka_unit_test_prestate(a_missing_input_is_the_requests_fault, subject),
        cmocka_unit_test_prestate(bad_parameters_fail_the_load, subject),
        cmocka_unit_test_prestate(fail_is_the_sentence, subject),
        cmocka_unit_test_prestate(several_responses, subject),
        cmocka_unit_test_prestate(a_delay_passes, subject),
        cmocka_unit_test_prestate(a_delay_ends_when_nobody_waits, subject),
        cmocka_unit_test_prestate(answers_from_a_thread, subject),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
