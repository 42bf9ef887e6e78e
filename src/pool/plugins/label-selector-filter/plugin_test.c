/* Which labels match which selector, and what a selector may be. */
#include "pool/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/plugin_fixture.h"

static const struct pool_label a[] = {{STR("zone"), STR("a")}, {STR("gpu"), STR("h100")}},
                               b[] = {{STR("zone"), STR("b")}};

/* Endpoints 0 and 1 have labels, 2 has none. */
static void open_pool(struct plugin_fixture *fixture) {
    struct pool_spec *spec = fixture_spec();
    const struct pool_labels labels[] = {{a, 2}, {b, 1}, {NULL, 0}};
    struct error err;
    for (uint32_t i = 0; i < 3; i++) {
        struct pool_wanted wanted = {.address = fixture_numbered(i), .labels = labels[i]};
        assert_int_equal(pool_spec_add_endpoint(spec, &wanted, &err), ST_OK);
    }
    plugin_fixture_open(fixture, &plugin_label_selector_filter, 3);
    fixture_update(fixture->pool.pool, spec);
    fixture->choice.snapshot = pool_look(fixture->pool.reader);
}

static void which_match(void **state) {
    static const struct {
        const char *parameters;
        unsigned kept; /* a bit for each */
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
        struct error err;
        unsigned kept = 0;
        open_pool(&fixture);
        assert_int_equal(
            plugin_fixture_read(&fixture, &plugin_label_selector_filter, rows[i].parameters, &err),
            ST_OK);
        plugin_label_selector_filter.filter(fixture.parameters, &fixture.choice);
        for (uint32_t k = 0; k < fixture.choice.n; k++) {
            kept |= 1u << fixture.member[k];
        }
        if (kept != rows[i].kept) {
            fail_msg("%s: kept %x", rows[i].parameters, kept);
        }
        plugin_fixture_close(&fixture);
    }
}

static void parameters_are_read_strictly(void **state) {
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
    assert_refused_parameters(&plugin_label_selector_filter, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_match),
        cmocka_unit_test(parameters_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
