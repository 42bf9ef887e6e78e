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

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{queueThresholdTokens: 0}", "expected a whole number from 1"},
        {"{nonTextTokenWeight: 2}", "nonTextTokenWeight"},
    };
    (void)state;
    assert_refused(&plugin_token_load_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_fewer_tokens_score_higher),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
