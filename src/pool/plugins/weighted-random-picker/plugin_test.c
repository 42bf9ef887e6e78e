/* As often as the sums say. */
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

static void as_the_sums_say(void **state) {
    static const float sums[] = {1, 0, 2, 5};
    static const double wanted[] = {0.125, 0, 0.25, 0.625};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_weighted_random_picker, sums, n);
    assert_int_equal(n[1], 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], wanted[i]);
    }
}

static void all_alike_without_any(void **state) {
    static const float sums[] = {0, 0, 0, 0};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_weighted_random_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_sums_say),
        cmocka_unit_test(all_alike_without_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
