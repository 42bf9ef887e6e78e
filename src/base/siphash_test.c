/* What OpenSSL's `openssl mac -macopt size:16 SIPHASH` says of the same bytes and key; however the
 * bytes are cut into pieces. */
#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1000 };

/* The bytes 0 to f. */
static const struct siphash_key KEY = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

static const struct vector {
    size_t n_bytes; /* byte i is i % 251 */
    unsigned char hash[16];
} VECTORS[] = {
    {0,
     {0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6, 0x72, 0x14, 0xC7, 0x55, 0x02,
      0x93}},
    {1,
     {0xDA, 0x87, 0xC1, 0xD8, 0x6B, 0x99, 0xAF, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9B, 0x22, 0xFC,
      0x45}},
    {7,
     {0xA1, 0xF1, 0xEB, 0xBE, 0xD8, 0xDB, 0xC1, 0x53, 0xC0, 0xB8, 0x4A, 0xA6, 0x1F, 0xF0, 0x82,
      0x39}},
    {8,
     {0x3B, 0x62, 0xA9, 0xBA, 0x62, 0x58, 0xF5, 0x61, 0x0F, 0x83, 0xE2, 0x64, 0xF3, 0x14, 0x97,
      0xB4}},
    {9,
     {0x26, 0x44, 0x99, 0x06, 0x0A, 0xD9, 0xBA, 0xAB, 0xC4, 0x7F, 0x8B, 0x02, 0xBB, 0x6D, 0x71,
      0xED}},
    {15,
     {0x54, 0x93, 0xE9, 0x99, 0x33, 0xB0, 0xA8, 0x11, 0x7E, 0x08, 0xEC, 0x0F, 0x97, 0xCF, 0xC3,
      0xD9}},
    {63,
     {0x51, 0x50, 0xD1, 0x77, 0x2F, 0x50, 0x83, 0x4A, 0x50, 0x3E, 0x06, 0x9A, 0x97, 0x3F, 0xBD,
      0x7C}},
    {64,
     {0x1E, 0xAF, 0x07, 0x7D, 0xC0, 0xD4, 0xCD, 0x3F, 0x8C, 0xAD, 0x4D, 0x38, 0x36, 0x58, 0xA7,
      0x4B}},
    {1000,
     {0x79, 0xFE, 0x0B, 0x0C, 0x91, 0xF0, 0x3F, 0x2E, 0x6E, 0x11, 0x31, 0xDD, 0x19, 0x43, 0x81,
      0xF2}},
};

static unsigned char bytes[MOST];

static struct siphash_value of_pieces(const struct siphash_key *key, size_t n, size_t piece) {
    struct siphash hash;
    siphash_begin(&hash, key);
    for (size_t at = 0; at < n; at += piece) {
        siphash_add(&hash, bytes + at, n - at < piece ? n - at : piece);
    }
    siphash_add(&hash, NULL, 0);
    return siphash_end(&hash);
}

static void as_another_says(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(VECTORS) / sizeof(VECTORS[0]); i++) {
        const struct vector *vector = &VECTORS[i];
        for (size_t piece = 1; piece < 20; piece++) {
            struct siphash_value value = of_pieces(&KEY, vector->n_bytes, piece);
            assert_memory_equal(&value.low, vector->hash, 8);
            assert_memory_equal(&value.high, vector->hash + 8, 8);
        }
    }
}

static void numbers(void **state) {
    struct siphash hash;
    uint64_t value;
    (void)state;
    memcpy(&value, bytes + 1, sizeof(value));
    siphash_begin(&hash, &KEY);
    siphash_add(&hash, bytes, 1);
    siphash_add_u64(&hash, value);
    assert_true(siphash_equal(siphash_end(&hash), of_pieces(&KEY, 9, 9)));
}

static void another_key_another_hash(void **state) {
    struct siphash_key a, b;
    (void)state;
    siphash_key_init(&a);
    siphash_key_init(&b);
    assert_false(siphash_equal(of_pieces(&a, 9, 9), of_pieces(&b, 9, 9)));
    assert_true(siphash_equal(of_pieces(&a, 9, 9), of_pieces(&a, 9, 4)));
}

int main(void) {
    for (size_t i = 0; i < MOST; i++) {
        bytes[i] = (unsigned char)(i % 251);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_another_says),
        cmocka_unit_test(numbers),
        cmocka_unit_test(another_key_another_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
