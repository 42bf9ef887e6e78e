/* Busy endpoints go, unless all are busy; what is not known makes nobody busy. */
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
    {LOAD_RUNNING, 100, 1}, /* has said neither */
    {LOAD_WAITING, 9, 0},
};

enum { N = sizeof(endpoints) / sizeof(*endpoints) };

static void fill(struct plugin_fixture *fixture) {
    fixture->choice.n = N;
    for (uint32_t i = 0; i < N; i++) {
        fixture->member[i] = i;
        fixture->known[i] = endpoints[i].known;
        fixture->n_waiting[i] = (float)endpoints[i].n_waiting;
        fixture->kv_cache_used[i] = endpoints[i].used;
    }
}

static void keeps_those_that_are_free(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fill(&fixture);
    plugin_utilization_filter.filter(fixture.parameters, &fixture.choice);
    assert_int_equal(fixture.choice.n, 2);
    assert_int_equal(fixture.member[0], 0);
    assert_int_equal(fixture.member[1], 3);
    plugin_fixture_close(&fixture);
}

static void limits_of_ones_own(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fixture_tell(&fixture, &plugin_utilization_filter,
                 "{queueDepthThreshold: 6, kvCacheUtilThreshold: 0.5}");
    fill(&fixture);
    plugin_utilization_filter.filter(fixture.parameters, &fixture.choice);
    assert_int_equal(fixture.choice.n, 2);
    assert_int_equal(fixture.member[0], 1);
    assert_int_equal(fixture.member[1], 3);
    plugin_fixture_close(&fixture);
}

static void all_busy_is_all_left(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_utilization_filter, N);
    fill(&fixture);
    for (uint32_t i = 0; i < N; i++) {
        fixture.known[i] = LOAD_WAITING;
        fixture.n_waiting[i] = (float)(5 + i);
    }
    plugin_utilization_filter.filter(fixture.parameters, &fixture.choice);
    assert_int_equal(fixture.choice.n, N);
    plugin_fixture_close(&fixture);
}

static void parameters_are_read_strictly(void **state) {
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
        cmocka_unit_test(keeps_those_that_are_free),
        cmocka_unit_test(limits_of_ones_own),
        cmocka_unit_test(all_busy_is_all_left),
        cmocka_unit_test(parameters_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
