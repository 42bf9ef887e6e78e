/* The oldest cold request scores highest; endpoints without one score higher still. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_longest_unused_scores_highest(void **state) {
    static const uint32_t turns[] = {7, 1000, 0, 9};
    static const float wanted[] = {2 / 3.0f, 0, 1, 1 / 3.0f}, warm[] = {0.5f, 0.5f, 0.5f, 0.5f};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_no_hit_lru_scorer, 4);
    for (uint32_t i = 0; i < 4; i++) {
        fixture.last_cold_request[i] = turns[i];
    }
    assert_scores(&fixture, &plugin_no_hit_lru_scorer, wanted);
    fixture_hit(&fixture, 1, 1, 10);
    assert_scores(&fixture, &plugin_no_hit_lru_scorer, warm);
    plugin_fixture_close(&fixture);
}

static void scorer_without_history_scores_one(void **state) {
    static const float wanted[] = {1, 1};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_no_hit_lru_scorer, 2);
    assert_scores(&fixture, &plugin_no_hit_lru_scorer, wanted);
    plugin_fixture_close(&fixture);
}

/* The order counts, not the distance: endpoints that were last used in reverse order. */
static void assert_ranks_by_order(uint32_t n) {
    float wanted[FIXTURE_MAX_CANDIDATES];
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, &plugin_no_hit_lru_scorer, n);
    for (uint32_t i = 0; i < n; i++) {
        fixture.last_cold_request[i] = 100000000 - i * i * 1000;
        wanted[i] = (float)i / (float)(n - 1);
    }
    assert_scores(&fixture, &plugin_no_hit_lru_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_ranks_endpoints_by_order(void **state) {
    (void)state;
    assert_ranks_by_order(2);
    assert_ranks_by_order(16);
    assert_ranks_by_order(FIXTURE_MAX_CANDIDATES);
}

/* With a memory of two endpoints the others count as unused. */
static void scorer_remembers_lru_size_endpoints(void **state) {
    static const uint32_t turns[] = {7, 10, 8, 9};
    static const float wanted[] = {1, 0, 1, 1 / 3.0f};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_no_hit_lru_scorer, 4);
    fixture_tell(&fixture, &plugin_no_hit_lru_scorer, "{lruSize: 2, prefixPluginName: x}");
    for (uint32_t i = 0; i < 4; i++) {
        fixture.last_cold_request[i] = turns[i];
    }
    assert_scores(&fixture, &plugin_no_hit_lru_scorer, wanted);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_longest_unused_scores_highest),
        cmocka_unit_test(scorer_without_history_scores_one),
        cmocka_unit_test(scorer_ranks_endpoints_by_order),
        cmocka_unit_test(scorer_remembers_lru_size_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
