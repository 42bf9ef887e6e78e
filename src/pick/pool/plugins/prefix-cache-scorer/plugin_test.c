/* The share of the prompt is the score; what the parameters say of blocks is what the profile
 * wants. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void the_share_that_was_sent(void **state) {
    static const float wanted[] = {0.75f, 0, 1, 0.125f}, none[] = {0, 0, 0, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 4);
    assert_scores(&fixture, &plugin_prefix_cache_scorer, none);
    fixture_hit(&fixture, 2, 8, 8);
    fixture_hit(&fixture, 0, 6, 8);
    fixture_hit(&fixture, 3, 1, 8);
    fixture_hit(&fixture, 9, 8, 8); /* no candidate */
    assert_scores(&fixture, &plugin_prefix_cache_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static struct pool_wants wants_of(struct plugin_fixture *fixture, const char *text) {
    struct pool_wants wants = {.prompt = false};
    struct error err;
    fixture_tell(fixture, &plugin_prefix_cache_scorer, text);
    assert_int_equal(plugin_prefix_cache_scorer.want(fixture->parameters, &wants, &err), ST_OK);
    assert_true(wants.prompt && wants.body);
    return wants;
}

static void what_is_wanted(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 1);
    struct pool_wants wants = wants_of(&fixture, "{}");
    assert_int_equal(wants.blocks.block_bytes, 64);
    assert_int_equal(wants.blocks.most, 256);
    assert_int_equal(wants.capacity, 31250);
    assert_true(wants.auto_capacity);
    wants = wants_of(&fixture, "{blockSize: 16, maxPrefixBlocksToMatch: 10, "
                               "lruCapacityPerServer: 7, autoTune: false}");
    assert_int_equal(wants.blocks.block_bytes, 16);
    assert_int_equal(wants.blocks.most, 10);
    assert_int_equal(wants.capacity, 7);
    assert_false(wants.auto_capacity);
    wants = wants_of(&fixture, "{blockSizeTokens: 32}");
    assert_int_equal(wants.blocks.block_bytes, 128);
    plugin_fixture_close(&fixture);
}

static void two_of_one_kind_must_agree(void **state) {
    struct plugin_fixture fixture;
    struct error err;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_prefix_cache_scorer, 1);
    struct pool_wants wants = wants_of(&fixture, "{blockSize: 16}");
    assert_int_equal(plugin_prefix_cache_scorer.want(fixture.parameters, &wants, &err), ST_OK);
    fixture_tell(&fixture, &plugin_prefix_cache_scorer, "{blockSize: 32}");
    assert_int_equal(plugin_prefix_cache_scorer.want(fixture.parameters, &wants, &err),
                     ST_BAD_CONFIG);
    assert_string_equal(err.text,
                        "the profile has two prefix-cache-scorers with different parameters");
    plugin_fixture_close(&fixture);
}

static void parameters_are_read_strictly(void **state) {
    static const char *const texts[][2] = {
        {"{blockSize: 0}", "expected a whole number from 1"},
        {"{blockSize: 4097}", "expected a whole number from 1 to 4096"},
        {"{blockSize: 64, blockSizeTokens: 16}", "not both"},
        {"{blockSize: 4096, maxPrefixBlocksToMatch: 2000}", "4194304 bytes together"},
        {"{maxPrefixBlocksToMach: 5}", "did you mean \"maxPrefixBlocksToMatch\"?"},
        {"{autoTune: 1}", "expected true or false"},
    };
    (void)state;
    assert_refused(&plugin_prefix_cache_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_that_was_sent),
        cmocka_unit_test(what_is_wanted),
        cmocka_unit_test(two_of_one_kind_must_agree),
        cmocka_unit_test(parameters_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
