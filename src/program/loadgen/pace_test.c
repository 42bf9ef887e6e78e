/* The timetable, with a clock that is only a number. */
#include "program/loadgen/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

enum { START = 1000000 };

static const uint64_t second_ns = 1000000000;

static uint64_t count_until(struct bench_pace *pace, uint64_t now_ns) {
    uint64_t n = 0, due = 0;
    while (bench_pace_take(pace, now_ns, &due)) {
        assert_true(due <= now_ns);
        n++;
    }
    return n;
}

static void constant_distances(void **state) {
    (void)state;
    struct bench_pace pace;
    uint64_t due = 0;
    bench_pace_init(&pace, 1000, BENCH_ARRIVAL_CONSTANT, 1, START);
    assert_false(bench_pace_take(&pace, START - 1, &due));
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t at = START + i * 1000000;
        assert_int_equal(bench_pace_next_ns(&pace), at);
        assert_false(i > 0 && bench_pace_take(&pace, at - 1, &due));
        assert_true(bench_pace_take(&pace, at, &due));
        assert_int_equal(due, at);
    }
}

/* A thread that was late finds each request with the time it should have begun. */
static void what_is_late_keeps_its_time(void **state) {
    (void)state;
    struct bench_pace pace;
    uint64_t due = 0, now = START + 10 * second_ns;
    bench_pace_init(&pace, 4, BENCH_ARRIVAL_CONSTANT, 1, START);
    for (uint64_t i = 0; i <= 40; i++) {
        assert_true(bench_pace_take(&pace, now, &due));
        assert_int_equal(due, START + i * 250000000);
    }
    assert_false(bench_pace_take(&pace, now, &due));
}

/* Rates whose distance is no whole number of nanoseconds do not drift. */
static void no_drift(void **state) {
    (void)state;
    static const double rates[] = {3, 7, 333.3, 30000, 99999.9};
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        struct bench_pace pace;
        bench_pace_init(&pace, rates[i], BENCH_ARRIVAL_CONSTANT, 1, START);
        double n = (double)count_until(&pace, START + 100 * second_ns - 1);
        assert_true(fabs(n - 100 * rates[i]) <= 1.01);
    }
}

static void poisson(void **state) {
    (void)state;
    struct bench_pace pace, again;
    double rate = 5000, sum = 0, squares = 0;
    bench_pace_init(&pace, rate, BENCH_ARRIVAL_POISSON, 3, START);
    bench_pace_init(&again, rate, BENCH_ARRIVAL_POISSON, 3, START);
    /* The numbers in each 10 ms have mean and variance alike: 50. */
    for (uint64_t i = 1; i <= 1000; i++) {
        double n = (double)count_until(&pace, START + i * 10000000);
        sum += n;
        squares += n * n;
    }
    double mean = sum / 1000, variance = squares / 1000 - mean * mean;
    assert_true(fabs(mean - 50) < 2);
    assert_true(variance > 40 && variance < 60);
    /* The same seed makes the same times, whatever the steps in which they are asked for. */
    (void)count_until(&again, START + 10 * second_ns);
    assert_int_equal(bench_pace_next_ns(&pace), bench_pace_next_ns(&again));
    bench_pace_init(&again, rate, BENCH_ARRIVAL_POISSON, 4, START);
    (void)count_until(&again, START + 10 * second_ns);
    assert_int_not_equal(bench_pace_next_ns(&pace), bench_pace_next_ns(&again));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_distances),
        cmocka_unit_test(what_is_late_keeps_its_time),
        cmocka_unit_test(no_drift),
        cmocka_unit_test(poisson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
