/* Rates over windows, on a clock of the test's own. */
#include "net/server/receive_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t SECOND = 1000000000;

/* 1,000 bytes per second over 30 s. Returns: the second at which `n_bytes` each `every` seconds are
 * too slow, after `n_first` at once; 0: not within a day. */
static uint64_t slow_after(uint64_t n_first, uint64_t n_bytes, uint64_t every) {
    struct receive_rate rate = {.since_ns = SECOND};
    uint64_t received = n_first, n_read = 0;
    for (uint64_t second = 0; second < 86400; second += every) {
        n_read += received;
        if (receive_rate_add(&rate, received, n_read, (second + 1) * SECOND, 1000, 30 * SECOND) >
            0) {
            return second;
        }
        received = n_bytes;
    }
    return 0;
}

static void window_of_slow_bytes_is_too_slow(void **state) {
    (void)state;
    assert_int_equal(slow_after(1, 1, 1), 31);
    assert_int_equal(slow_after(100000000, 1, 1), 62); /* the first window was fast */
    assert_int_equal(slow_after(0, 999, 1), 31);
}

static void window_at_rate_is_fast_enough(void **state) {
    (void)state;
    assert_int_equal(slow_after(1000, 1000, 1), 0);
    assert_int_equal(slow_after(20000, 20000, 20), 0);
}

static void window_without_limit_is_fast_enough(void **state) {
    (void)state;
    struct receive_rate rate = {.since_ns = 1};
    assert_int_equal(receive_rate_add(&rate, 1, 1, 1000 * SECOND, 0, SECOND), 0);
    assert_int_equal(receive_rate_add(&rate, 1, 2, 2000 * SECOND, 1000, 0), 0);
}

/* A pause that the timer would have ended: the process stood still. */
static void window_with_a_stop_is_fast_enough(void **state) {
    (void)state;
    struct receive_rate rate = {.since_ns = SECOND};
    assert_int_equal(receive_rate_add(&rate, 1000, 1000, SECOND, 1000, 30 * SECOND), 0);
    assert_int_equal(receive_rate_add(&rate, 1000, 2000, 40 * SECOND, 1000, 30 * SECOND), 0);
    assert_int_equal(receive_rate_add(&rate, 1000, 3000, 60 * SECOND, 1000, 30 * SECOND), 0);
    assert_true(receive_rate_add(&rate, 1000, 4000, 71 * SECOND, 1000, 30 * SECOND) > 0);
}

/* A window in which `n_bytes` came, and as many as `n_others` of other things on the connection. */
static uint64_t excusing_bytes(uint64_t n_bytes, uint64_t n_others, uint64_t min_rate) {
    struct receive_rate rate = {.since_ns = SECOND, .last_ns = SECOND, .n_conn_read = 5000};
    assert_int_equal(receive_rate_add(&rate, 0, 5000, 20 * SECOND, min_rate, 30 * SECOND), 0);
    return receive_rate_add(&rate, n_bytes, 5000 + n_bytes + n_others, 32 * SECOND, min_rate,
                            30 * SECOND);
}

static void window_is_excused_by_what_waits(void **state) {
    (void)state;
    assert_int_equal(excusing_bytes(31000, 0, 1000), 0);
    assert_int_equal(excusing_bytes(30000, 0, 1000), 1001); /* so many are missing, and one */
    assert_int_equal(excusing_bytes(1, 0, 1000000), RECEIVE_EXCUSED_BYTES);
}

static void window_beside_others_is_not_excused(void **state) {
    (void)state;
    assert_int_equal(excusing_bytes(30000, 900, 1000), 1001);
    assert_int_equal(excusing_bytes(30000, 1000, 1000), UINT64_MAX);
    assert_int_equal(excusing_bytes(31000, 1000000, 1000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_of_slow_bytes_is_too_slow),
        cmocka_unit_test(window_at_rate_is_fast_enough),
        cmocka_unit_test(window_without_limit_is_fast_enough),
        cmocka_unit_test(window_with_a_stop_is_fast_enough),
        cmocka_unit_test(window_is_excused_by_what_waits),
        cmocka_unit_test(window_beside_others_is_not_excused),
    };
    return cmocka_run_group_tests_name("net/server/receive_rate", tests, NULL, NULL);
}
