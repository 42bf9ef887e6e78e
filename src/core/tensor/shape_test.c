/* Products at the edges of 63 bits, matching, and shapes as text. */
#include "core/tensor/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define P31 (INT64_C(1) << 31)
#define P32 (INT64_C(1) << 32)
#define P62 (INT64_C(1) << 62)

struct row {
    int64_t dims[8];
    size_t rank;
    bool ok;
    uint64_t elements;
};

static const struct row rows[] = {
    {{0}, 0, true, 1},
    {{1, 16}, 2, true, 16},
    {{0}, 1, true, 0},
    {{P31}, 1, true, P31},
    {{P31, 2}, 2, true, P32},
    {{P32, P31}, 2, false, 0}, /* 2^63 */
    {{P32, P31 - 1}, 2, true, (uint64_t)P32 *(P31 - 1)},
    {{INT64_MAX}, 1, true, INT64_MAX},
    {{INT64_MAX, 1}, 2, true, INT64_MAX},
    {{INT64_MAX, 2}, 2, false, 0},
    {{P32, P32}, 2, false, 0},   /* 2^64 wraps to 0 */
    {{P62 + 1, 4}, 2, false, 0}, /* 2^64 + 4 wraps to 4 */
    {{P62, 4, 0}, 3, true, 0},
    {{0, P62, 4}, 3, true, 0},
    {{P62, P62, P62, 0}, 4, true, 0},
    {{-1}, 1, false, 0},
    {{0, -1}, 2, false, 0},
    {{-1, 0}, 2, false, 0},
    {{-1, -1}, 2, false, 0},
    {{INT64_MIN, 2}, 2, false, 0},
    {{P62, 4, -1}, 3, false, 0},
};

static void elements(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t n = 77;
        struct shape shape = {rows[i].dims, rows[i].rank};
        assert_int_equal(shape_elements(shape, &n), rows[i].ok);
        if (rows[i].ok) {
            assert_true(n == rows[i].elements);
        }
    }
    int64_t ones[SHAPE_MAX_RANK];
    uint64_t n;
    for (size_t i = 0; i < SHAPE_MAX_RANK; i++) {
        ones[i] = i < 63 ? 2 : 1;
    }
    assert_false(shape_elements((struct shape){ones, SHAPE_MAX_RANK}, &n));
    ones[0] = 1;
    assert_true(shape_elements((struct shape){ones, SHAPE_MAX_RANK}, &n) && n == (uint64_t)P62);
}

static void shape_bytes_checks_overflow(void **state) {
    int64_t dims[] = {3, 5}, big[] = {P62 / 2}, bigger[] = {P62 / 2 + 1};
    uint64_t n = 0;
    (void)state;
    assert_true(shape_bytes((struct shape){dims, 2}, DT_FP32, &n) && n == 60);
    assert_true(shape_bytes((struct shape){dims, 2}, DT_BOOL, &n) && n == 15);
    assert_true(shape_bytes((struct shape){dims, 0}, DT_FP64, &n) && n == 8);
    assert_false(shape_bytes((struct shape){dims, 2}, DT_BYTES, &n));
    assert_true(shape_bytes((struct shape){big, 1}, DT_FP16, &n) && n == (uint64_t)P62);
    assert_false(shape_bytes((struct shape){big, 1}, DT_FP32, &n));
    assert_false(shape_bytes((struct shape){bigger, 1}, DT_FP64, &n));
}

static void shape_matches_compares_with_wildcards(void **state) {
    int64_t spec[] = {-1, 16, 0}, a[] = {4, 16, 0}, b[] = {0, 16, 0}, c[] = {4, 17, 0},
            d[] = {4, 16, 1};
    (void)state;
    struct shape want = {spec, 3};
    assert_true(shape_matches((struct shape){a, 3}, want));
    assert_true(shape_matches((struct shape){b, 3}, want));
    assert_false(shape_matches((struct shape){c, 3}, want));
    assert_false(shape_matches((struct shape){d, 3}, want));
    assert_false(shape_matches((struct shape){a, 2}, want));
    assert_true(shape_matches((struct shape){NULL, 0}, (struct shape){NULL, 0}));
    assert_true(shape_eq((struct shape){a, 2}, (struct shape){d, 2}));
    assert_false(shape_eq((struct shape){a, 3}, (struct shape){d, 3}));
    assert_false(shape_eq((struct shape){a, 2}, (struct shape){a, 3}));
    assert_true(shape_eq((struct shape){NULL, 0}, (struct shape){a, 0}));
}

static void shape_print_long_shape_is_cut(void **state) {
    int64_t dims[] = {1, -1, 16}, wide[SHAPE_MAX_RANK];
    char text[SHAPE_TEXT_BYTES];
    (void)state;
    assert_string_equal(shape_print((struct shape){dims, 3}, text), "[1,-1,16]");
    assert_string_equal(shape_print((struct shape){NULL, 0}, text), "[]");
    for (size_t digits = 0; digits < 19; digits++) {
        int64_t value = 1;
        for (size_t i = 0; i < digits; i++) {
            value *= 10;
        }
        char full[SHAPE_MAX_RANK * 21 + 3] = "[";
        for (size_t rank = 0; rank <= SHAPE_MAX_RANK; rank++) {
            size_t n = strlen(full);
            memset(text, 'x', sizeof(text));
            shape_print((struct shape){wide, rank}, text);
            full[n] = ']';
            if (strcmp(text, full) != 0) { /* cut only where it is too long */
                size_t len = strlen(text);
                assert_true(len < SHAPE_TEXT_BYTES && n > SHAPE_TEXT_BYTES - 8);
                assert_memory_equal(text, full, len - strlen(",…]"));
                assert_string_equal(text + len - strlen(",…]"), ",…]");
            }
            if (rank < SHAPE_MAX_RANK) {
                wide[rank] = -value;
                snprintf(full + n, sizeof(full) - n, "%s%lld", rank > 0 ? "," : "",
                         -(long long)value);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),
        cmocka_unit_test(shape_bytes_checks_overflow),
        cmocka_unit_test(shape_matches_compares_with_wildcards),
        cmocka_unit_test(shape_print_long_shape_is_cut),
    };
    return cmocka_run_group_tests_name("core/tensor/shape", tests, NULL, NULL);
}
