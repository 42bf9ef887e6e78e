/* Picks the highest score, equal ones with the same probability, then the next best. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N = FIXTURE_PICKED_OF };

static void picker_highest_score_is_picked(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_max_score_picker, sums, n);
    assert_int_equal(n[1], FIXTURE_PICKS);
}

static void picker_equal_scores_are_uniform(void **state) {
    static const float sums[] = {3, 1, 3, 3};
    uint32_t n[N] = {0};
    (void)state;
    count_picks(&plugin_max_score_picker, sums, n);
    assert_share(n[0], 1.0 / 3);
    assert_share(n[2], 1.0 / 3);
    assert_share(n[3], 1.0 / 3);
}

/* Of the highest scores; a lower one with none in flight is not picked. */
static void picker_equal_scores_take_fewest_requests(void **state) {
    static const float sums[] = {3, 1, 3, 3}, in_flight[] = {5, 0, 4, 4};
    struct plugin_fixture fixture;
    uint32_t n[N] = {0};
    (void)state;
    plugin_fixture_open(&fixture, &plugin_max_score_picker, N);
    for (uint32_t k = 0; k < N; k++) {
        fixture.score[k] = sums[k];
        fixture.in_flight[k] = in_flight[k];
    }
    for (int i = 0; i < FIXTURE_PICKS; i++) {
        n[plugin_max_score_picker.pick(NULL, &fixture.candidates, 0)]++;
    }
    assert_int_equal(n[0] + n[1], 0);
    assert_share(n[2], 0.5);
    assert_share(n[3], 0.5);
    plugin_fixture_close(&fixture);
}

static void picker_repeated_picks_follow_scores(void **state) {
    static const float sums[] = {1, 3, 2, 0};
    static const uint32_t wanted[] = {1, 2, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_max_score_picker, N);
    for (uint32_t k = 0; k < N; k++) {
        fixture.score[k] = sums[k];
    }
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(plugin_fixture_pick(&fixture, &plugin_max_score_picker, k), wanted[k]);
    }
    plugin_fixture_close(&fixture);
}

/* After many others, so that both vectors and the rest of the array are searched. */
static void picker_highest_score_is_found_at_any_index(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    for (uint32_t n = 1; n <= FIXTURE_MAX_CANDIDATES; n++) {
        plugin_fixture_open(&fixture, &plugin_max_score_picker, n);
        for (uint32_t best = 0; best < n; best++) {
            for (uint32_t k = 0; k < n; k++) {
                fixture.score[k] = k == best ? 0.5f : 0.25f;
            }
            assert_int_equal(plugin_max_score_picker.pick(NULL, &fixture.candidates, 0), best);
        }
        plugin_fixture_close(&fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_highest_score_is_picked),
        cmocka_unit_test(picker_equal_scores_are_uniform),
        cmocka_unit_test(picker_equal_scores_take_fewest_requests),
        cmocka_unit_test(picker_repeated_picks_follow_scores),
        cmocka_unit_test(picker_highest_score_is_found_at_any_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
