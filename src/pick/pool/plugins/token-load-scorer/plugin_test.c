/* From no tokens in flight to the threshold and above. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_fewer_tokens_score_higher(void **state) {
    static const float tokens[] = {0, 250, 1000, 5000};
    static const float wanted[] = {1, 0.75f, 0, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_token_load_scorer, 4);
    fixture_tell(&fixture, &plugin_token_load_scorer, "{queueThresholdTokens: 1000}");
    for (uint32_t i = 0; i < 4; i++) {
        fixture.n_tokens[i] = tokens[i];
    }
    assert_scores(&fixture, &plugin_token_load_scorer, wanted);
    plugin_fixture_close(&fixture);
}

/* What an endpoint has of the prompt would not be added there. */
static void scorer_counts_the_uncached_part(void **state) {
    static const float tokens[] = {0, 0, 900, 5000};
    static const float wanted[] = {1.0f, 1.0f + 0.1f, 0.1f + 0.05f, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_token_load_scorer, 4);
    fixture_tell(&fixture, &plugin_token_load_scorer, "{queueThresholdTokens: 1000}");
    for (uint32_t i = 0; i < 4; i++) {
        fixture.n_tokens[i] = tokens[i];
    }
    fixture.prefix = (struct prefix_matches){
        .n_blocks = 2, .block_bytes = 400, .n = 3, .hits = {{1, 1}, {2, 2}, {3, 2}}};
    fixture.prefix.hits[1].n_blocks = 1;
    fixture.n_tokens[2] = 850;
    plugin_token_load_scorer.score(fixture.parameters, &fixture.candidates, 1);
    assert_near(fixture.score[0], wanted[0]);
    assert_near(fixture.score[1], wanted[1]);
    assert_near(fixture.score[2], 0.15f + 0.05f); /* 850 + 100 of 1000; with the whole prompt
                                                     none */
    assert_near(fixture.score[3], wanted[3]);
    plugin_fixture_close(&fixture);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{queueThresholdTokens: -1}", "expected a whole number from 0"},
        {"{nonTextTokenWeight: 2}", "nonTextTokenWeight"},
    };
    (void)state;
    assert_refused(&plugin_token_load_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_fewer_tokens_score_higher),
        cmocka_unit_test(scorer_counts_the_uncached_part),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
