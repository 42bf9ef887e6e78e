/* The hosts whose requests failed, and how long the streams of a host may lag that was slow before.
 */
#include "serve/scheduler/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void failing_hosts_are_known_until_their_time(void **state) {
    struct failing_hosts all = {0};
    (void)state;
    assert_false(failing_hosts_has(&all, 0, 0));
    assert_false(failing_hosts_has(&all, 7, 0));
    failing_hosts_note(&all, 7, 100);
    assert_true(failing_hosts_has(&all, 7, 99));
    assert_false(failing_hosts_has(&all, 7, 100));
    assert_false(failing_hosts_has(&all, 8, 0));
    failing_hosts_note(&all, 0, 100); /* not known: nothing to remember */
    assert_false(failing_hosts_has(&all, 0, 99));
}

static void failing_hosts_of_one_row_replace_each_other(void **state) {
    struct failing_hosts all = {0};
    (void)state;
    failing_hosts_note(&all, 7, 100);
    failing_hosts_note(&all, 7 + FAILING_HOSTS, 200);
    assert_false(failing_hosts_has(&all, 7, 50));
    assert_true(failing_hosts_has(&all, 7 + FAILING_HOSTS, 150));
}

enum { MS = 1000000, TIMEOUT_NS = 1024 * MS };

static void slow_hosts_each_ended_stream_halves_the_time(void **state) {
    static struct slow_hosts all;
    (void)state;
    uint64_t now_ns = 5 * MS, expected_ns = TIMEOUT_NS, total_ns = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t timeout_ns = slow_hosts_timeout_ns(&all, 7, TIMEOUT_NS, now_ns);
        assert_int_equal(timeout_ns, expected_ns);
        now_ns += timeout_ns;
        total_ns += timeout_ns;
        slow_hosts_note(&all, 7, now_ns);
        expected_ns = i < SLOW_HOST_MAX_HALVINGS ? expected_ns / 2 : expected_ns;
    }
    assert_true(total_ns < UINT64_C(6) * TIMEOUT_NS); /* not 100 times */
    assert_int_equal(slow_hosts_timeout_ns(&all, 8, TIMEOUT_NS, now_ns), TIMEOUT_NS);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7, 1, now_ns), 1);
}

static void slow_hosts_are_forgotten_after_their_time(void **state) {
    static struct slow_hosts all;
    (void)state;
    slow_hosts_note(&all, 7, 100);
    slow_hosts_note(&all, 7, 200);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7, 64, 199 + SLOW_HOST_NS), 16);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7, 64, 200 + SLOW_HOST_NS), 64);
    slow_hosts_note(&all, 7, 200 + SLOW_HOST_NS);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7, 64, 201 + SLOW_HOST_NS), 32);
}

static void slow_hosts_of_one_row_replace_each_other(void **state) {
    static struct slow_hosts all;
    (void)state;
    slow_hosts_note(&all, 7, 0);
    slow_hosts_note(&all, 7 + SLOW_HOSTS, 0);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7, 64, 1), 64);
    assert_int_equal(slow_hosts_timeout_ns(&all, 7 + SLOW_HOSTS, 64, 1), 32);
    slow_hosts_note(&all, 0, 0); /* not known: nothing to remember */
    assert_int_equal(slow_hosts_timeout_ns(&all, 0, 64, 1), 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_hosts_are_known_until_their_time),
        cmocka_unit_test(failing_hosts_of_one_row_replace_each_other),
        cmocka_unit_test(slow_hosts_each_ended_stream_halves_the_time),
        cmocka_unit_test(slow_hosts_are_forgotten_after_their_time),
        cmocka_unit_test(slow_hosts_of_one_row_replace_each_other),
    };
    return cmocka_run_group_tests_name("serve/scheduler/hosts", tests, NULL, NULL);
}
