/* Scores the free share of the cache; endpoints without a report count as the mean. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void check(const unsigned *known, const float *used, const float *wanted, uint32_t n) {
    struct plugin_fixture fixture;
    const struct plugin *plugin = &plugin_kv_cache_utilization_scorer;
    plugin_fixture_open(&fixture, plugin, n);
    for (uint32_t i = 0; i < n; i++) {
        fixture.known[i] = known[i];
        fixture.kv_cache_used[i] = used[i];
    }
    plugin->score(fixture.parameters, &fixture.candidates, 1);
    for (uint32_t i = 0; i < n; i++) {
        assert_near(fixture.score[i], wanted[i]);
    }
    plugin_fixture_close(&fixture);
}

static void scorer_free_share_is_the_score(void **state) {
    static const unsigned known[] = {LOAD_KV_CACHE, LOAD_KV_CACHE, LOAD_KV_CACHE};
    static const float used[] = {0, 0.25f, 1}, wanted[] = {1, 0.75f, 0};
    (void)state;
    check(known, used, wanted, 3);
}

static void scorer_unknown_usage_counts_as_mean(void **state) {
    static const unsigned known[] = {LOAD_KV_CACHE, 0, LOAD_KV_CACHE | LOAD_WAITING, LOAD_WAITING};
    static const float used[] = {0.2f, 0, 0.6f, 0}, wanted[] = {0.8f, 0.6f, 0.4f, 0.6f};
    (void)state;
    check(known, used, wanted, 4);
}

/* It is none of those that the mean is taken of. */
static void scorer_lower_bound_counts_as_mean_at_least(void **state) {
    enum { LEAST = LOAD_KV_CACHE | LOAD_KV_CACHE_LEAST };
    static const unsigned known[] = {LOAD_KV_CACHE, LEAST, LOAD_KV_CACHE, LEAST, 0};
    static const float used[] = {0.2f, 0, 0.6f, 0.9f, 0}, wanted[] = {0.8f, 0.6f, 0.4f, 0.1f, 0.6f};
    static const unsigned least[] = {LEAST, LEAST};
    static const float bounds[] = {0.1f, 0.9f}, scores[] = {0.9f, 0.1f};
    (void)state;
    check(known, used, wanted, 5);
    check(least, bounds, scores, 2);
}

static void scorer_all_unknown_score_one(void **state) {
    static const unsigned known[] = {0, LOAD_WAITING};
    static const float used[] = {0, 0}, wanted[] = {1, 1};
    (void)state;
    check(known, used, wanted, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_free_share_is_the_score),
        cmocka_unit_test(scorer_unknown_usage_counts_as_mean),
        cmocka_unit_test(scorer_lower_bound_counts_as_mean_at_least),
        cmocka_unit_test(scorer_all_unknown_score_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
