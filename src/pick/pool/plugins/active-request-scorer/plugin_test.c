/* 0 requests in flight score 1, the maximum 0. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_in_flight_scales_to_maximum),
        cmocka_unit_test(scorer_no_requests_scores_one),
        cmocka_unit_test(scorer_equal_requests_score_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
