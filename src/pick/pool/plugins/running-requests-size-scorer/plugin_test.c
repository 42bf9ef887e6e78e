/* The minimum of running requests scores 1, the maximum 0, others linearly between. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void scorer_fewest_running_scores_highest(void **state) {
    (void)state;
    ASSERT_LEAST_IS_BEST(&plugin_running_requests_size_scorer, n_running);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_fewest_running_scores_highest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
