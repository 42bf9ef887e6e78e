/* The table of hosts whose requests failed. */
#include "serve/scheduler/failing_hosts.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_hosts_are_known_until_their_time),
        cmocka_unit_test(failing_hosts_of_one_row_replace_each_other),
    };
    return cmocka_run_group_tests_name("serve/scheduler/failing_hosts", tests, NULL, NULL);
}
