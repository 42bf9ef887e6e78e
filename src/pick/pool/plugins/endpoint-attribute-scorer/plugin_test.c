/* An attribute scores between the ends of its range; without a value 0. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/attribute_fixture.h"

enum { N = 4 };

static void expect_scores(const char *algorithm, const double *values, const float *wanted) {
    struct plugin_fixture fixture;
    struct profile profile;
    char text[300];
    snprintf(text, sizeof(text), "{attributeKey: a, algorithm: {type: linear_%s}}", algorithm);
    attribute_fixture_open(&fixture, &plugin_endpoint_attribute_scorer, text, &profile, values, N);
    assert_scores(&fixture, &plugin_endpoint_attribute_scorer, wanted);
    fixture.candidates.now_ns = 101; /* all values are old */
    assert_scores(&fixture, &plugin_endpoint_attribute_scorer, (const float[N]){0, 0, 0, 0});
    plugin_fixture_close(&fixture);
}

static const double SOME[N] = {-1, 3, NAN, 0};

static void scorer_adapts_to_the_range_of_candidates(void **state) {
    static const double alike[N] = {7, 7, NAN, 7}, one[N] = {NAN, 5, NAN, NAN};
    static const double close[N] = {1800000000, 1800000010, 1800000005, NAN}; /* equal as floats */
    static const double far[N] = {-1e308, 1e308, 0, NAN};
    (void)state;
    expect_scores("lower_is_better", SOME, (const float[N]){1, 0, 0, 0.75f});
    expect_scores("higher_is_better", SOME, (const float[N]){0, 1, 0, 0.25f});
    expect_scores("lower_is_better, normalization: {adaptiveRange: {}}", SOME,
                  (const float[N]){1, 0, 0, 0.75f});
    expect_scores("lower_is_better", alike, (const float[N]){1, 1, 0, 1});
    expect_scores("higher_is_better", alike, (const float[N]){1, 1, 0, 1});
    expect_scores("higher_is_better", one, (const float[N]){0, 1, 0, 0});
    expect_scores("lower_is_better", close, (const float[N]){1, 0, 0.5f, 0});
    expect_scores("higher_is_better", far, (const float[N]){0, 0, 0, 0}); /* beyond a double */
}

static void scorer_fixed_range_is_clamped(void **state) {
    static const double used[N] = {0.25, 1.5, -0.5, NAN};
    (void)state;
    expect_scores("lower_is_better, normalization: {fixedRange: {min: 0, max: 1}}", used,
                  (const float[N]){0.75f, 0, 1, 0});
    expect_scores("higher_is_better, normalization: {fixedRange: {max: 2}}", used,
                  (const float[N]){0.125f, 0.75f, 0, 0});
}

static void scorer_invalid_parameters_are_rejected(void **state) {
#define NORMALIZED(text)                                                                           \
    "{attributeKey: a, algorithm: {type: linear_lower_is_better, normalization: " text "}}"
    static const char *const texts[][2] = {
        {"{algorithm: {type: linear_lower_is_better}}", "the name of an attribute"},
        {"{attributeKey: a}", "expected `{type: linear_lower_is_better}` or"},
        {"{attributeKey: a, algorithm: {}}", "expected `{type: linear_lower_is_better}` or"},
        {"{attributeKey: a, algorithm: {type: log}}", "expected linear_lower_is_better or"},
        {"{attributeKey: a/b, algorithm: {type: linear_lower_is_better}}", "expected `producer`"},
        {NORMALIZED("{fixedRange: {min: 0, max: 1}, adaptiveRange: {}}"), "got both"},
        {NORMALIZED("{fixedRange: {}}"), "expected `min` below `max`, got 0 and 0"},
        {NORMALIZED("{fixedRange: {min: 2, max: 1}}"), "expected `min` below `max`, got 2 and 1"},
        {NORMALIZED("{fixedRange: 1}"), "expected an object"},
        {NORMALIZED("{adaptiveRange: {min: 1}}"), "unknown field"},
        {"{attribute: a}", "unknown field"},
    };
#undef NORMALIZED
    (void)state;
    assert_refused(&plugin_endpoint_attribute_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_adapts_to_the_range_of_candidates),
        cmocka_unit_test(scorer_fixed_range_is_clamped),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
