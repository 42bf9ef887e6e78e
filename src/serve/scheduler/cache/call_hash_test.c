/* SipHash-2-4 with 128 bits against its authors' vectors, with every division of the bytes into
 * pieces; the last, longer vector was checked with two implementations. */
#include "serve/scheduler/cache/call_hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1000 };

/* The bytes 0 to 15. */
static const unsigned char KEY[CALL_HASH_KEY_BYTES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                       8, 9, 10, 11, 12, 13, 14, 15};

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

static struct keyed_hash of_pieces(const struct call_hash *keyed, size_t n, size_t piece) {
    struct call_hash hash;
    struct keyed_hash value;
    call_hash_begin(&hash, keyed);
    for (size_t at = 0; at < n; at += piece) {
        call_hash_add(&hash, bytes + at, n - at < piece ? n - at : piece);
    }
    call_hash_add(&hash, NULL, 0);
    assert_true(call_hash_final(&hash, &value));
    return value;
}

static struct call_hash with_key(const unsigned char *key) {
    struct call_hash keyed;
    assert_true(call_hash_init(&keyed, key));
    return keyed;
}

static void hash_reference_vectors_match_at_every_split(void **state) {
    struct call_hash keyed = with_key(KEY);
    (void)state;
    for (size_t i = 0; i < sizeof(VECTORS) / sizeof(VECTORS[0]); i++) {
        const struct vector *vector = &VECTORS[i];
        for (size_t piece = 1; piece < 20; piece++) {
            struct keyed_hash value = of_pieces(&keyed, vector->n_bytes, piece);
            assert_memory_equal(&value.low, vector->hash, 8);
            assert_memory_equal(&value.high, vector->hash + 8, 8);
        }
    }
    call_hash_fini(&keyed);
}

static void hash_u64_equals_its_bytes(void **state) {
    struct call_hash keyed = with_key(KEY);
    struct call_hash hash;
    struct keyed_hash hashed;
    uint64_t value;
    (void)state;
    memcpy(&value, bytes + 1, sizeof(value));
    call_hash_begin(&hash, &keyed);
    call_hash_add(&hash, bytes, 1);
    call_hash_add_u64(&hash, value);
    assert_true(call_hash_final(&hash, &hashed));
    assert_true(keyed_hash_eq(hashed, of_pieces(&keyed, 9, 9)));
    call_hash_fini(&keyed);
}

static void hash_different_keys_differ(void **state) {
    struct call_hash a = with_key(KEY), b = with_key(bytes + 1);
    (void)state;
    assert_false(keyed_hash_eq(of_pieces(&a, 9, 9), of_pieces(&b, 9, 9)));
    assert_true(keyed_hash_eq(of_pieces(&a, 9, 9), of_pieces(&a, 9, 4)));
    call_hash_fini(&a);
    call_hash_fini(&b);
}

/* As after a failed allocation. */
static void hash_without_mac_context_fails(void **state) {
    struct call_hash hash = {.mac = NULL, .failed = true};
    struct keyed_hash value;
    (void)state;
    call_hash_add(&hash, bytes, 9);
    call_hash_add_u64(&hash, 1);
    assert_false(call_hash_final(&hash, &value));
}

int main(void) {
    for (size_t i = 0; i < MOST; i++) {
        bytes[i] = (unsigned char)(i % 251);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_reference_vectors_match_at_every_split),
        cmocka_unit_test(hash_u64_equals_its_bytes),
        cmocka_unit_test(hash_different_keys_differ),
        cmocka_unit_test(hash_without_mac_context_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
