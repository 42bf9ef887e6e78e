/* Endpoints whose attribute compares as the configuration says are kept. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/attribute_fixture.h"

static const double VALUES[] = {1, 2.5, 3, NAN, -4};
enum { N = sizeof(VALUES) / sizeof(*VALUES) };

static void expect_kept(uint64_t now_ns, const char *more, const char *comparison,
                        const char *value, unsigned kept) {
    struct plugin_fixture fixture;
    struct profile profile;
    char text[300];
    snprintf(text, sizeof(text),
             "{attribute: a%s, algorithm: {type: threshold, threshold: {operator: %s, value: %s}}}",
             more, comparison, value);
    attribute_fixture_open(&fixture, &plugin_endpoint_attribute_filter, text, &profile, VALUES, N);
    fixture.candidates.now_ns = now_ns;
    plugin_endpoint_attribute_filter.filter(fixture.parameters, &fixture.candidates);
    if (fixture_left(&fixture) != kept) {
        fail_msg("%s kept %x", text, fixture_left(&fixture));
    }
    plugin_fixture_close(&fixture);
}

/* Endpoint 3 has no value, and is kept. */
static void filter_compares_with_the_threshold(void **state) {
    (void)state;
    expect_kept(100, "", "LessThan", "2.5", 0x19);
    expect_kept(100, "", "LessThanOrEqual", "2.5", 0x1b);
    expect_kept(100, "", "GreaterThan", "2.5", 0x0c);
    expect_kept(100, "", "GreaterThanOrEqual", "2.5", 0x0e);
    expect_kept(100, "", "Equal", "2.5", 0x0a);
    expect_kept(100, "", "NotEqual", "2.5", 0x1d);
    expect_kept(100, "", "LessThan", "-4", 0x08);
}

static void filter_missing_values_pass_or_fail(void **state) {
    (void)state;
    expect_kept(100, ", onMissing: Pass", "LessThan", "2.5", 0x19);
    expect_kept(100, ", onMissing: ''", "LessThan", "2.5", 0x19);
    expect_kept(100, ", onMissing: Fail", "LessThan", "2.5", 0x11);
    /* all values are old */
    expect_kept(101, ", onMissing: Pass", "LessThan", "2.5", 0x1f);
    expect_kept(101, ", onMissing: Fail", "LessThan", "2.5", 0);
}

static void filter_falls_back_if_told(void **state) {
    (void)state;
    expect_kept(100, ", onMissing: Fail", "LessThan", "-4", 0);
    expect_kept(100, ", onMissing: Fail, fallbackOnEmpty: true", "LessThan", "-4", 0x1f);
    expect_kept(100, ", fallbackOnEmpty: true", "LessThan", "-4", 0x08);
    expect_kept(101, ", onMissing: Fail, fallbackOnEmpty: true", "LessThan", "9", 0x1f);
}

/* What is another producer's is another attribute. */
static void filter_producer_is_part_of_the_name(void **state) {
    struct pool_request_needs needs = {.n_attributes = 0};
    struct plugin_fixture fixture;
    struct error err;
    static const char *const producers[][2] = {{"", "core-metrics-extractor"},
                                               {", producer: ''", ""},
                                               {", producer: dcgm-extractor", "dcgm-extractor"}};
    (void)state;
    plugin_fixture_open(&fixture, &plugin_endpoint_attribute_filter, 1);
    for (size_t i = 0; i < 3; i++) {
        char text[200];
        snprintf(text, sizeof(text),
                 "{attribute: a%s, algorithm: {type: threshold, threshold: {operator: Equal}}}",
                 producers[i][0]);
        fixture_tell(&fixture, &plugin_endpoint_attribute_filter, text);
        assert_int_equal(
            plugin_endpoint_attribute_filter.add_needs(fixture.parameters, &needs, &err), ST_OK);
        assert_int_equal(needs.n_attributes, i + 1);
        assert_true(str_is(needs.attributes[i].producer, producers[i][1]));
        assert_int_equal(
            plugin_endpoint_attribute_filter.add_needs(fixture.parameters, &needs, &err), ST_OK);
        assert_int_equal(needs.n_attributes, i + 1);
    }
    plugin_fixture_close(&fixture);
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{algorithm: {type: threshold, threshold: {operator: Equal}}}",
         "the name of an attribute"},
        {"{attribute: '', algorithm: {type: threshold, threshold: {operator: Equal}}}",
         "the name of an attribute"},
        {"{attribute: a/b, algorithm: {type: threshold, threshold: {operator: Equal}}}",
         "expected `producer`"},
        {"{attribute: a}", "expected `{type: threshold, threshold: {operator, value}}`"},
        {"{attribute: a, algorithm: {type: threshold}}", "expected `{type: threshold"},
        {"{attribute: a, algorithm: {threshold: {operator: Equal}}}", "expected `{type: threshold"},
        {"{attribute: a, algorithm: {type: topK}}", "expected threshold, got \"topK\""},
        {"{attribute: a, algorithm: {type: threshold, threshold: {value: 1}}}",
         "expected LessThan, LessThanOrEqual"},
        {"{attribute: a, algorithm: {type: threshold, threshold: {operator: '<'}}}",
         "expected LessThan, LessThanOrEqual"},
        {"{attribute: a, algorithm: {type: threshold, threshold: {operator: Equal, value: x}}}",
         "expected a number"},
        {"{attribute: a, algorithm: {type: threshold, threshold: 5}}", "expected an object"},
        {"{attribute: a, onMissing: keep, algorithm: {type: threshold, threshold: {operator: "
         "Equal}}}",
         "expected Pass or Fail"},
        {"{attributeKey: a}", "unknown field"},
    };
    (void)state;
    assert_refused(&plugin_endpoint_attribute_filter, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_compares_with_the_threshold),
        cmocka_unit_test(filter_missing_values_pass_or_fail),
        cmocka_unit_test(filter_falls_back_if_told),
        cmocka_unit_test(filter_producer_is_part_of_the_name),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
