/* Busy endpoints are removed unless all are busy; without a report an endpoint is not busy. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const struct {
    unsigned known;
    uint32_t n_waiting;
    float used;
} endpoints[] = {
    {LOAD_WAITING | LOAD_KV_CACHE, 4, 0.79f}, /* free */
    {LOAD_WAITING | LOAD_KV_CACHE, 5, 0.1f},
    {LOAD_WAITING | LOAD_KV_CACHE, 0, 0.8f},
    {LOAD_RUNNING, 100, 1}, /* reports neither value */
    {LOAD_WAITING, 9, 0},
};

enum { N = sizeof(endpoints) / sizeof(*endpoints) };

static void fill(struct plugin_fixture *fixture) {
    fixture->candidates.n = N;
    for (uint32_t i = 0; i < N; i++) {
        fixture->member[i] = i;
        fixture->known[i] = endpoints[i].known;
        fixture->n_waiting[i] = (float)endpoints[i].n_waiting;
        fixture->kv_cache_used[i] = endpoints[i].used;
    }
}

static void filter_keeps_endpoints_below_limits(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fill(&fixture);
    plugin_utilization_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, 2);
    assert_int_equal(fixture.member[0], 0);
    assert_int_equal(fixture.member[1], 3);
    plugin_fixture_close(&fixture);
}

static void filter_configured_limits_apply(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fixture_tell(&fixture, &plugin_utilization_filter,
                 "{queueDepthThreshold: 6, kvCacheUtilThreshold: 0.5}");
    fill(&fixture);
    plugin_utilization_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, 2);
    assert_int_equal(fixture.member[0], 1);
    assert_int_equal(fixture.member[1], 3);
    plugin_fixture_close(&fixture);
}

static void filter_all_above_limits_keeps_all(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fill(&fixture);
    for (uint32_t i = 0; i < N; i++) {
        fixture.known[i] = LOAD_WAITING;
        fixture.n_waiting[i] = (float)(5 + i);
    }
    plugin_utilization_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, N);
    plugin_fixture_close(&fixture);
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{queueDepthThreshold: 0}", "expected a whole number from 1"},
        {"{kvCacheUtilThreshold: 1.5}", "expected a share"},
        {"{kvCacheUtilThreshold: .nan}", "expected a share"},
        {"{queueDepthTreshold: 5}", "did you mean \"queueDepthThreshold\"?"},
    };
    (void)state;
    assert_refused(&plugin_utilization_filter, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_endpoints_below_limits),
        cmocka_unit_test(filter_configured_limits_apply),
        cmocka_unit_test(filter_all_above_limits_keeps_all),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
