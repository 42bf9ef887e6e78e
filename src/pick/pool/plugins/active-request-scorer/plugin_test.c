/* 0 requests in flight score 1, the maximum 0. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_in_flight_scales_to_maximum(void **state) {
    static const uint32_t values[] = {0, 8, 4, 2};
    static const float wanted[] = {1, 0, 0.5f, 0.75f};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

static void scorer_no_requests_scores_one(void **state) {
    static const uint32_t values[] = {0, 0};
    static const float wanted[] = {1, 1};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

static void scorer_equal_requests_score_zero(void **state) {
    static const uint32_t values[] = {3, 3};
    static const float wanted[] = {0, 0};
    (void)state;
    ASSERT_SCORES(&plugin_active_request_scorer, in_flight, values, wanted);
}

/* Up to the threshold 1; beyond it at most maxBusyScore, by the maximum. */
static void scorer_idle_endpoints_have_a_gap(void **state) {
    static const float in_flight[] = {0, 2, 4, 8}, wanted[] = {1, 1, 0.25f, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_active_request_scorer, 4);
    fixture_tell(&fixture, &plugin_active_request_scorer,
                 "{idleThreshold: 2, maxBusyScore: 0.5, requestTimeout: 2m}");
    for (uint32_t i = 0; i < 4; i++) {
        fixture.in_flight[i] = in_flight[i];
    }
    assert_scores(&fixture, &plugin_active_request_scorer, wanted);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_in_flight_scales_to_maximum),
        cmocka_unit_test(scorer_no_requests_scores_one),
        cmocka_unit_test(scorer_equal_requests_score_zero),
        cmocka_unit_test(scorer_idle_endpoints_have_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
