/* The best is picked; of equal ones each as often; behind it the next best. */
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

static void the_best(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_max_score_picker, sums, n);
    assert_int_equal(n[1], PICKS);
}

static void equal_ones_alike(void **state) {
    static const float sums[] = {3, 1, 3, 3};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_max_score_picker, sums, n);
    assert_share(n[0], 1.0 / 3);
    assert_share(n[2], 1.0 / 3);
    assert_share(n[3], 1.0 / 3);
}

static void the_next_best_behind(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    static const uint32_t wanted[] = {1, 2, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_max_score_picker, N);
    for (uint32_t k = 0; k < N; k++) {
        fixture.candidates[k].score = sums[k];
    }
    plugin_max_score_picker.pick(NULL, &fixture.choice, 3);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(fixture.candidates[k].member, wanted[k]);
    }
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best),
        cmocka_unit_test(equal_ones_alike),
        cmocka_unit_test(the_next_best_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
