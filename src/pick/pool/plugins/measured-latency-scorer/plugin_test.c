/* Shorter response times score higher; unknown ones score in the middle, and old ones approach
 * it. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const uint64_t SECOND = 1000000000;

static void say(struct plugin_fixture *fixture, uint32_t i, float first_byte_s, float answer_s,
                uint64_t at_ns) {
    fixture->first_byte_s[i] = first_byte_s;
    fixture->answer_s[i] = answer_s;
    fixture->answered[i] = candidate_clock_ticks(at_ns);
}

static void scorer_shorter_latency_scores_higher(void **state) {
    static const float unknown[] = {0.5f, 0.5f, 0.5f, 0.5f}, wanted[] = {1, 0, 0.5f, 0.6f / 0.944f};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_measured_latency_scorer, 4);
    assert_scores(&fixture, &plugin_measured_latency_scorer, unknown);
    fixture.candidates.now_ns = 100 * SECOND;
    say(&fixture, 0, 0.1f, 1, 100 * SECOND);
    say(&fixture, 1, 1.1f, 2, 100 * SECOND);
    say(&fixture, 3, 0.6f, 1, 100 * SECOND);
    assert_scores(&fixture, &plugin_measured_latency_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_ttft_weight_mixes_latencies(void **state) {
    static const float by_first_byte[] = {1, 0}, by_answer[] = {0, 1};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_measured_latency_scorer, 2);
    fixture.candidates.now_ns = SECOND;
    say(&fixture, 0, 1, 9, SECOND);
    say(&fixture, 1, 2, 3, SECOND);
    fixture_tell(&fixture, &plugin_measured_latency_scorer, "{ttftWeight: 1}");
    assert_scores(&fixture, &plugin_measured_latency_scorer, by_first_byte);
    fixture_tell(&fixture, &plugin_measured_latency_scorer, "{ttftWeight: 0}");
    assert_scores(&fixture, &plugin_measured_latency_scorer, by_answer);
    plugin_fixture_close(&fixture);
}

static void scorer_old_latency_fades_to_neutral(void **state) {
    static const float wanted[] = {1, 0, 0.25f, 0.5f};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_measured_latency_scorer, 4);
    fixture_tell(&fixture, &plugin_measured_latency_scorer, "{halfLifeSeconds: 5}");
    fixture.candidates.now_ns = 1000 * SECOND;
    say(&fixture, 0, 1, 1, 1000 * SECOND);
    say(&fixture, 1, 2, 2, 1000 * SECOND);
    say(&fixture, 2, 2, 2, 995 * SECOND);
    say(&fixture, 3, 2, 2, 1);
    assert_scores(&fixture, &plugin_measured_latency_scorer, wanted);
    plugin_fixture_close(&fixture);
}

/* Up to a fifth more than the minimum. */
static void scorer_small_differences_score_alike(void **state) {
    static const float alike[] = {1, 1, 1}, wanted[] = {1, 1, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_measured_latency_scorer, 3);
    fixture.candidates.now_ns = SECOND;
    say(&fixture, 0, 0.100f, 0.100f, SECOND);
    say(&fixture, 1, 0.119f, 0.119f, SECOND);
    say(&fixture, 2, 0.110f, 0.110f, SECOND);
    assert_scores(&fixture, &plugin_measured_latency_scorer, alike);
    say(&fixture, 2, 0.150f, 0.150f, SECOND);
    assert_scores(&fixture, &plugin_measured_latency_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_equal_latency_scores_one(void **state) {
    static const float wanted[] = {1, 1};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_measured_latency_scorer, 2);
    fixture.candidates.now_ns = SECOND;
    say(&fixture, 0, 0, 0, SECOND);
    say(&fixture, 1, 0, 0, 2 * SECOND); /* measured by another thread meanwhile */
    assert_scores(&fixture, &plugin_measured_latency_scorer, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{ttftWeight: 1.1}", "expected a share from 0 to 1"},
        {"{halfLifeSeconds: 0}", "expected a time above 0"},
        {"{tpotWeight: 1}", "tpotWeight"},
    };
    (void)state;
    assert_refused(&plugin_measured_latency_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_shorter_latency_scores_higher),
        cmocka_unit_test(scorer_ttft_weight_mixes_latencies),
        cmocka_unit_test(scorer_old_latency_fades_to_neutral),
        cmocka_unit_test(scorer_small_differences_score_alike),
        cmocka_unit_test(scorer_equal_latency_scores_one),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
