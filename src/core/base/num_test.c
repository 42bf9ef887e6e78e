/* The strict parsers: each row is a text and its value, or an error. */
#include "core/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct row_u64 {
    const char *text;
    uint64_t value;
    bool ok;
};

static void check_u64(bool (*parse)(struct str, uint64_t *), const struct row_u64 *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 0xdead;
        if (parse(str_of(rows[i].text), &value) != rows[i].ok) {
            fail_msg("\"%s\" should be %s", rows[i].text, rows[i].ok ? "taken" : "refused");
        }
        if (rows[i].ok && value != rows[i].value) {
            fail_msg("\"%s\" gave %llu", rows[i].text, (unsigned long long)value);
        }
    }
}

static void num_parse_u64_accepts_digits_only(void **state) {
    static const struct row_u64 rows[] = {
        {"0", 0, true},
        {"007", 7, true},
        {"18446744073709551615", UINT64_MAX, true},
        {"000000000000000000000000000001", 1, true},
        {"18446744073709551616", 0, false},
        {"18446744073709551620", 0, false},
        {"99999999999999999999", 0, false},
        {"", 0, false},
        {"-1", 0, false},
        {"-0", 0, false},
        {"+5", 0, false},
        {" 5", 0, false},
        {"5 ", 0, false},
        {"0x10", 0, false},
        {"1e3", 0, false},
        {"1.0", 0, false},
        {"\xd9\xa1", 0, false}, /* an Arabic digit */
    };
    uint64_t value;
    (void)state;
    check_u64(num_parse_u64, rows, sizeof(rows) / sizeof(rows[0]));
    assert_false(num_parse_u64(STR("1\0"), &value));
    assert_false(num_parse_u64(str_make(NULL, 0), &value));
}

static void num_parse_i64_checks_range(void **state) {
    static const struct {
        const char *text;
        int64_t value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"-0", 0, true},
        {"-1", -1, true},
        {"9223372036854775807", INT64_MAX, true},
        {"-9223372036854775808", INT64_MIN, true},
        {"9223372036854775808", 0, false},
        {"-9223372036854775809", 0, false},
        {"", 0, false},
        {"-", 0, false},
        {"--1", 0, false},
        {"+1", 0, false},
        {"- 1", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t value = 77;
        assert_int_equal(num_parse_i64(str_of(rows[i].text), &value), rows[i].ok);
        assert_true(value == (rows[i].ok ? rows[i].value : 77));
    }
}

static void num_parse_f64_follows_json_grammar(void **state) {
    static const struct {
        const char *text;
        double value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"-0", -0.0, true},
        {"-0.0", -0.0, true},
        {"0.1", 0.1, true},
        {"1e3", 1000, true},
        {"-2.5E-1", -0.25, true},
        {"12345678901234567890123", 12345678901234567890123.0, true},
        {"9007199254740993", 9007199254740992.0, true}, /* ties to even */
        {"1.7976931348623157e308", 1.7976931348623157e308, true},
        {"4.9406564584124654e-324", 4.9406564584124654e-324, true},
        {"1e-400", 0, true},
        {"-1e-400", -0.0, true},
        {"1e400", 0, false},
        {"-1e309", 0, false},
        {"", 0, false},
        {"+1", 0, false},
        {".5", 0, false},
        {"5.", 0, false},
        {"01", 0, false},
        {"1e", 0, false},
        {"0x1p3", 0, false},
        {"inf", 0, false},
        {"Infinity", 0, false},
        {"nan", 0, false},
        {"NaN", 0, false},
        {"1,5", 0, false},
        {" 1", 0, false},
        {"1 ", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double value = 77;
        if (num_parse_f64(str_of(rows[i].text), &value) != rows[i].ok) {
            fail_msg("\"%s\" should be %s", rows[i].text, rows[i].ok ? "taken" : "refused");
        }
        if (rows[i].ok && memcmp(&value, &rows[i].value, sizeof(value)) != 0) {
            fail_msg("\"%s\" gave %.17g", rows[i].text, value);
        }
    }
    char text[4098];
    double value = 0;
    memset(text, '0', sizeof(text));
    text[1] = '.';
    text[4095] = '1';
    assert_true(num_parse_f64(str_make(text, 4096), &value));
    assert_false(num_parse_f64(str_make(text, 4097), &value));
    assert_false(num_parse_f64(STR("1\0"), &value));
}

