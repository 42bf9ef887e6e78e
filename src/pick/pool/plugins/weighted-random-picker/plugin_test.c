/* Probabilities are proportional to the scores. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = FIXTURE_PICKED_OF };

static void picker_picks_in_proportion_to_scores(void **state) {
    static const float sums[] = {1, 0, 2, 5};
    static const double wanted[] = {0.125, 0, 0.25, 0.625};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_weighted_random_picker, sums, n);
    assert_int_equal(n[1], 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], wanted[i]);
    }
}

static void picker_zero_scores_are_uniform(void **state) {
    static const float sums[] = {0, 0, 0, 0};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_weighted_random_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_picks_in_proportion_to_scores),
        cmocka_unit_test(picker_zero_scores_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
