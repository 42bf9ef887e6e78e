/* Which labels match which selector, and which selectors are valid. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const struct pool_label a[] = {{STR("zone"), STR("a")}, {STR("gpu"), STR("h100")}},
                               b[] = {{STR("zone"), STR("b")}};

/* Endpoints 0 and 1 have labels, 2 has none. */
static void open_pool(struct plugin_fixture *fixture) {
    const struct pool_labels labels[] = {{a, 2}, {b, 1}, {NULL, 0}};
    plugin_fixture_open(fixture, &plugin_label_selector_filter, 3);
    fixture_label(fixture, labels, 3);
}

static void filter_keeps_matching_labels(void **state) {
    static const struct {
        const char *parameters;
        unsigned kept; /* one bit each */
    } rows[] = {
        {"{}", 7},
        {"{matchLabels: {}}", 7},
        {"{matchLabels: {zone: a}}", 1},
        {"{matchLabels: {zone: a, gpu: h100}}", 1},
        {"{matchLabels: {zone: b, gpu: h100}}", 0},
        {"{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}", 3},
        {"{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}", 6},
        {"{matchExpressions: [{key: gpu, operator: Exists}]}", 1},
        {"{matchExpressions: [{key: gpu, operator: DoesNotExist}]}", 6},
        {"{matchLabels: {zone: b}, matchExpressions: [{key: gpu, operator: Exists}]}", 0},
        {"{matchExpressions: [{key: zone, operator: Exists}, {key: gpu, operator: DoesNotExist}]}",
         2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct plugin_fixture fixture;
        open_pool(&fixture);
        fixture_tell(&fixture, &plugin_label_selector_filter, rows[i].parameters);
        plugin_label_selector_filter.filter(fixture.parameters, &fixture.candidates);
        unsigned kept = fixture_left(&fixture);
        if (kept != rows[i].kept) {
            fail_msg("%s: kept %x", rows[i].parameters, kept);
        }
        plugin_fixture_close(&fixture);
    }
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{matchLabel: {}}", "did you mean \"matchLabels\"?"},
        {"{matchLabels: [a]}", "expected an object"},
        {"{matchLabels: {gpu: 8}}", "expected text"},
        {"{matchExpressions: [a]}", "expected an object"},
        {"{matchExpressions: [{operator: Exists}]}", "matchExpressions[0].key: expected text"},
        {"{matchExpressions: [{key: a, operator: in}]}", "expected In, NotIn, Exists or"},
        {"{matchExpressions: [{key: a, operator: In}]}", "expected values for In and NotIn"},
        {"{matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "only for these"},
    };
    (void)state;
    assert_refused(&plugin_label_selector_filter, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_matching_labels),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
