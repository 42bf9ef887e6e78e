/* Each as often, whatever the sums. */
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

static void each_alike(void **state) {
    static const float sums[] = {3, 0, 1, 100};
    uint32_t n[N] = {0};
    (void)state;
    count(&plugin_random_picker, sums, n);
    for (uint32_t i = 0; i < N; i++) {
        assert_share(n[i], 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
