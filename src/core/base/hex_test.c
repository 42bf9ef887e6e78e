/* Every character, as a digit or as none. */
#include "core/base/hex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void hex_value_of_every_character(void **state) {
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    (void)state;
    for (int c = -128; c < 256; c++) {
        char digits[2] = {'5', (char)c};
        const char *low = c ? strchr(lower, (char)c) : NULL,
                   *up = c ? strchr(upper, (char)c) : NULL;
        int value = low ? (int)(low - lower) : up ? (int)(up - upper) : -1;
        unsigned char byte = 0;
        assert_int_equal(hex_value((char)c), value);
        assert_int_equal(hex_decode_lower(digits, &byte, 1), low != NULL);
        assert_int_equal(byte, low ? 0x50 + value : 0);
    }
}

static void hex_decode_lower_decodes_or_rejects(void **state) {
    unsigned char bytes[4];
    (void)state;
    assert_true(hex_decode_lower("00ff7fa1", bytes, 4));
    assert_memory_equal(bytes, "\x00\xff\x7f\xa1", 4);
    assert_false(hex_decode_lower("00ff7fag", bytes, 4));
    assert_true(hex_decode_lower("", bytes, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hex_value_of_every_character),
        cmocka_unit_test(hex_decode_lower_decodes_or_rejects),
    };
    return cmocka_run_group_tests_name("core/base/hex", tests, NULL, NULL);
}
