/* Timers of equal timeouts, with the time passed in. */
#include "core/event/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { QUICK, SLOW, NEVER, THINGS = 5 };

static void init(struct timer_list *timers) {
    *timers = (struct timer_list){.after_ns = {[QUICK] = 10, [SLOW] = 100, [NEVER] = 0}};
    timer_list_init(timers);
}

static void timer_list_expires_in_order_per_class(void **state) {
    (void)state;
    struct timer_list timers;
    init(&timers);
    struct list_timer things[THINGS] = {0};
    assert_true(timer_list_next_ns(&timers) == UINT64_MAX);
    timer_list_start(&timers, &things[0], SLOW, 1000);
    timer_list_start(&timers, &things[1], QUICK, 1000);
    timer_list_start(&timers, &things[2], QUICK, 1001);
    timer_list_start(&timers, &things[3], NEVER, 1001);
    assert_int_equal(timer_list_next_ns(&timers), 1010);
    assert_null(timer_list_pop_due(&timers, 1009));
    assert_ptr_equal(timer_list_pop_due(&timers, 1010), &things[1]);
    assert_null(timer_list_pop_due(&timers, 1010));
    assert_int_equal(timer_list_next_ns(&timers), 1011);
    assert_ptr_equal(timer_list_pop_due(&timers, 5000), &things[2]);
    assert_ptr_equal(timer_list_pop_due(&timers, 5000), &things[0]);
    assert_null(timer_list_pop_due(&timers, UINT64_MAX));
    assert_true(timer_list_next_ns(&timers) == UINT64_MAX);
}

static void timer_list_restart_moves_timer(void **state) {
    (void)state;
    struct timer_list timers;
    init(&timers);
    struct list_timer things[THINGS] = {0};
    for (unsigned i = 0; i < THINGS; i++) {
        timer_list_start(&timers, &things[i], QUICK, 100 + i);
    }
    timer_list_start(&timers, &things[0], QUICK, 200); /* the first, */
    timer_list_start(&timers, &things[2], SLOW, 200);  /* one in the middle, to another class, */
    timer_list_stop(&timers, &things[4]);
    timer_list_stop(&timers, &things[4]); /* and stopping one twice */
    assert_false(things[4].armed);
    assert_ptr_equal(timer_list_pop_due(&timers, 1000), &things[1]);
    assert_ptr_equal(timer_list_pop_due(&timers, 1000), &things[3]);
    assert_ptr_equal(timer_list_pop_due(&timers, 1000), &things[0]);
    assert_ptr_equal(timer_list_pop_due(&timers, 1000), &things[2]);
    assert_null(timer_list_pop_due(&timers, 1000));
}

static void timer_list_overflowing_due_time_never_expires(void **state) {
    (void)state;
    struct timer_list timers;
    init(&timers);
    struct list_timer thing = {0};
    timer_list_start(&timers, &thing, SLOW, UINT64_MAX - 50);
    assert_false(thing.armed);
    assert_null(timer_list_pop_due(&timers, UINT64_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_list_expires_in_order_per_class),
        cmocka_unit_test(timer_list_restart_moves_timer),
        cmocka_unit_test(timer_list_overflowing_due_time_never_expires),
    };
    return cmocka_run_group_tests_name("core/event/timer_list", tests, NULL, NULL);
}
