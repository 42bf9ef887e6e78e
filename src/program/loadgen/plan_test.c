/* The meaning of --concurrency and --rate, and their error texts. */
#include "program/loadgen/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct bench_sweep_kind whole = {"--concurrency", true, 1, 65536};
static const struct bench_sweep_kind real = {"--rate", false, 0.001, 1e7};

static void print(const struct bench_sweep *sweep, char *out, size_t n_bytes) {
    size_t at = 0;
    *out = '\0';
    for (size_t i = 0; i < sweep->n; i++) {
        at += (size_t)snprintf(out + at, n_bytes - at, "%s%g", i > 0 ? " " : "", sweep->values[i]);
    }
}

static void plan_sweeps_are_parsed(void **state) {
    (void)state;
    static const struct {
        const struct bench_sweep_kind *kind;
        const char *text, *means;
    } rows[] = {
        {&whole, "4", "4"},
        {&whole, "1,2,8", "1 2 8"},
        {&whole, "8,1", "8 1"},
        {&whole, "1:4", "1 2 3 4"},
        {&whole, "1:8:2", "1 3 5 7"},
        {&whole, "2:8:2", "2 4 6 8"},
        {&whole, "1:32:x2", "1 2 4 8 16 32"},
        {&whole, "1:10:x1.5", "1 2 3 5 7"},
        {&whole, "3:3", "3"},
        {&whole, "1:4:8,16", "1 16"},
        {&whole, "65536", "65536"},
        {&real, "1000", "1000"},
        {&real, "0.5,2.5", "0.5 2.5"},
        {&real, "1e3", "1000"},
        {&real, "100:1000:x10", "100 1000"},
        {&real, "0.5:1.5:0.5", "0.5 1 1.5"},
        {&real, "0.1:0.3:0.1", "0.1 0.2 0.3"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bench_sweep sweep;
        struct error err = {0};
        char text[512];
        if (bench_sweep_parse(rows[i].kind, rows[i].text, &sweep, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        print(&sweep, text, sizeof(text));
        assert_string_equal(text, rows[i].means);
    }
}

static void plan_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const struct bench_sweep_kind *kind;
        const char *text, *says;
    } rows[] = {
        {&whole, "", "not a whole number"},
        {&whole, "1,", "not a whole number"},
        {&whole, "two", "not a whole number"},
        {&whole, "1.5", "not a whole number"},
        {&whole, "-1", "not a whole number"},
        {&whole, "99999999999999999999", "not a whole number"},
        {&whole, "0", "out of range; expected numbers from 1 to 65536"},
        {&whole, "65537", "out of range"},
        {&whole, "1:65537:x65537", "out of range"},
        {&whole, "1:", "not a range"},
        {&whole, ":4", "not a range"},
        {&whole, "4:1", "end is below"},
        {&whole, "1:4:0", "step must be above 0"},
        {&whole, "1:4:", "step must be above 0"},
        {&whole, "1:4:1:1", "step must be above 0"},
        {&whole, "1:4:x1", "factor after x must be above 1"},
        {&whole, "1:4:x", "factor after x must be above 1"},
        {&whole, "1:1000", "more than 64 steps"},
        {&real, "0", "--rate 0: out of range"},
        {&real, "1e9", "out of range"},
        {&real, "nan", "not a number"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bench_sweep sweep;
        struct error err = {0};
        assert_int_equal(bench_sweep_parse(rows[i].kind, rows[i].text, &sweep, &err),
                         ST_BAD_CONFIG);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].text, err.text, rows[i].says);
        }
    }
}

static void plan_steps_follow_flags(void **state) {
    (void)state;
    struct bench_plan plan;
    struct error err = {0};
    assert_int_equal(bench_plan_make(NULL, NULL, &plan, &err), ST_OK);
    assert_int_equal(plan.n_steps, 3);
    assert_int_equal(plan.steps[2].concurrency, 16);
    assert_true(plan.steps[2].rate == 0);

    assert_int_equal(bench_plan_make("2,3", NULL, &plan, &err), ST_OK);
    assert_int_equal(plan.n_steps, 2);
    assert_int_equal(plan.steps[1].concurrency, 3);

    assert_int_equal(bench_plan_make(NULL, "10,20", &plan, &err), ST_OK);
    assert_int_equal(plan.n_steps, 2);
    assert_true(plan.steps[1].rate == 20);
    assert_int_equal(plan.steps[1].concurrency, 256);

    assert_int_equal(bench_plan_make("8", "10", &plan, &err), ST_OK);
    assert_int_equal(plan.steps[0].concurrency, 8);

    assert_int_equal(bench_plan_make("1,8", "10", &plan, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "the limit of requests in flight"));
    assert_int_equal(bench_plan_make("x", "10", &plan, &err), ST_BAD_CONFIG);
    assert_int_equal(bench_plan_make("x", NULL, &plan, &err), ST_BAD_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_sweeps_are_parsed),
        cmocka_unit_test(plan_invalid_refused),
        cmocka_unit_test(plan_steps_follow_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
