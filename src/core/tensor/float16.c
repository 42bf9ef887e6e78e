/* FP16 and BF16 in integer arithmetic on the bits, so that the result is the same on every machine
 * and in every rounding mode. A double is rounded to 16 bits once. */
#include "core/tensor/float16.h"

#include <string.h>

static float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A 16-bit format: a sign, an exponent, `mantissa` bits, and the exponent's bias. */
struct format {
    unsigned mantissa;
    int bias;
};

static const struct format half_format = {10, 15};
static const struct format bfloat_format = {7, 127};

/* value / 2^shift to the nearest, ties to even; 1 <= shift <= 53. */
static uint64_t shift_rounded(uint64_t value, unsigned shift) {
    uint64_t half = UINT64_C(1) << (shift - 1);
    uint64_t rest = value & (half * 2 - 1);
    uint64_t whole = value >> shift;
    return whole + (rest > half || (rest == half && (whole & 1) != 0) ? 1 : 0);
}

static uint16_t double_to_float16(double value, struct format format) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint64_t sign = bits >> 63 << 15;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t infinity = (uint64_t)(2 * format.bias + 1) << format.mantissa;
    unsigned shift = 52 - format.mantissa;
    if (exponent == 0x7ff) {
        uint64_t quiet = UINT64_C(1) << (format.mantissa - 1);
        return (uint16_t)(sign | infinity | (fraction != 0 ? quiet | fraction >> shift : 0));
    }
    int target = exponent - 1023 + format.bias; /* the exponent in the 16-bit format */
    if (target > 2 * format.bias) {
        return (uint16_t)(sign | infinity);
    }
    uint64_t significand = fraction | UINT64_C(1) << 52;
    if (target <=
        0) { /* subnormal in the 16-bit format, or below half of its smallest (all subnormal
                doubles are) */
        int deeper = (int)shift + 1 - target;
        return (uint16_t)(sign | (deeper > 53 ? 0 : shift_rounded(significand, (unsigned)deeper)));
    }
    /* The significand's top bit adds the last 1 to the exponent; a carry of the rounding adds
     * another, up to infinity. */
    uint64_t high = (uint64_t)(target - 1) << format.mantissa;
    return (uint16_t)(sign | (high + shift_rounded(significand, shift)));
}

float half_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0) { /* zero or subnormal: exact, as a float's exponent has a far wider range */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
    return float_from_bits(sign | wide << 23 | mantissa << 13);
}

uint16_t half_from_double(double value) {
    return double_to_float16(value, half_format);
}

float bfloat_to_float(uint16_t bits) {
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t bfloat_from_double(double value) {
    return double_to_float16(value, bfloat_format);
}
