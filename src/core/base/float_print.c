/* Schubfach: R. Giulietti, "The Schubfach way to render doubles" (2020), for FP32. A number c x 2^q
 * and the bounds of the values that round to it are scaled by a power of ten, so that the interval
 * between the bounds contains one or two whole numbers; one of them is printed. It needs one table
 * of 64-bit powers of ten. */
#include "core/base/num.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { POWER_MIN = -31, POWER_MAX = 45 };

/* 10^k x 2^(63 - floor(log2(10^k))), rounded up, for k from POWER_MIN to POWER_MAX. */
static const uint64_t powers[POWER_MAX - POWER_MIN + 1] = {
    0x81ceb32c4b43fcf5u, 0xa2425ff75e14fc32u, 0xcad2f7f5359a3b3fu, 0xfd87b5f28300ca0eu,
    0x9e74d1b791e07e49u, 0xc612062576589ddbu, 0xf79687aed3eec552u, 0x9abe14cd44753b53u,
    0xc16d9a0095928a28u, 0xf1c90080baf72cb2u, 0x971da05074da7befu, 0xbce5086492111aebu,
    0xec1e4a7db69561a6u, 0x9392ee8e921d5d08u, 0xb877aa3236a4b44au, 0xe69594bec44de15cu,
    0x901d7cf73ab0acdau, 0xb424dc35095cd810u, 0xe12e13424bb40e14u, 0x8cbccc096f5088ccu,
    0xafebff0bcb24aaffu, 0xdbe6fecebdedd5bfu, 0x89705f4136b4a598u, 0xabcc77118461cefdu,
    0xd6bf94d5e57a42bdu, 0x8637bd05af6c69b6u, 0xa7c5ac471b478424u, 0xd1b71758e219652cu,
    0x83126e978d4fdf3cu, 0xa3d70a3d70a3d70bu, 0xcccccccccccccccdu, 0x8000000000000000u,
    0xa000000000000000u, 0xc800000000000000u, 0xfa00000000000000u, 0x9c40000000000000u,
    0xc350000000000000u, 0xf424000000000000u, 0x9896800000000000u, 0xbebc200000000000u,
    0xee6b280000000000u, 0x9502f90000000000u, 0xba43b74000000000u, 0xe8d4a51000000000u,
    0x9184e72a00000000u, 0xb5e620f480000000u, 0xe35fa931a0000000u, 0x8e1bc9bf04000000u,
    0xb1a2bc2ec5000000u, 0xde0b6b3a76400000u, 0x8ac7230489e80000u, 0xad78ebc5ac620000u,
    0xd8d726b7177a8000u, 0x878678326eac9000u, 0xa968163f0a57b400u, 0xd3c21bcecceda100u,
    0x84595161401484a0u, 0xa56fa5b99019a5c8u, 0xcecb8f27f4200f3au, 0x813f3978f8940985u,
    0xa18f07d736b90be6u, 0xc9f2c9cd04674edfu, 0xfc6f7c4045812297u, 0x9dc5ada82b70b59eu,
    0xc5371912364ce306u, 0xf684df56c3e01bc7u, 0x9a130b963a6c115du, 0xc097ce7bc90715b4u,
    0xf0bdc21abb48db21u, 0x96769950b50d88f5u, 0xbc143fa4e250eb32u, 0xeb194f8e1ae525feu,
    0x92efd1b8d0cf37bfu, 0xb7abc627050305aeu, 0xe596b7b0c643c71au, 0x8f7e32ce7bea5c70u,
    0xb35dbf821ae4f38cu,
};

/* digits x 10^exponent */
struct decimal {
    uint32_t digits;
    int exponent;
};

/* The only finite number whose shortest text, 7.038531e-26, becomes its neighbour in a reader that
 * parses a double first: the nearest double is half way between the two. With one more digit it is
 * right for all readers. */
static const uint32_t twice_rounded = 0x15ae43fd;
static const struct decimal twice_rounded_decimal = {70385307, -33};

/* floor(log10(2^e)), and of 3/4 x 2^e */
static int log10_of_power2(int e) {
    return (e * 1262611) >> 22;
}
static int log10_of_power2_below(int e) {
    return (e * 1262611 - 524031) >> 22;
}
/* floor(log2(10^e)) */
static int log2_of_power10(int e) {
    return (e * 1741647) >> 19;
}

