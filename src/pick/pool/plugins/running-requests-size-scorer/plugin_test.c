/* The fewest running is 1, the most is 0, and so on between. */
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
