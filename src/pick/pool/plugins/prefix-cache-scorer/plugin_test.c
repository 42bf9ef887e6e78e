/* The score is the share of the prompt; the parameters about blocks become the profile's needs. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_cached_share_is_the_score(void **state) {
    static const float wanted[] = {0.75f, 0, 1, 0.125f}, none[] = {0, 0, 0, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 4);
    assert_scores(&fixture, &plugin_prefix_cache_scorer, none);
    fixture_hit(&fixture, 2, 8, 8);
    fixture_hit(&fixture, 0, 6, 8);
    fixture_hit(&fixture, 3, 1, 8);
    fixture_hit(&fixture, 9, 8, 8); /* not a candidate */
    assert_scores(&fixture, &plugin_prefix_cache_scorer, wanted);
    plugin_fixture_close(&fixture);
}

/* Of four candidates one may have a quarter more than the mean of all requests, this one
 * included: 5 of 15, and 4 where there are fewer. */
static void scorer_busy_endpoint_scores_zero(void **state) {
    static const float free_share[] = {1, 0, 0, 0.5f}, busy[] = {0, 0, 0, 0.5f};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 4);
    fixture_hit(&fixture, 0, 8, 8);
    fixture_hit(&fixture, 3, 4, 8);
    plugin_fixture_load(&fixture, 0, 3);
    assert_scores(&fixture, &plugin_prefix_cache_scorer, free_share);
    plugin_fixture_load(&fixture, 0, 4);
    assert_scores(&fixture, &plugin_prefix_cache_scorer, busy);
    fixture.in_flight[1] = fixture.in_flight[2] = 5;
    fixture.candidates.is_summed = false;
    fixture.candidates.affinity_limit = 0;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, free_share);
    fixture.in_flight[0] = 5;
    fixture.candidates.is_summed = false;
    fixture.candidates.affinity_limit = 0;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, busy);
    plugin_fixture_close(&fixture);
}

/* Each 512 tokens after the first 2,048 in the cache allow one request more than 4. */
static void scorer_long_prompt_counts_at_busier_endpoint(void **state) {
    static const float both[] = {1, 0, 0, 0.5f}, longer[] = {1, 0, 0, 0}, none[] = {0, 0, 0, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 4);
    fixture_hit(&fixture, 0, 8, 8);
    fixture_hit(&fixture, 3, 4, 8);
    fixture.prefix.block_bytes = 1024 * PROMPT_BYTES_PER_TOKEN;
    plugin_fixture_load(&fixture, 0, 15);
    fixture.in_flight[3] = 7;
    fixture.candidates.affinity_limit = 4;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, both);
    fixture.in_flight[3] = 8;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, longer);
    fixture.in_flight[0] = 16;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, none);
    plugin_fixture_close(&fixture);
}

static struct pool_request_needs wants_of(struct plugin_fixture *fixture, const char *text) {
    struct pool_request_needs needs = {.n_prefixes = 1, .prefixes = {PREFIX_PRODUCER_DEFAULT}};
    struct error err;
    fixture_tell(fixture, &plugin_prefix_cache_scorer, text);
    assert_int_equal(plugin_prefix_cache_scorer.add_needs(fixture->parameters, &needs, &err),
                     ST_OK);
    assert_true(needs.prompt && needs.body);
    return needs;
}

static void scorer_parameters_set_request_needs(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 1);
    struct pool_request_needs needs = wants_of(&fixture, "{}");
    const struct prefix_producer *producer = &needs.prefixes[0];
    assert_int_equal(producer->block_bytes, 256);
    assert_int_equal(prefix_producer_blocks(producer, 256).most, 2048);
    assert_int_equal(producer->capacity, 31250);
    assert_true(producer->auto_capacity && producer->auto_block);
    needs = wants_of(&fixture, "{blockSize: 16, maxPrefixBlocksToMatch: 10, "
                               "lruCapacityPerServer: 7, autoTune: false}");
    assert_int_equal(producer->block_bytes, 16);
    assert_int_equal(prefix_producer_blocks(producer, 16).most, 10);
    assert_int_equal(producer->capacity, 7);
    assert_false(producer->auto_capacity || producer->auto_block);
    needs = wants_of(&fixture, "{blockSizeTokens: 32}");
    assert_int_equal(producer->block_bytes, 128);
    assert_int_equal(prefix_producer_blocks(producer, 128).most, 4096);
    plugin_fixture_close(&fixture);
}

/* The square of the matched length, as a share of matchLengthScaleTokens, and the rest the share of
 * the prompt. */
static void scorer_match_length_counts_with_its_weight(void **state) {
    static const float wanted[] = {0.25f * 0.25f * 0.25f + 0.75f * 0.5f, 0};
    static const float whole[] = {0.25f + 0.75f * 0.5f, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 2);
    fixture_tell(&fixture, &plugin_prefix_cache_scorer,
                 "{matchLengthWeight: 0.25, matchLengthScaleTokens: 2560}");
    fixture_hit(&fixture, 0, 10, 20);
    fixture.prefix.block_bytes = 256;
    assert_scores(&fixture, &plugin_prefix_cache_scorer, wanted);
    fixture.prefix.block_bytes = 4096; /* longer than the scale */
    assert_scores(&fixture, &plugin_prefix_cache_scorer, whole);
    plugin_fixture_close(&fixture);
}

static void scorer_different_parameters_conflict(void **state) {
    struct plugin_fixture fixture;
    struct error err;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 1);
    struct pool_request_needs needs = wants_of(&fixture, "{blockSize: 16}");
    assert_int_equal(plugin_prefix_cache_scorer.add_needs(fixture.parameters, &needs, &err), ST_OK);
    fixture_tell(&fixture, &plugin_prefix_cache_scorer, "{blockSize: 32}");
    assert_int_equal(plugin_prefix_cache_scorer.add_needs(fixture.parameters, &needs, &err),
                     ST_BAD_CONFIG);
    assert_string_equal(err.text,
                        "the profile has two prefix-cache-scorers with different parameters");
    plugin_fixture_close(&fixture);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{blockSize: 0}", "expected a whole number from 1"},
        {"{blockSize: 4097}", "expected a whole number from 1 to 4096"},
        {"{blockSize: 64, blockSizeTokens: 16}", "not both"},
        {"{blockSize: 4096, maxPrefixBlocksToMatch: 2000}", "4194304 bytes together"},
        {"{maxPrefixBlocksToMach: 5}", "did you mean \"maxPrefixBlocksToMatch\"?"},
        {"{autoTune: 1}", "expected true or false"},
        {"{matchLengthWeight: 1.5}", "expected a number from 0 to 1"},
    };
    (void)state;
    assert_refused(&plugin_prefix_cache_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_match_length_counts_with_its_weight),
        cmocka_unit_test(scorer_cached_share_is_the_score),
        cmocka_unit_test(scorer_busy_endpoint_scores_zero),
        cmocka_unit_test(scorer_long_prompt_counts_at_busier_endpoint),
        cmocka_unit_test(scorer_parameters_set_request_needs),
        cmocka_unit_test(scorer_different_parameters_conflict),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
