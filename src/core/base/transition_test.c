/* Tables of transitions. */
#include "core/base/transition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void transition_is_legal_only_if_in_table(void **state) {
    enum { FIRST, MIDDLE, LAST = 31 };
    static const uint32_t NEXT[LAST + 1] = {
        [FIRST] = STATE_SET(MIDDLE) | STATE_SET(LAST),
        [MIDDLE] = STATE_SET(MIDDLE),
    };
    (void)state;
    for (unsigned from = FIRST; from <= LAST; from++) {
        for (unsigned to = FIRST; to <= LAST; to++) {
            bool legal =
                (from == FIRST && (to == MIDDLE || to == LAST)) || (from == MIDDLE && to == MIDDLE);
            assert_int_equal(transition_is_legal(NEXT, from, to), legal);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transition_is_legal_only_if_in_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