/* The product's bits from 64 up; the lowest of them is also set when any bit below is. */
static uint32_t scale(uint64_t power, uint32_t value) {
    uint64_t low = (power & UINT32_MAX) * value >> 32;
    uint64_t product = (power >> 32) * value + low; /* without its lowest 32 bits */
    return (uint32_t)(product >> 32) | ((uint32_t)product > 1);
}

/* The shortest decimal that rounds to the finite number with these bits (not 0), the closest among
 * equals. */
static struct decimal shortest(uint32_t fraction, uint32_t biased) {
    bool normal = biased != 0;
    uint32_t c = normal ? fraction | 1u << 23 : fraction;
    int q = normal ? (int)biased - 150 : -149;
    bool even = c % 2 == 0;                   /* then the bounds themselves round to the number */
    bool below = fraction == 0 && biased > 1; /* the lower neighbour is half as far */
    int k = below ? log10_of_power2_below(q) : log10_of_power2(q);
    int h = q + log2_of_power10(-k) + 1;
    uint64_t power = powers[-k - POWER_MIN];
    /* Four times the number and its bounds, in units of 10^k. */
    uint32_t lower = scale(power, (4 * c - 2 + below) << h) + !even;
    uint32_t exact = scale(power, (4 * c) << h);
    uint32_t upper = scale(power, (4 * c + 2) << h) - !even;
    uint32_t s = exact / 4;
    if (s >= 10) { /* one digit less, if such a number is inside the bounds */
        uint32_t tens = s / 10;
        bool down = lower <= 40 * tens, up = 40 * tens + 40 <= upper;
        if (down != up) {
            return (struct decimal){tens + up, k + 1};
        }
    }
    bool down = lower <= 4 * s, up = 4 * s + 4 <= upper;
    if (down == up) { /* both or none: the closer, of two equally close the even one */
        up = exact > 4 * s + 2 || (exact == 4 * s + 2 && s % 2 != 0);
    }
    return (struct decimal){s + up, k};
}

/* ---- the text -------------------------------------------------------------------------------- */

static unsigned add_text(char *out, const char *text, unsigned n) {
    memcpy(out, text, n);
    return n;
}

/* d.ddde±x */
static unsigned print_exponent(char *out, const char *digits, unsigned n, int exponent) {
    unsigned len = 0;
    out[len++] = digits[0];
    if (n > 1) {
        out[len++] = '.';
        len += add_text(out + len, digits + 1, n - 1);
    }
    out[len++] = 'e';
    return len + num_print_i64(out + len, exponent);
}

/* The digits with the point after the first `point` of them; `point` may be negative or above
 * `n`. */
static unsigned print_point(char *out, const char *digits, unsigned n, int point) {
    static const char zeros[] = "0000000000000000";
    if (point <= 0) {
        unsigned len = add_text(out, "0.", 2);
        len += add_text(out + len, zeros, (unsigned)-point);
        return len + add_text(out + len, digits, n);
    }
    unsigned whole = (unsigned)point;
    if (whole < n) {
        unsigned len = add_text(out, digits, whole);
        out[len++] = '.';
        return len + add_text(out + len, digits + whole, n - whole);
    }
    unsigned len = add_text(out, digits, n);
    len += add_text(out + len, zeros, whole - n);
    return len + add_text(out + len, ".0", 2);
}

/* With a point from 0.0001 up to 16 digits before it, else with an exponent. */
static unsigned print_decimal(char *out, struct decimal decimal) {
    while (decimal.digits % 10 == 0) {
        decimal.digits /= 10;
        decimal.exponent++;
    }
    char digits[20];
    unsigned n = num_print_u64(digits, decimal.digits);
    int point = (int)n + decimal.exponent;
    return point > -4 && point <= 16 ? print_point(out, digits, n, point)
                                     : print_exponent(out, digits, n, point - 1);
}

unsigned float_print(char *out, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t fraction = bits & ((1u << 23) - 1);
    uint32_t biased = bits >> 23 & 0xff;
    if (biased == 0xff && fraction != 0) {
        return add_text(out, "NaN", 3);
    }
    unsigned len = 0;
    if (bits >> 31 != 0) {
        out[len++] = '-';
    }
    if (biased == 0xff) {
        return len + add_text(out + len, "Infinity", 8);
    }
    if (biased == 0 && fraction == 0) {
        return len + add_text(out + len, "0.0", 3);
    }
    struct decimal decimal = shortest(fraction, biased);
    if ((bits & INT32_MAX) == twice_rounded) {
        decimal = twice_rounded_decimal;
    }
    return len + print_decimal(out + len, decimal);
}
