/* The fewest running is 1, the most is 0, and so on between. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void the_least_is_best(void **state) {
    (void)state;
    ASSERT_LEAST_IS_BEST(&plugin_running_requests_size_scorer, n_running);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_is_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
