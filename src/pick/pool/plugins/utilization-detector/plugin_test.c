/* Endpoints at their limits, or without a report, are removed unless none is left. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/detector.h"
#include "pick/pool/profile/plugin_text_fixture.h"

enum { N = 6 };
static const struct {
    unsigned known;
    float n_waiting, used;
} endpoints[N] = {
    {LOAD_WAITING | LOAD_KV_CACHE, 4, 0.7f},
    {LOAD_WAITING | LOAD_KV_CACHE, 5, 0.1f},
    {LOAD_WAITING | LOAD_KV_CACHE, 0, 0.8f},
    {0, 9, 0},                /* reports nothing: its requests are not the engine's */
    {LOAD_WAITING, 0, 0.99f}, /* does not report its cache */
    {LOAD_KV_CACHE, 99, 0.79f},
};

static unsigned left_of(const char *parameters, uint32_t n) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, &plugin_utilization_detector, N);
    fixture_tell(&fixture, &plugin_utilization_detector, parameters);
    fixture.candidates.n = n;
    for (uint32_t i = 0; i < n; i++) {
        fixture.known[i] = endpoints[i].known;
        fixture.n_waiting[i] = endpoints[i].n_waiting;
        fixture.kv_cache_used[i] = endpoints[i].used;
    }
    plugin_utilization_detector.filter(fixture.parameters, &fixture.candidates);
    unsigned left = fixture_left(&fixture);
    plugin_fixture_close(&fixture);
    return left;
}

static void detector_removes_endpoints_at_limits(void **state) {
    (void)state;
    assert_int_equal(left_of("{}", N), 0x31);
    assert_int_equal(left_of("{queueDepthThreshold: 6}", N), 0x33);
    assert_int_equal(left_of("{kvCacheUtilThreshold: 1}", N), 0x35);
    assert_int_equal(left_of("{kvCacheUtilThreshold: 0.7}", N), 0x10);
}

/* 5 * 1.2 is 6: an endpoint where 5 wait stays, at 6 it would not. */
static void detector_headroom_raises_both_limits(void **state) {
    (void)state;
    assert_int_equal(left_of("{headroom: 0.2}", N), 0x37);
    assert_int_equal(left_of("{headroom: 0.2, queueDepthThreshold: 4}", N), 0x35);
    assert_int_equal(left_of("{headroom: 0.25, queueDepthThreshold: 4}", N), 0x35);
    assert_int_equal(left_of("{headroom: 0.5, queueDepthThreshold: 4}", N), 0x37);
}

static void detector_keeps_all_where_none_is_left(void **state) {
    (void)state;
    assert_int_equal(left_of("{queueDepthThreshold: 1, kvCacheUtilThreshold: 0.05}", 4), 0xf);
}

/* Without a recent report none is better than another one. */
static void detector_policy_is_of_the_pool(void **state) {
    (void)state;
    assert_int_equal(left_of("{stalenessPolicy: ignore}", N), 0x31);
    assert_int_equal(left_of("{stalenessPolicy: saturated}", N), 0x31);
}

static void detector_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{headroom: -0.1}", "expected 0 or more"},
        {"{headroom: x}", "expected a number"},
        {"{queueDepthThreshold: 0}", "expected a whole number from 1"},
        {"{kvCacheUtilThreshold: 0}", "expected a share above 0"},
        {"{kvCacheUtilThreshold: 1.5}", "expected a share above 0"},
        {"{metricsStalenessThreshold: 0s}", "expected a time above 0"},
        {"{metricsStalenessThreshold: 2h}", "expected a time such as"},
        {"{metricsStalenessThreshold: soon}", "expected a time such as"},
        {"{stalenessPolicy: old}", "expected ignore or saturated"},
        {"{headRoom: 1}", "did you mean \"headroom\"?"},
    };
    (void)state;
    assert_refused(&plugin_utilization_detector, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detector_removes_endpoints_at_limits),
        cmocka_unit_test(detector_headroom_raises_both_limits),
        cmocka_unit_test(detector_keeps_all_where_none_is_left),
        cmocka_unit_test(detector_policy_is_of_the_pool),
        cmocka_unit_test(detector_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
