/* From no waiting requests to the threshold and above. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_shorter_queue_scores_higher(void **state) {
    static const float waiting[] = {0, 32, 128, 1000}, wanted[] = {0.5f, 0.375f, 0, 0};
    (void)state;
    ASSERT_SCORES(&plugin_load_aware_scorer, n_waiting, waiting, wanted);
}

static void scorer_configured_threshold_scores_zero(void **state) {
    static const float wanted[] = {0.5f, 0.25f, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_load_aware_scorer, 3);
    fixture_tell(&fixture, &plugin_load_aware_scorer, "{threshold: 10}");
    fixture.n_waiting[1] = 5;
    fixture.n_waiting[2] = 10;
    assert_scores(&fixture, &plugin_load_aware_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{threshold: 0}", "expected a whole number from 1"},
        {"{treshold: 1}", "did you mean \"threshold\"?"},
    };
    (void)state;
    assert_refused(&plugin_load_aware_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_shorter_queue_scores_higher),
        cmocka_unit_test(scorer_configured_threshold_scores_zero),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
