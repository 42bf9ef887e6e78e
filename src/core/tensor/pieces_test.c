/* All bytes in their order, those of empty pieces included. */
#include "core/tensor/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
        cmocka_unit_test(pieces_copy_concatenates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
