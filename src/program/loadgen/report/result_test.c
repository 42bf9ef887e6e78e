/* Numbers derived from the counts of steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "program/loadgen/fixture.h"

static void result_rates_count_successes(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h|m|-c|1,2");
    struct bench_step_result *step = fixture_add(fixture, 1000, 10);
    assert_true(bench_rate(step) == 500);
    assert_true(bench_byte_rate(step) == 3.5e6);
    step->stats.cpu_ns = 500000000;
    assert_true(bench_cpu_share(step) == 0.25);
    step->n_threads = 2;
    assert_true(bench_cpu_share(step) == 0.125);
    step->window_ns = 0; /* ended before it was measured */
    assert_true(bench_rate(step) == 0 && bench_byte_rate(step) == 0 && bench_cpu_share(step) == 0);
    fixture_free(fixture);
}

static void result_rate_variation_is_measured(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h|m|-c|1,2");
    struct bench_step_result *step = fixture_add(fixture, 1000, 10);
    assert_true(bench_rate_variation(step) < 1e-9);
    for (size_t i = 0; i < 4; i++) { /* nothing in the first fifth */
        step->samples[i].n_answered = 0;
    }
    assert_true(fabs(bench_rate_variation(step) - 1) < 1e-9);
    step = fixture_add(fixture, 10, 10); /* too few to tell */
    step->samples[0].n_answered = 9;
    assert_true(bench_rate_variation(step) == 0);
    fixture_free(fixture);
}

static void result_best_step_respects_max_p99(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h|m|-c|1,2,4,8");
    assert_null(bench_best_step(&fixture->result));
    assert_null(bench_knee_step(&fixture->result));
    fixture_add(fixture, 900, 1);
    struct bench_step_result *enough = fixture_add(fixture, 980, 2);
    struct bench_step_result *best = fixture_add(fixture, 1000, 4);
    fixture_add(fixture, 990, 8);
    assert_ptr_equal(bench_best_step(&fixture->result), best);
    assert_ptr_equal(bench_knee_step(&fixture->result), enough);
    fixture->settings.options.max_p99_ns = 2000000;
    assert_ptr_equal(bench_best_step(&fixture->result), enough);
    assert_null(bench_knee_step(&fixture->result));
    fixture->settings.options.max_p99_ns = 1;
    assert_null(bench_best_step(&fixture->result));
    fixture_free(fixture);
}

/* A rate that the server kept up with beats one that it did not, whatever the answers. */
static void result_best_rate_kept_up(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h|m|-r|500,1000");
    struct bench_step_result *kept = fixture_add(fixture, 1000, 1);
    struct bench_step_result *after = fixture_add(fixture, 1200, 9);
    after->stats.n_unsent = 800;
    assert_true(bench_kept_up(kept));
    assert_false(bench_kept_up(after));
    assert_ptr_equal(bench_best_step(&fixture->result), kept);
    assert_null(bench_knee_step(&fixture->result));
    fixture_free(fixture);
}

static void result_success_needs_all_requests(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h|m|-c|1,2,3");
    assert_false(bench_all_succeeded(&fixture->result)); /* nothing was sent */
    fixture_add(fixture, 0, 1);
    assert_false(bench_all_succeeded(&fixture->result));
    fixture_add(fixture, 10, 1);
    assert_true(bench_all_succeeded(&fixture->result));
    fixture_fail(fixture_add(fixture, 10, 1), ST_REFUSED, 503, "no", 1);
    assert_false(bench_all_succeeded(&fixture->result));
    assert_int_equal(bench_n_requests(fixture->result.steps[2]), 11);
    fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_rates_count_successes),
        cmocka_unit_test(result_rate_variation_is_measured),
        cmocka_unit_test(result_best_step_respects_max_p99),
        cmocka_unit_test(result_best_rate_kept_up),
        cmocka_unit_test(result_success_needs_all_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
