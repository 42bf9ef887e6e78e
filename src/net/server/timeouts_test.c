/* Deadlines under a clock driven by hand. */
#include "net/server/timeouts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { QUICK, SLOW, NEVER, THINGS = 5 };

static struct timeouts make(void) {
    return (struct timeouts){.after_ns = {[QUICK] = 10, [SLOW] = 100, [NEVER] = 0}};
}

static void each_class_is_in_order(void **state) {
    (void)state;
    struct timeouts timeouts = make();
    struct timeout things[THINGS] = {0};
    assert_true(timeouts_next_ns(&timeouts) == UINT64_MAX);
    timeouts_arm(&timeouts, &things[0], SLOW, 1000);
    timeouts_arm(&timeouts, &things[1], QUICK, 1000);
    timeouts_arm(&timeouts, &things[2], QUICK, 1001);
    timeouts_arm(&timeouts, &things[3], NEVER, 1001);
    assert_int_equal(timeouts_next_ns(&timeouts), 1010);
    assert_null(timeouts_take_due(&timeouts, 1009));
    assert_ptr_equal(timeouts_take_due(&timeouts, 1010), &things[1]);
    assert_null(timeouts_take_due(&timeouts, 1010));
    assert_int_equal(timeouts_next_ns(&timeouts), 1011);
    assert_ptr_equal(timeouts_take_due(&timeouts, 5000), &things[2]);
    assert_ptr_equal(timeouts_take_due(&timeouts, 5000), &things[0]);
    assert_null(timeouts_take_due(&timeouts, UINT64_MAX));
    assert_true(timeouts_next_ns(&timeouts) == UINT64_MAX);
}

static void arming_again_moves(void **state) {
    (void)state;
    struct timeouts timeouts = make();
    struct timeout things[THINGS] = {0};
    for (unsigned i = 0; i < THINGS; i++) {
        timeouts_arm(&timeouts, &things[i], QUICK, 100 + i);
    }
    timeouts_arm(&timeouts, &things[0], QUICK, 200); /* the first, */
    timeouts_arm(&timeouts, &things[2], SLOW, 200);  /* one between, to another class, */
    timeouts_disarm(&timeouts, &things[4]);
    timeouts_disarm(&timeouts, &things[4]); /* and one twice */
    assert_false(things[4].armed);
    assert_ptr_equal(timeouts_take_due(&timeouts, 1000), &things[1]);
    assert_ptr_equal(timeouts_take_due(&timeouts, 1000), &things[3]);
    assert_ptr_equal(timeouts_take_due(&timeouts, 1000), &things[0]);
    assert_ptr_equal(timeouts_take_due(&timeouts, 1000), &things[2]);
    assert_null(timeouts_take_due(&timeouts, 1000));
}

static void a_time_past_the_end_of_time_never_comes(void **state) {
    (void)state;
    struct timeouts timeouts = make();
    struct timeout thing = {0};
    timeouts_arm(&timeouts, &thing, SLOW, UINT64_MAX - 50);
    assert_false(thing.armed);
    assert_null(timeouts_take_due(&timeouts, UINT64_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_is_in_order),
        cmocka_unit_test(arming_again_moves),
        cmocka_unit_test(a_time_past_the_end_of_time_never_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
