/* One after the other, without those that are not candidates. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void pick(struct plugin_fixture *fixture, const uint32_t *members, uint32_t n,
                 uint32_t wanted, uint32_t behind) {
    fixture->candidates.n = n;
    for (uint32_t i = 0; i < n; i++) {
        fixture->member[i] = members[i];
    }
    assert_int_equal(plugin_fixture_pick(fixture, &plugin_round_robin_picker, 0), wanted);
    if (n > 1) {
        assert_int_equal(plugin_fixture_pick(fixture, &plugin_round_robin_picker, 1), behind);
    }
}

static void picker_candidates_rotate(void **state) {
    static const uint32_t all[] = {2, 0, 3, 1}, some[] = {3, 0}, one[] = {2};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_round_robin_picker, 4);
    pick(&fixture, all, 4, 0, 1);
    pick(&fixture, all, 4, 1, 2);
    pick(&fixture, all, 4, 2, 3);
    pick(&fixture, all, 4, 3, 0);
    pick(&fixture, all, 4, 0, 1);
    pick(&fixture, some, 2, 3, 0);
    pick(&fixture, some, 2, 0, 3);
    pick(&fixture, one, 1, 2, 2);
    pick(&fixture, all, 4, 3, 0);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_candidates_rotate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
