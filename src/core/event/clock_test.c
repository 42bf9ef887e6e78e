/* Time that is held, and time that a test drives. */
#include "core/event/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { HELD_NS = 1234 };

static void *look(void *out) {
    *(uint64_t *)out = clock_now_ns();
    return NULL;
}

/* On other threads it goes on. */
static void held(void **state) {
    uint64_t before_ns = clock_now_ns(), elsewhere_ns = 0;
    pthread_t thread;
    (void)state;
    clock_hold_ns(HELD_NS);
    assert_int_equal(clock_now_ns(), HELD_NS);
    assert_int_equal(pthread_create(&thread, NULL, look, &elsewhere_ns), 0);
    pthread_join(thread, NULL);
    assert_true(elsewhere_ns >= before_ns);
    clock_drive_ns(5);
    assert_int_equal(clock_now_ns(), HELD_NS);
    clock_let_go();
    assert_int_equal(clock_now_ns(), 5);
    clock_drive_ns(0);
    assert_true(clock_now_ns() >= elsewhere_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held),
    };
    return cmocka_run_group_tests_name("loop/clock", tests, NULL, NULL);
}
