/* Waits after failures in a row, and their limits. */
#include "core/base/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void backoff_wait_doubles_up_to_the_longest(void **state) {
    static const struct {
        uint64_t first, longest;
        unsigned n_failures;
        uint64_t wait;
    } rows[] = {
        {1, 30, 0, 1},
        {1, 30, 1, 1},
        {1, 30, 2, 2},
        {1, 30, 5, 16},
        {1, 30, 6, 30},
        {100, 500, 3, 400},
        {100, 500, 4, 500},
        {7, 7, 1, 7},
        {9, 7, 1, 7},
        {1, UINT64_MAX, 64, UINT64_C(1) << 63},
        {1, UINT64_MAX, 65, UINT64_MAX},
        {3, UINT64_MAX, 64, UINT64_MAX},
        {1, 5, UINT32_MAX, 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(backoff_wait(rows[i].first, rows[i].longest, rows[i].n_failures) ==
                    rows[i].wait);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff_wait_doubles_up_to_the_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
