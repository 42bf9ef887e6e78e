/* Number formatting. */
#include "program/loadgen/report/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void text_numbers_have_three_digits(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0.000"},
        {0.0004, "0.000"},
        {0.5, "0.500"},
        {1, "1.00"},
        {9.994, "9.99"},
        {9.996, "10.0"},
        {99.94, "99.9"},
        {99.96, "100"},
        {999.4, "999"},
        {999.5, "1,000"},
        {12345.6, "12,346"},
        {1234567, "1,234,567"},
        {1e300, "18,446,744,073,709,551,615"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char out[BENCH_TEXT_BYTES];
        assert_string_equal(bench_text_number(rows[i].value, out), rows[i].text);
    }
}

static void text_times_have_units(void **state) {
    (void)state;
    static const struct {
        uint64_t ns;
        const char *ms, *span;
    } rows[] = {
        {0, "0.000", "0 ns"},
        {45123, "0.045", "45.1 µs"},
        {999999, "1.000", "1 ms"},
        {12345678, "12.35", "12.3 ms"},
        {250000000, "250.0", "250 ms"},
        {1500000000, "1,500", "1.5 s"},
        {UINT64_C(3600000000000), "3,600,000", "3600 s"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char out[BENCH_TEXT_BYTES];
        assert_string_equal(bench_text_ms(rows[i].ns, out), rows[i].ms);
        assert_string_equal(bench_text_span(rows[i].ns, out), rows[i].span);
    }
}

static void text_counts_and_steps_are_printed(void **state) {
    (void)state;
    char out[BENCH_TEXT_BYTES];
    assert_string_equal(bench_text_count(0, out), "0");
    assert_string_equal(bench_text_count(999, out), "999");
    assert_string_equal(bench_text_count(1000, out), "1,000");
    assert_string_equal(bench_text_count(UINT64_MAX, out), "18,446,744,073,709,551,615");
    assert_string_equal(bench_text_percent(0.0123, out), "1.2\u00a0%");
    assert_string_equal(bench_text_percent(0.5, out), "50\u00a0%");
    assert_string_equal(bench_text_step(&(struct bench_step){4, 0}, out), "concurrency 4");
    assert_string_equal(bench_text_step(&(struct bench_step){4, 2500}, out), "rate 2,500/s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_numbers_have_three_digits),
        cmocka_unit_test(text_times_have_units),
        cmocka_unit_test(text_counts_and_steps_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
