/* None in flight is 1, the most is 0. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void in_shares_of_the_most(void **state) {
    static const uint32_t values[] = {0, 8, 4, 2};
    static const float wanted[] = {1, 0, 0.5f, 0.75f};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

static void none_anywhere(void **state) {
    static const uint32_t values[] = {0, 0};
    static const float wanted[] = {1, 1};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

static void all_the_same(void **state) {
    static const uint32_t values[] = {3, 3};
    static const float wanted[] = {0, 0};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_shares_of_the_most),
        cmocka_unit_test(none_anywhere),
        cmocka_unit_test(all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
