/* The frozen clock, and the clock that a test sets. */
#include "core/event/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { FROZEN_NS = 1234 };

static void *read_clock(void *out) {
    *(uint64_t *)out = clock_now_ns();
    return NULL;
}

/* On other threads the clock runs. */
static void clock_freeze_affects_calling_thread_only(void **state) {
    uint64_t before_ns = clock_now_ns(), elsewhere_ns = 0;
    pthread_t thread;
    (void)state;
    clock_freeze_ns(FROZEN_NS);
    assert_int_equal(clock_now_ns(), FROZEN_NS);
    assert_int_equal(pthread_create(&thread, NULL, read_clock, &elsewhere_ns), 0);
    pthread_join(thread, NULL);
    assert_true(elsewhere_ns >= before_ns);
    clock_set_fake_ns(5);
    assert_int_equal(clock_now_ns(), FROZEN_NS);
    clock_unfreeze();
    assert_int_equal(clock_now_ns(), 5);
    clock_set_fake_ns(0);
    assert_true(clock_now_ns() >= elsewhere_ns);
}

static void clock_set_fake_ns_overrides_time(void **state) {
    (void)state;
    clock_set_fake_ns(42);
    assert_int_equal(clock_now_ns(), 42);
    clock_set_fake_ns(0);
    uint64_t first = clock_now_ns();
    assert_true(first > 42);
    assert_true(clock_now_ns() >= first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_freeze_affects_calling_thread_only),
        cmocka_unit_test(clock_set_fake_ns_overrides_time),
    };
    return cmocka_run_group_tests_name("core/event/clock", tests, NULL, NULL);
}