static void num_parse_decimal_accepts_configuration_forms(void **state) {
    static const struct {
        const char *text;
        double value;
        bool ok;
    } rows[] = {
        {"1", 1, true},      {"+1.5", 1.5, true}, {"-1.5e3", -1500, true}, {".5", 0.5, true},
        {"-.5", -0.5, true}, {"5.", 5, true},     {"5.e2", 500, true},     {"007.50", 7.5, true},
        {"000", 0, true},    {"-0", -0.0, true},  {"1E+2", 100, true},     {"", 0, false},
        {"+", 0, false},     {"-", 0, false},     {".", 0, false},         {"-.", 0, false},
        {".e1", 0, false},   {"e1", 0, false},    {"1e", 0, false},        {"+-1", 0, false},
        {"1.2.3", 0, false}, {"1 ", 0, false},    {"0x1", 0, false},       {"1f", 0, false},
        {"inf", 0, false},   {"1e400", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double value = 77;
        if (num_parse_decimal(str_of(rows[i].text), &value) != rows[i].ok) {
            fail_msg("\"%s\" should be %s", rows[i].text, rows[i].ok ? "taken" : "refused");
        }
        if (rows[i].ok && memcmp(&value, &rows[i].value, sizeof(value)) != 0) {
            fail_msg("\"%s\" gave %.17g", rows[i].text, value);
        }
    }
    char text[5000];
    double value;
    memset(text, '0', sizeof(text));
    for (size_t n = 4080; n <= sizeof(text); n++) {
        text[0] = '.'; /* one character more than num_parse_f64 accepts */
        assert_int_equal(num_parse_decimal(str_make(text, n), &value), n <= 4094);
    }
}

static void num_parse_bytes_applies_unit(void **state) {
    static const struct row_u64 rows[] = {
        {"0", 0, true},
        {"512", 512, true},
        {"1B", 1, true},
        {"3KB", 3000, true},
        {"3K", 3072, true},
        {"3KiB", 3072, true},
        {"64MiB", 64u << 20, true},
        {"64M", 64u << 20, true},
        {"2MB", 2000000, true},
        {"1GB", 1000000000, true},
        {"1GiB", 1u << 30, true},
        {"17179869183GiB", UINT64_C(17179869183) << 30, true},
        {"17179869184GiB", 0, false},
        {"", 0, false},
        {"MiB", 0, false},
        {"1 MiB", 0, false},
        {"1mib", 0, false},
        {"1.5GiB", 0, false},
        {"-1", 0, false},
        {"1MiBs", 0, false},
    };
    (void)state;
    check_u64(num_parse_bytes, rows, sizeof(rows) / sizeof(rows[0]));
}

static void num_parse_duration_applies_unit(void **state) {
    static const struct row_u64 rows[] = {
        {"0", 0, true},
        {"2", 2000000000, true},
        {"0.25", 250000000, true},
        {"7ns", 7, true},
        {"250us", 250000, true},
        {"1.5us", 1500, true},
        {"20ms", 20000000, true},
        {"1.5s", 1500000000, true},
        {"0.000000001s", 1, true},
        {"2m", UINT64_C(120000000000), true},
        {"1h", UINT64_C(3600000000000), true},
        {"0.5h", UINT64_C(1800000000000), true},
        {"0.000001ms", 1, true},
        {"5124095h", UINT64_C(5124095) * 3600000000000, true},
        {"5124096h", 0, false},
        {"18446744073.709551615", UINT64_MAX, true},
        {"18446744073.709551616", 0, false},
        {"0.5ns", 0, false},
        {"1.0ns", 1, true},
        {"0.0001us", 0, false},
        {"0.0000000001", 0, false},
        {"", 0, false},
        {"s", 0, false},
        {"1.s", 0, false},
        {".5s", 0, false},
        {"1 s", 0, false},
        {"-1s", 0, false},
        {"1e3s", 0, false},
        {"1d", 0, false},
        {"1S", 0, false},
    };
    (void)state;
    check_u64(num_parse_duration_ns, rows, sizeof(rows) / sizeof(rows[0]));
}

static void num_parse_go_duration_sums_units(void **state) {
    static const struct row_u64 rows[] = {
        {"0", 0, true},
        {"0s", 0, true},
        {"200ms", 200000000, true},
        {"1m30s", UINT64_C(90000000000), true},
        {"1h0.5s", UINT64_C(3600500000000), true},
        {"", 0, false},
        {"1", 0, false},
        {"1m30", 0, false},
        {"ms", 0, false},
        {"-1s", 0, false},
        {"1m 30s", 0, false},
        {"2000000h2000000h2000000h", 0, false},
        {"5000000h500000h", 0, false},
    };
    (void)state;
    check_u64(num_parse_go_duration_ns, rows, sizeof(rows) / sizeof(rows[0]));
}

static void num_print_round_trips(void **state) {
    static const uint64_t values[] = {0, 9, 10, 99, 100, 12345678901u, INT64_MAX, UINT64_MAX};
    char text[20];
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        uint64_t back;
        assert_true(num_parse_u64(str_make(text, num_print_u64(text, values[i])), &back));
        assert_true(back == values[i]);
        int64_t want = -(int64_t)(values[i] >> 1), got;
        assert_true(num_parse_i64(str_make(text, num_print_i64(text, want)), &got));
        assert_true(got == want);
    }
    assert_int_equal(num_print_u64(text, UINT64_MAX), 20);
    assert_int_equal(num_print_i64(text, INT64_MIN), 20);
    assert_memory_equal(text, "-9223372036854775808", 20);
}

static void num_parse_bool_takes_words_in_any_case(void **state) {
    static const struct {
        const char *text;
        bool ok, value;
    } rows[] = {{"true", true, true},   {"TRUE", true, true},   {"On", true, true},
                {"1", true, true},      {"false", true, false}, {"False", true, false},
                {"OFF", true, false},   {"0", true, false},     {"", false, false},
                {"yes", false, false},  {"2", false, false},    {"t", false, false},
                {"true ", false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool value = !rows[i].value;
        if (num_parse_bool(str_of(rows[i].text), &value) != rows[i].ok ||
            (rows[i].ok && value != rows[i].value)) {
            fail_msg("\"%s\"", rows[i].text);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(num_parse_u64_accepts_digits_only),
        cmocka_unit_test(num_parse_i64_checks_range),
        cmocka_unit_test(num_parse_f64_follows_json_grammar),
        cmocka_unit_test(num_parse_decimal_accepts_configuration_forms),
        cmocka_unit_test(num_parse_bytes_applies_unit),
        cmocka_unit_test(num_parse_duration_applies_unit),
        cmocka_unit_test(num_parse_go_duration_sums_units),
        cmocka_unit_test(num_parse_bool_takes_words_in_any_case),
        cmocka_unit_test(num_print_round_trips),
    };
    return cmocka_run_group_tests_name("core/base/num", tests, NULL, NULL);
}
