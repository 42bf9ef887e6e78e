/* The framing of BYTES: at every prefix, and with every kind of wrong length. */
#include "core/tensor/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* "ab", "", "c\0d" */
static const char three[] = "\x02\0\0\0ab\0\0\0\0\x03\0\0\0c\0d";
enum { THREE_BYTES = sizeof(three) - 1 };

static void bytes_next_walks_elements(void **state) {
    struct str rest = str_make(three, THREE_BYTES), element;
    (void)state;
    assert_true(bytes_next(&rest, &element) && str_eq(element, STR("ab")));
    assert_true(bytes_next(&rest, &element) && element.len == 0);
    assert_true(bytes_next(&rest, &element) && str_eq(element, STR("c\0d")));
    assert_false(bytes_next(&rest, &element));
    assert_int_equal(rest.len, 0);
    rest = str_make(NULL, 0);
    assert_false(bytes_next(&rest, &element));
}

static void bytes_check_every_prefix_is_judged(void **state) {
    static const size_t ends[] = {0, 6, 10, THREE_BYTES};
    (void)state;
    for (size_t n = 0; n <= THREE_BYTES; n++) {
        char *data = malloc(n > 0 ? n : 1); /* of exactly that size, so that the sanitizer sees a
                                               read past it */
        struct error err;
        assert_non_null(data);
        memcpy(data, three, n);
        for (uint64_t expected = 0; expected <= 4; expected++) {
            enum status want = expected < 4 && ends[expected] == n ? ST_OK : ST_BAD_DATA;
            assert_int_equal(bytes_check(str_make(data, n), expected, STR("t"), &err), want);
        }
        free(data);
    }
}

static void bytes_check_error_names_element(void **state) {
    static const struct {
        struct str data;
        uint64_t expected;
        const char *message;
    } rows[] = {
        {{three, THREE_BYTES},
         2,
         "tensor \"t\": expected 2 BYTES elements as its shape says, got 3"},
        {{three, 10},
         UINT64_C(1) << 62,
         "tensor \"t\": expected 4611686018427387904 BYTES elements as its shape says, got 2"},
        {{three, 12},
         3,
         "tensor \"t\": element 2 at byte 10: its length takes 4 bytes, 2 are left"},
        {{three, 16}, 3, "tensor \"t\": element 2 at byte 10 has a length of 3 bytes, 2 are left"},
        {{"\xff\xff\xff\xff", 4},
         1,
         "tensor \"t\": element 0 at byte 0 has a length of 4294967295 bytes, 0 are left"},
        {{"\0\0\0\0\xff\xff\xff\x7fxyz", 11},
         2,
         "tensor \"t\": element 1 at byte 4 has a length of 2147483647 bytes, 3 are left"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        assert_int_equal(bytes_check(rows[i].data, rows[i].expected, STR("t"), &err), ST_BAD_DATA);
        assert_string_equal(err.text, rows[i].message);
    }
    assert_int_equal(bytes_check(str_make(NULL, 0), 0, STR("t"), NULL), ST_OK);
}

static void bytes_encode_length_is_little_endian(void **state) {
    unsigned char out[4];
    (void)state;
    bytes_encode_length(out, 0x04030201);
    assert_memory_equal(out, "\x01\x02\x03\x04", 4);
    bytes_encode_length(out, UINT32_MAX);
    assert_memory_equal(out, "\xff\xff\xff\xff", 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_next_walks_elements),
        cmocka_unit_test(bytes_check_every_prefix_is_judged),
        cmocka_unit_test(bytes_check_error_names_element),
        cmocka_unit_test(bytes_encode_length_is_little_endian),
    };
    return cmocka_run_group_tests_name("core/tensor/bytes", tests, NULL, NULL);
}
