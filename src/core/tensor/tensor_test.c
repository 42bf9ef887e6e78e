/* Finding by name, names of any length and content in a message, and copying pieces. */
#include "core/tensor/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/utf8.h"

static void tensor_spec_find_compares_whole_name(void **state) {
    const struct tensor_spec specs[] = {
        {.name = STR("a")}, {.name = STR("b\0c")}, {.name = STR("")}};
    (void)state;
    assert_int_equal(tensor_spec_find(specs, 3, STR("a")), 0);
    assert_int_equal(tensor_spec_find(specs, 3, STR("b\0c")), 1);
    assert_int_equal(tensor_spec_find(specs, 3, str_make(NULL, 0)), 2);
    assert_true(tensor_spec_find(specs, 3, STR("b")) == SIZE_MAX);
    assert_true(tensor_spec_find(specs, 3, STR("A")) == SIZE_MAX);
    assert_true(tensor_spec_find(NULL, 0, STR("a")) == SIZE_MAX);
}

static void tensor_name_print_quotes_name(void **state) {
    char out[TENSOR_NAME_TEXT_BYTES];
    (void)state;
    assert_string_equal(tensor_name_print(STR("input_0"), out), "\"input_0\"");
    assert_string_equal(tensor_name_print(str_make(NULL, 0), out), "\"\"");
    assert_string_equal(tensor_name_print(STR("a\0b"), out), "\"a?b\"");
}

static void tensor_name_print_long_name_is_cut_at_character(void **state) {
    static const char *const characters[] = {"x", "é", "€", "😀"};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        for (size_t n = 0; n < 400; n += c + 1) {
            char name[400], out[TENSOR_NAME_TEXT_BYTES];
            for (size_t i = 0; i < n; i++) {
                name[i] = characters[c][i % (c + 1)];
            }
            memset(out, 'z', sizeof(out));
            tensor_name_print(str_make(name, n), out);
            size_t len = strlen(out);
            assert_true(len < TENSOR_NAME_TEXT_BYTES);
            assert_true(utf8_is_valid(out, len));
            assert_int_equal(out[len - 1], '"');
            bool cut = strstr(out, "…\"") != NULL;
            assert_int_equal(cut, n > TENSOR_NAME_TEXT_BYTES - 6);
            assert_true(cut ? len > TENSOR_NAME_TEXT_BYTES - 6 : len == n + 2);
            assert_memory_equal(out + 1, name, cut ? len - 5 : n);
        }
    }
    char out[TENSOR_NAME_TEXT_BYTES], noise[65536];
    memset(noise, 0x80, sizeof(noise)); /* not UTF-8 */
    assert_true(strlen(tensor_name_print(str_make(noise, sizeof(noise)), out)) < sizeof(out));
}

static void pieces_copy_concatenates(void **state) {
    static const struct piece pieces[] = {{NULL, 0}, {"ab", 2}, {"", 0}, {"c", 1}, {"def", 3}};
    char out[7] = "......";
    (void)state;
    assert_int_equal(pieces_copy(pieces, 5, out, 6), 6);
    assert_string_equal(out, "abcdef");
    assert_int_equal(pieces_copy(pieces + 3, 1, out, 6), 1);
    assert_string_equal(out, "cbcdef");
    assert_int_equal(pieces_copy(NULL, 0, NULL, 0), 0);
    assert_int_equal(pieces_copy(pieces, 1, NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_spec_find_compares_whole_name),
        cmocka_unit_test(tensor_name_print_quotes_name),
        cmocka_unit_test(tensor_name_print_long_name_is_cut_at_character),
        cmocka_unit_test(pieces_copy_concatenates),
    };
    return cmocka_run_group_tests_name("core/tensor/tensor", tests, NULL, NULL);
}
