/* Names in messages: quotes, cuts. */
#include "core/base/quote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/utf8.h"

static void quote_name_adds_quotes(void **state) {
    char out[QUOTED_NAME_BYTES];
    (void)state;
    assert_string_equal(quote_name(STR("input_0"), out), "\"input_0\"");
    assert_string_equal(quote_name(str_make(NULL, 0), out), "\"\"");
    assert_string_equal(quote_name(STR("a\0b"), out), "\"a?b\"");
    assert_string_equal(quote_name_single(STR("input_0"), out), "'input_0'");
}

static void quote_name_long_name_is_cut_at_character(void **state) {
    static const char *const characters[] = {"x", "é", "€", "😀"};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        for (size_t n = 0; n < 400; n += c + 1) {
            char name[400], out[QUOTED_NAME_BYTES];
            for (size_t i = 0; i < n; i++) {
                name[i] = characters[c][i % (c + 1)];
            }
            memset(out, 'z', sizeof(out));
            quote_name(str_make(name, n), out);
            size_t len = strlen(out);
            assert_true(len < QUOTED_NAME_BYTES);
            assert_true(utf8_is_valid(out, len));
            assert_int_equal(out[len - 1], '"');
            bool cut = strstr(out, "…\"") != NULL;
            assert_int_equal(cut, n > QUOTED_NAME_BYTES - 6);
            assert_true(cut ? len > QUOTED_NAME_BYTES - 6 : len == n + 2);
            assert_memory_equal(out + 1, name, cut ? len - 5 : n);
        }
    }
    char out[QUOTED_NAME_BYTES], noise[65536];
    memset(noise, 0x80, sizeof(noise)); /* not UTF-8 */
    assert_true(strlen(quote_name(str_make(noise, sizeof(noise)), out)) < sizeof(out));
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(quote_name_adds_quotes),
        cmocka_unit_test(quote_name_long_name_is_cut_at_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
