/* The schedule, with a clock that is only a number. */
#include "program/loadgen/arrivals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

enum { START = 1000000 };

static const uint64_t second_ns = 1000000000;

static uint64_t count_until(struct bench_arrivals *arrivals, uint64_t now_ns) {
    uint64_t n = 0, due = 0;
    while (bench_arrivals_pop_due(arrivals, now_ns, &due)) {
        assert_true(due <= now_ns);
        n++;
    }
    return n;
}

static void arrivals_constant_are_equidistant(void **state) {
    (void)state;
    struct bench_arrivals arrivals;
    uint64_t due = 0;
    bench_arrivals_init(&arrivals, 1000, BENCH_ARRIVAL_CONSTANT, 1, START);
    assert_false(bench_arrivals_pop_due(&arrivals, START - 1, &due));
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t at = START + i * 1000000;
        assert_int_equal(bench_arrivals_next_ns(&arrivals), at);
        assert_false(i > 0 && bench_arrivals_pop_due(&arrivals, at - 1, &due));
        assert_true(bench_arrivals_pop_due(&arrivals, at, &due));
        assert_int_equal(due, at);
    }
}

/* A thread that was late gets each request with its scheduled time. */
static void arrivals_late_keep_due_time(void **state) {
    (void)state;
    struct bench_arrivals arrivals;
    uint64_t due = 0, now = START + 10 * second_ns;
    bench_arrivals_init(&arrivals, 4, BENCH_ARRIVAL_CONSTANT, 1, START);
    for (uint64_t i = 0; i <= 40; i++) {
        assert_true(bench_arrivals_pop_due(&arrivals, now, &due));
        assert_int_equal(due, START + i * 250000000);
    }
    assert_false(bench_arrivals_pop_due(&arrivals, now, &due));
}

/* Rates whose interval is not a whole number of nanoseconds do not drift. */
static void arrivals_do_not_drift(void **state) {
    (void)state;
    static const double rates[] = {3, 7, 333.3, 30000, 99999.9};
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        struct bench_arrivals arrivals;
        bench_arrivals_init(&arrivals, rates[i], BENCH_ARRIVAL_CONSTANT, 1, START);
        double n = (double)count_until(&arrivals, START + 100 * second_ns - 1);
        assert_true(fabs(n - 100 * rates[i]) <= 1.01);
    }
}

static void arrivals_poisson_have_exponential_gaps(void **state) {
    (void)state;
    struct bench_arrivals arrivals, again;
    double rate = 5000, sum = 0, squares = 0;
    bench_arrivals_init(&arrivals, rate, BENCH_ARRIVAL_POISSON, 3, START);
    bench_arrivals_init(&again, rate, BENCH_ARRIVAL_POISSON, 3, START);
    /* The counts per 10 ms have mean and variance 50. */
    for (uint64_t i = 1; i <= 1000; i++) {
        double n = (double)count_until(&arrivals, START + i * 10000000);
        sum += n;
        squares += n * n;
    }
    double mean = sum / 1000, variance = squares / 1000 - mean * mean;
    assert_true(fabs(mean - 50) < 2);
    assert_true(variance > 40 && variance < 60);
    /* The same seed gives the same times, however they are polled. */
    (void)count_until(&again, START + 10 * second_ns);
    assert_int_equal(bench_arrivals_next_ns(&arrivals), bench_arrivals_next_ns(&again));
    bench_arrivals_init(&again, rate, BENCH_ARRIVAL_POISSON, 4, START);
    (void)count_until(&again, START + 10 * second_ns);
    assert_int_not_equal(bench_arrivals_next_ns(&arrivals), bench_arrivals_next_ns(&again));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_constant_are_equidistant),
        cmocka_unit_test(arrivals_late_keep_due_time),
        cmocka_unit_test(arrivals_do_not_drift),
        cmocka_unit_test(arrivals_poisson_have_exponential_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
