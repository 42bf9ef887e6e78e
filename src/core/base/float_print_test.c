/* FP32 as text: the form, that it parses to the same bits by way of a double, and that no shorter
 * text does. (All 2^32 values were tried once, which takes minutes; here it is a sample.) */
#include "core/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static struct str print(char out[FLOAT_PRINT_BYTES], float value) {
    unsigned n = float_print(out, value);
    assert_true(n < FLOAT_PRINT_BYTES);
    return str_make(out, n);
}

static void float_print_known_values_have_expected_text(void **state) {
    static const struct {
        uint32_t bits;
        const char *text;
    } rows[] = {
        {0x00000000, "0.0"},
        {0x80000000, "-0.0"},
        {0x3f800000, "1.0"},
        {0xbf800000, "-1.0"},
        {0x3dcccccd, "0.1"},
        {0x3e99999a, "0.3"},
        {0x40490fdb, "3.1415927"},
        {0x4b800000, "16777216.0"},
        {0x42c80000, "100.0"},
        {0x38d1b717, "0.0001"},
        {0x3727c5ac, "1e-5"},
        {0x5a0e1bca, "1e16"},
        {0x58635fa9, "1000000000000000.0"},
        {0x7f7fffff, "3.4028235e38"},
        {0xff7fffff, "-3.4028235e38"},
        {0x00800000, "1.1754944e-38"},
        {0x007fffff, "1.1754942e-38"},
        {0x00000001, "1e-45"},
        {0x15ae43fd, "7.0385307e-26"}, /* 7.038531e-26 becomes a neighbour by way of a double */
        {0x7f800000, "Infinity"},
        {0xff800000, "-Infinity"},
        {0x7fc00000, "NaN"},
        {0xffc00001, "NaN"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[FLOAT_PRINT_BYTES];
        struct str got = print(text, of_bits(rows[i].bits));
        if (!str_is(got, rows[i].text)) {
            fail_msg("%08x: expected %s, got %.*s", rows[i].bits, rows[i].text, STR_ARG(got));
        }
    }
}

static unsigned significant_digits(struct str text) {
    unsigned n = 0, zeros = 0;
    for (size_t i = 0; i < text.len && text.ptr[i] != 'e'; i++) {
        if (text.ptr[i] >= '1' && text.ptr[i] <= '9') {
            n += zeros + 1;
            zeros = 0;
        } else if (text.ptr[i] == '0' && n > 0) {
            zeros++;
        }
    }
    return n;
}

static void check(uint32_t bits) {
    char out[FLOAT_PRINT_BYTES], shorter[32];
    float value = of_bits(bits);
    double parsed;
    struct str text = print(out, value);
    assert_true(num_parse_f64(text, &parsed));
    float back = (float)parsed;
    if (memcmp(&back, &value, sizeof(value)) != 0) {
        fail_msg("%08x printed as %.*s is another number", bits, STR_ARG(text));
    }
    unsigned digits = significant_digits(text);
    assert_true(digits >= 1 && digits <= 9);
    if (digits > 1 && bits != 0x15ae43fd) {
        snprintf(shorter, sizeof(shorter), "%.*e", (int)digits - 2, (double)value);
        /* printf's exponent has a + and zeros, which JSON allows */
        assert_true(num_parse_f64(str_of(shorter), &parsed));
        if ((float)parsed == value) {
            fail_msg("%08x printed as %.*s, but %s would do", bits, STR_ARG(text), shorter);
        }
    }
}

static void float_print_sampled_values_are_shortest_roundtrip(void **state) {
    (void)state;
    for (uint64_t bits = 1; bits < 0x7f800000; bits += 21157) {
        check((uint32_t)bits);
    }
}

/* Around every power of two, where the neighbours differ in distance, and of ten. */
static void float_print_values_near_powers_are_shortest_roundtrip(void **state) {
    (void)state;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (uint32_t k = 0; k < 9; k++) {
            uint32_t bits = (exponent << 23) + k - 4;
            if (bits > 0 && bits < 0x7f800000) {
                check(bits);
            }
        }
    }
    for (int power = -45; power <= 38; power++) {
        char ten[8];
        double number;
        uint32_t bits;
        snprintf(ten, sizeof(ten), "1e%d", power);
        assert_true(num_parse_f64(str_of(ten), &number));
        float value = (float)number;
        memcpy(&bits, &value, sizeof(bits));
        for (uint32_t k = 0; k < 9; k++) {
            if (bits + k > 4) {
                check(bits + k - 4);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_print_known_values_have_expected_text),
        cmocka_unit_test(float_print_sampled_values_are_shortest_roundtrip),
        cmocka_unit_test(float_print_values_near_powers_are_shortest_roundtrip),
    };
    return cmocka_run_group_tests_name("core/base/float_print", tests, NULL, NULL);
}
