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
        cmocka_unit_test(pieces_copy_concatenates),
    };
    return cmocka_run_group_tests_name("core/tensor/tensor", tests, NULL, NULL);
}
