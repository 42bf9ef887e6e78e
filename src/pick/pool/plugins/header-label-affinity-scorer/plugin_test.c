/* Prefers endpoints with the label from the header; none without the header. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const struct pool_label a[] = {{STR("zone"), STR("a")}}, b[] = {{STR("zone"), STR("b")}};
static const struct pool_labels labels[] = {{a, 1}, {b, 1}, {NULL, 0}, {b, 1}};

/* A request with one header, `of`. */
static struct str find(const void *of, struct str name) {
    return str_is(name, "x-preferred-zone") ? str_of(of) : str_make(NULL, 0);
}

static void scorer_label_equal_to_header_scores_one(void **state) {
    static const struct {
        const char *value; /* NULL: no such header */
        float wanted[4];
    } rows[] = {{"b", {0, 1, 0, 1}}, {"a", {1, 0, 0, 0}}, {"A", {0, 0, 0, 0}},
                {"c", {0, 0, 0, 0}}, {"", {0, 0, 0, 0}},  {NULL, {0, 0, 0, 0}}};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_header_label_affinity_scorer, 4);
    fixture_label(&fixture, labels, 4);
    fixture_tell(&fixture, &plugin_header_label_affinity_scorer,
                 "{headerName: X-Preferred-Zone, labelKey: zone, stampResponseHeader: false}");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        fixture.candidates.headers = (struct pool_headers){.find = find, .of = rows[i].value};
        assert_scores(&fixture, &plugin_header_label_affinity_scorer, rows[i].wanted);
    }
    fixture.candidates.headers.find = NULL;
    assert_scores(&fixture, &plugin_header_label_affinity_scorer, rows[5].wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_busy_endpoint_scores_zero(void **state) {
    static const float free_one[] = {0, 1, 0, 1}, busy[] = {0, 0, 0, 1};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_header_label_affinity_scorer, 4);
    fixture_label(&fixture, labels, 4);
    fixture_tell(&fixture, &plugin_header_label_affinity_scorer,
                 "{headerName: X-Preferred-Zone, labelKey: zone}");
    fixture.candidates.headers = (struct pool_headers){.find = find, .of = "b"};
    plugin_fixture_load(&fixture, 1, 3);
    assert_scores(&fixture, &plugin_header_label_affinity_scorer, free_one);
    plugin_fixture_load(&fixture, 1, 4);
    assert_scores(&fixture, &plugin_header_label_affinity_scorer, busy);
    plugin_fixture_close(&fixture);
}

static void scorer_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{}", "headerName: expected a text that is not empty"},
        {"{headerName: x}", "labelKey: expected a text that is not empty"},
        {"{headerName: x, labelKey: y, stampResponseHeader: true}", "expected false"},
        {"{header: x, labelKey: y}", "header"},
    };
    (void)state;
    assert_refused(&plugin_header_label_affinity_scorer, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_label_equal_to_header_scores_one),
        cmocka_unit_test(scorer_busy_endpoint_scores_zero),
        cmocka_unit_test(scorer_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
