/* Axes: their limits and their ticks. */
#include "program/loadgen/report/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <math.h>

static void print(const struct bench_scale *scale, char *out, size_t n_bytes) {
    size_t at = (size_t)snprintf(out, n_bytes, "%g-%g:", scale->from, scale->to);
    for (size_t i = 0; i < scale->n_ticks; i++) {
        at += (size_t)snprintf(out + at, n_bytes - at, " %g", scale->ticks[i]);
    }
}

static void scale_ends_are_round(void **state) {
    (void)state;
    static const struct {
        bool log;
        double min, max;
        const char *is;
    } rows[] = {
        {false, 0, 0, "0-1: 0 0.2 0.4 0.6 0.8 1"},
        {false, 0, 1, "0-1: 0 0.2 0.4 0.6 0.8 1"},
        {false, 0, 41203, "0-50000: 0 10000 20000 30000 40000 50000"},
        {false, 0, 0.0123, "0-0.015: 0 0.005 0.01 0.015"},
        {false, 0, 7, "0-8: 0 2 4 6 8"},
        {true, 1, 16, "1-20: 1 2 5 10 20"},
        {true, 0.045, 3.2, "0.02-5: 0.02 0.05 0.1 0.2 0.5 1 2 5"},
        {true, 0.03, 400, "0.02-500: 0.1 1 10 100"},
        {true, 5, 5, "5-10: 5 10"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bench_scale scale;
        char text[512];
        if (rows[i].log) {
            bench_scale_log(&scale, rows[i].min, rows[i].max);
        } else {
            bench_scale_linear(&scale, rows[i].max);
        }
        print(&scale, text, sizeof(text));
        assert_string_equal(text, rows[i].is);
    }
}

static void scale_values_map_to_places(void **state) {
    (void)state;
    struct bench_scale scale;
    bench_scale_fit(&scale, 1, 10);
    assert_false(scale.log);
    assert_true(fabs(bench_scale_at(&scale, 5) - 0.5) < 1e-9);
    assert_true(bench_scale_at(&scale, -1) == 0 && bench_scale_at(&scale, 11) == 1);
    bench_scale_fit(&scale, 1, 100);
    assert_true(scale.log);
    assert_true(fabs(bench_scale_at(&scale, 10) - 0.5) < 1e-9);
    assert_true(bench_scale_at(&scale, 0) == 0 && bench_scale_at(&scale, 1e9) == 1);
    bench_scale_fit(&scale, 0, 100);
    assert_false(scale.log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_ends_are_round),
        cmocka_unit_test(scale_values_map_to_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
