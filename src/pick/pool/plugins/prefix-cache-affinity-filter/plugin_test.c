/* Endpoints with most of the prompt are kept, unless they have too much load, or at random. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const struct plugin *const FILTER = &plugin_prefix_cache_affinity_filter;

static void filter_keeps_endpoints_with_prefix(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, FILTER, 4);
    FILTER->filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 15);
    fixture_hit(&fixture, 1, 7, 10);
    FILTER->filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 15);
    fixture_hit(&fixture, 2, 8, 10);
    fixture_hit(&fixture, 3, 10, 10);
    FILTER->filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 12);
    fixture_tell(&fixture, FILTER, "{affinityThreshold: 0.99}");
    FILTER->filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 8);
    plugin_fixture_close(&fixture);
}

/* 100 tokens per second: 1,000 tokens take 10 s. */
static void filter_ttft_penalty_disables_affinity(void **state) {
    static const struct {
        const char *parameters;
        uint64_t near, far;
        unsigned left;
    } rows[] = {
        {"{peakPrefillThroughput: 100, maxTTFTPenaltyMs: 5000}", 500, 0, 1},
        {"{peakPrefillThroughput: 100, maxTTFTPenaltyMs: 5000}", 501, 0, 3},
        {"{peakPrefillThroughput: 100, maxTTFTPenaltyMs: 5000}", 1500, 1000, 1},
        {"{peakPrefillThroughput: 100, maxTTFTPenaltyMs: 0}", 1000000, 0, 1},
        {"{peakPrefillThroughput: 0, maxTTFTPenaltyMs: 5000}", 1000000, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct plugin_fixture fixture;
        plugin_fixture_open(&fixture, FILTER, 2);
        fixture_hit(&fixture, 0, 10, 10);
        fixture_tell(&fixture, FILTER, rows[i].parameters);
        fixture_member(&fixture, 0)->n_tokens = rows[i].near;
        fixture_member(&fixture, 1)->n_tokens = rows[i].far;
        FILTER->filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), rows[i].left);
        plugin_fixture_close(&fixture);
    }
}

/* With maxTTFTPenaltyMs 0 load does not count. Each 512 tokens after the first 2,048 of the
 * prompt allow one more. */
static void filter_busy_endpoint_disables_affinity(void **state) {
    static const struct {
        const char *parameters;
        uint32_t n_tokens; /* of ten blocks together */
        float in_flight;
        unsigned left;
    } rows[] = {{"{}", 2000, 3, 1},
                {"{}", 2000, 4, 3},
                {"{}", 7680, 13, 1},
                {"{}", 7680, 99, 3},
                {"{maxTTFTPenaltyMs: 0}", 2000, 400, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct plugin_fixture fixture;
        plugin_fixture_open(&fixture, FILTER, 2);
        fixture_hit(&fixture, 0, 10, 10);
        fixture.prefix.block_bytes = rows[i].n_tokens / 10 * PROMPT_BYTES_PER_TOKEN;
        fixture_tell(&fixture, FILTER, rows[i].parameters);
        plugin_fixture_load(&fixture, 0, rows[i].in_flight);
        FILTER->filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), rows[i].left);
        plugin_fixture_close(&fixture);
    }
}

static void filter_exploration_keeps_all(void **state) {
    struct plugin_fixture fixture;
    int n_all = 0;
    (void)state;
    plugin_fixture_open(&fixture, FILTER, 2);
    fixture_hit(&fixture, 0, 10, 10);
    fixture_tell(&fixture, FILTER, "{explorationProbability: 0.25}");
    for (int i = 0; i < 4000; i++) {
        struct candidate_set candidates = fixture.candidates;
        fixture.member[0] = 0, fixture.member[1] = 1;
        FILTER->filter(fixture.parameters, &candidates);
        n_all += candidates.n == 2;
    }
    assert_in_range(n_all, 900, 1100);
    plugin_fixture_close(&fixture);
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{affinityThreshold: 1.5}", "expected a number from 0 to 1"},
        {"{explorationProbability: -1}", "expected a number from 0 to 1"},
        {"{maxTTFTPenaltyMs: .nan}", "expected a number from 0"},
        {"{ttftSource: latencyPredictor}", "there is no other source"},
        {"{affinityTreshold: 1}", "did you mean \"affinityThreshold\"?"},
    };
    (void)state;
    assert_refused(FILTER, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_endpoints_with_prefix),
        cmocka_unit_test(filter_ttft_penalty_disables_affinity),
        cmocka_unit_test(filter_busy_endpoint_disables_affinity),
        cmocka_unit_test(filter_exploration_keeps_all),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
