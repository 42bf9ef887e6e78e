/* Endpoints above a limit are removed; all are kept only where the configuration says so. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const struct {
    unsigned known;
    float in_flight, n_waiting, n_running, used;
} endpoints[] = {
    {LOAD_WAITING | LOAD_KV_CACHE | LOAD_RUNNING, 3, 4, 40, 0.8f},
    {LOAD_WAITING | LOAD_KV_CACHE | LOAD_RUNNING, 9, 5, 1, 0.1f},
    {LOAD_WAITING | LOAD_KV_CACHE | LOAD_RUNNING, 1, 0, 41, 0.81f},
    {0, 5, 100, 100, 1}, /* reports nothing */
};

enum { N = sizeof(endpoints) / sizeof(*endpoints) };

static void expect_kept(const char *parameters, unsigned kept) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fixture_tell(&fixture, &plugin_utilization_filter, parameters);
    fixture.candidates.n = N;
    for (uint32_t i = 0; i < N; i++) {
        fixture.member[i] = i;
        fixture.known[i] = endpoints[i].known;
        fixture.in_flight[i] = endpoints[i].in_flight;
        fixture.n_waiting[i] = endpoints[i].n_waiting;
        fixture.n_running[i] = endpoints[i].n_running;
        fixture.kv_cache_used[i] = endpoints[i].used;
    }
    plugin_utilization_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), kept);
    plugin_fixture_close(&fixture);
}

static void filter_keeps_endpoints_within_limits(void **state) {
    (void)state;
    expect_kept("{conditions: [{metric: waiting-queue, maxValue: 4}]}", 0xd);
    expect_kept("{conditions: [{metric: running-requests, maxValue: 40}]}", 0xb);
    expect_kept("{conditions: [{metric: kv-cache-utilization, maxValue: 0.8}]}", 0xb);
    expect_kept("{conditions: [{metric: active-requests, maxValue: 3}]}", 0x5);
    expect_kept("{conditions: [{metric: waiting-queue, maxValue: 4}, {metric: running-requests, "
                "maxValue: 40}]}",
                0x9);
}

static void filter_without_endpoints_within_limits_falls_back_if_told(void **state) {
    (void)state;
    expect_kept("{conditions: [{metric: active-requests, maxValue: 0}]}", 0);
    expect_kept("{conditions: [{metric: active-requests, maxValue: 0}], fallbackOnEmpty: true}",
                0xf);
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{}", "expected 1 to 16 conditions, got 0"},
        {"{conditions: []}", "expected 1 to 16 conditions, got 0"},
        {"{conditions: [{metric: queue, maxValue: 1}]}", "expected active-requests"},
        {"{conditions: [{maxValue: 1}]}", "expected active-requests"},
        {"{conditions: [{metric: waiting-queue}]}", "expected a number, got nothing"},
        {"{conditions: [{metric: waiting-queue, maxValue: -1}]}", "expected a number from 0"},
        {"{conditions: [{metric: kv-cache-utilization, maxValue: 1.5}]}", "expected a share"},
        {"{conditions: [{metric: waiting-queue, maxvalue: 1}]}", "did you mean \"maxValue\"?"},
        {"{queueDepthThreshold: 5}", "unknown field"},
    };
    (void)state;
    assert_refused(&plugin_utilization_filter, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_endpoints_within_limits),
        cmocka_unit_test(filter_without_endpoints_within_limits_falls_back_if_told),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
