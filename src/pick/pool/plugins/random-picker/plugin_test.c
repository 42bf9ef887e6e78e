/* All with the same probability, whatever the scores. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = FIXTURE_PICKED_OF };

static void picker_all_candidates_are_uniform(void **state) {
    static const float sums[] = {3, 0, 1, 100};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_random_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_all_candidates_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
