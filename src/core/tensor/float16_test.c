/* All 65536 patterns of both formats there and back, and rounding at every midpoint between two
 * neighbours. */
#include "core/tensor/float16.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct format {
    float (*to_float)(uint16_t);
    uint16_t (*from_double)(double);
    uint16_t infinity;
    uint16_t quiet;       /* the bit that a NaN gets */
    double after_largest; /* the value after the largest, if exponents continued */
};

/* value x 2^exponent, exactly (a double's range is far wider than either format's). */
static double scaled(int value, int exponent) {
    double result = value;
    for (; exponent > 0; exponent--) {
        result *= 2;
    }
    for (; exponent < 0; exponent++) {
        result /= 2;
    }
    return result;
}

/* The neighbour of a positive double: by = 1 up, by = -1 down. */
static double neighbour(double value, int by) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits += (uint64_t)(int64_t)by;
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

static const struct format formats[] = {
    {half_to_float, half_from_double, 0x7c00, 0x0200, 0x1p16},
    {bfloat_to_float, bfloat_from_double, 0x7f80, 0x0040, 0x1p128},
};

static void half_every_pattern_round_trips(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];
        for (uint32_t i = 0; i <= 0xffff; i++) {
            uint16_t bits = (uint16_t)i;
            float value = format->to_float(bits);
            bool nan = (bits & 0x7fff) > format->infinity;
            assert_int_equal(isnan(value) != 0, nan);
            assert_int_equal(signbit(value) != 0, bits >> 15);
            assert_int_equal(isinf(value) != 0, (bits & 0x7fff) == format->infinity);
            uint16_t back = format->from_double((double)value);
            assert_int_equal(back, nan ? bits | format->quiet : bits);
        }
    }
}

/* Values by their definition: mantissa x 2^exponent. */
static void half_to_float_matches_definition(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 0x7c00; i++) {
        int exponent = (int)(i >> 10), mantissa = (int)(i & 0x3ff);
        double want =
            exponent == 0 ? scaled(mantissa, -24) : scaled(mantissa + 1024, exponent - 25);
        assert_true((double)half_to_float((uint16_t)i) == want);
        assert_true((double)half_to_float((uint16_t)(i | 0x8000)) == -want);
    }
    for (uint32_t i = 0; i < 0x7f80; i++) {
        int exponent = (int)(i >> 7), mantissa = (int)(i & 0x7f);
        double want =
            exponent == 0 ? scaled(mantissa, -133) : scaled(mantissa + 128, exponent - 134);
        assert_true((double)bfloat_to_float((uint16_t)i) == want);
    }
}

static void half_midpoint_rounds_to_even(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];
        for (uint16_t i = 0; i < format->infinity; i++) {
            uint16_t next = (uint16_t)(i + 1);
            double low = (double)format->to_float(i);
            double high =
                next == format->infinity ? format->after_largest : (double)format->to_float(next);
            double middle = (low + high) / 2; /* exact in a double */
            uint16_t even = i % 2 == 0 ? i : next;
            assert_int_equal(format->from_double(middle), even);
            assert_int_equal(format->from_double(-middle), even | 0x8000);
            /* closer than a float can represent */
            assert_int_equal(format->from_double(neighbour(middle, -1)), i);
            assert_int_equal(format->from_double(neighbour(middle, 1)), next);
            assert_int_equal(format->from_double(neighbour(high, -1)), next);
        }
    }
}

static void half_from_double_known_values(void **state) {
    static const struct {
        double value;
        uint16_t half;
        uint16_t bfloat;
    } rows[] = {
        {0.0, 0x0000, 0x0000},
        {-0.0, 0x8000, 0x8000},
        {1.0, 0x3c00, 0x3f80},
        {-2.0, 0xc000, 0xc000},
        {0.1, 0x2e66, 0x3dcd},
        {1.0 / 3, 0x3555, 0x3eab},
        {3.14159265358979, 0x4248, 0x4049},
        {65504.0, 0x7bff, 0x4780},
        {65519.999, 0x7bff, 0x4780},
        {65520.0, 0x7c00, 0x4780},
        {1e5, 0x7c00, 0x47c3},
        {0x1p-14, 0x0400, 0x3880},
        {0x1p-24, 0x0001, 0x3380},
        {0x1p-25, 0x0000, 0x3300},
        {0x1.8p-25, 0x0001, 0x3340},
        {0x1.ff8p-15, 0x03ff, 0x3880},
        {0x1.ffcp-15, 0x0400, 0x3880},
        {2049.0, 0x6800, 0x4500},
        {2051.0, 0x6802, 0x4500},
        {1e-40, 0x0000, 0x0001},
        {0x1p-133, 0x0000, 0x0001},
        {0x1p-134, 0x0000, 0x0000},
        {3.4e38, 0x7c00, 0x7f80},
        {3.38e38, 0x7c00, 0x7f7e},
        {DBL_MAX, 0x7c00, 0x7f80},
        {-DBL_MAX, 0xfc00, 0xff80},
        {DBL_MIN, 0x0000, 0x0000},
        {-4.9406564584124654e-324, 0x8000, 0x8000},
        {HUGE_VAL, 0x7c00, 0x7f80},
        {-HUGE_VAL, 0xfc00, 0xff80},
        {1 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80}, /* through a float it would be a tie */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (half_from_double(rows[i].value) != rows[i].half ||
            bfloat_from_double(rows[i].value) != rows[i].bfloat) {
            fail_msg("%a gave %04x and %04x", rows[i].value, half_from_double(rows[i].value),
                     bfloat_from_double(rows[i].value));
        }
    }
}

static void half_from_double_nan_stays_nan(void **state) {
    uint64_t patterns[] = {0x7ff0000000000001, 0xfff0000000000001, 0x7fffffffffffffff,
                           0x7ff8000000000000};
    (void)state;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        double value;
        memcpy(&value, &patterns[i], sizeof(value));
        for (size_t f = 0; f < 2; f++) {
            uint16_t bits = formats[f].from_double(value);
            assert_true((bits & 0x7fff) > formats[f].infinity);
            assert_int_equal(bits >> 15, patterns[i] >> 63);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_every_pattern_round_trips),
        cmocka_unit_test(half_to_float_matches_definition),
        cmocka_unit_test(half_midpoint_rounds_to_even),
        cmocka_unit_test(half_from_double_known_values),
        cmocka_unit_test(half_from_double_nan_stays_nan),
    };
    return cmocka_run_group_tests_name("core/tensor/float16", tests, NULL, NULL);
}
