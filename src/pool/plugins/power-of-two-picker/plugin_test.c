/* Of four the best is one of two in half of the picks, and the worst is never the better one. */
#include "pool/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/plugin_fixture.h"

enum { N = 4, PICKS = 4000 };

/* How often each of four with these sums comes first. */
static void count(const struct plugin *plugin, const float *sums, uint32_t *n_first) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, plugin, N);
    for (int i = 0; i < PICKS; i++) {
        for (uint32_t k = 0; k < N; k++) {
            fixture.candidates[k].member = k;
            fixture.candidates[k].score = sums[k];
        }
        plugin->pick(fixture.parameters, &fixture.choice, 1);
        n_first[fixture.candidates[0].member]++;
    }
    plugin_fixture_close(&fixture);
}

static void assert_share(uint32_t n, double wanted) {
    assert_true(n > (wanted - 0.03) * PICKS);
    assert_true(n < (wanted + 0.03) * PICKS);
}

static void the_better_of_two(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    static const double wanted[] = {1.0 / 6, 3.0 / 6, 2.0 / 6, 0};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_power_of_two_picker, sums, n);
    assert_int_equal(n[3], 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], wanted[i]);
    }
}

static void equal_ones_alike(void **state) {
    static const float sums[] = {1, 1, 1, 1};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_power_of_two_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_better_of_two),
        cmocka_unit_test(equal_ones_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
