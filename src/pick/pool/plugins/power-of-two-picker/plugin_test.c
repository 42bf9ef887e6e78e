/* Of four candidates the best is one of the two in half of the picks, and the worst is never
 * picked. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = FIXTURE_PICKED_OF };

static void picker_better_of_two_is_picked(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    static const double wanted[] = {1.0 / 6, 3.0 / 6, 2.0 / 6, 0};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_power_of_two_picker, sums, n);
    assert_int_equal(n[3], 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], wanted[i]);
    }
}

static void picker_equal_scores_are_uniform(void **state) {
    static const float sums[] = {1, 1, 1, 1};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_power_of_two_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_better_of_two_is_picked),
        cmocka_unit_test(picker_equal_scores_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
