/* Endpoints for short and for long prompts. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static const char *const RANGES[] = {"0-2048", "2048-8192", "100-100", "8192-0", NULL};
enum { N = sizeof(RANGES) / sizeof(*RANGES) };

/* Endpoints with these labels. */
static void open_labelled(struct plugin_fixture *fixture, const char *key, const char *parameters) {
    static struct pool_label labels[N];
    plugin_fixture_open(fixture, &plugin_context_length_aware, N);
    fixture_tell(fixture, &plugin_context_length_aware, parameters);
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = 0; i < N; i++) {
        labels[i] =
            (struct pool_label){str_of(key), RANGES[i] ? str_of(RANGES[i]) : str_make(NULL, 0)};
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i),
                                            .labels = {&labels[i], RANGES[i] ? 1 : 0}};
        pool_spec_add_endpoint(spec, &wanted);
    }
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
}

static void check_scores(uint32_t n_tokens, const float *wanted) {
    struct plugin_fixture fixture;
    open_labelled(&fixture, "llm-d.ai/context-length-range", "{}");
    fixture.candidates.n_tokens = n_tokens;
    plugin_context_length_aware.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, N);
    assert_scores(&fixture, &plugin_context_length_aware, wanted);
    plugin_fixture_close(&fixture);
}

static void scorer_prompt_in_a_narrow_range_scores_highest(void **state) {
    static const float of_100[] = {0.3f + 0.7f * (0.7f / 1.2048f + 0.3f * 1948 / 2048),
                                   0.3f / (1 + 1.948f), 1, 0, 0.5f};
    static const float of_10000[] = {0.3f / (1 + 7.952f), 0.3f / (1 + 1.808f), 0.3f / (1 + 9.9f), 0,
                                     0.5f};
    (void)state;
    check_scores(100, of_100);
    check_scores(10000, of_10000);
}

static void filter_keeps_ranges_and_unlabelled(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    open_labelled(&fixture, "size", "{label: size, enableFiltering: true}");
    fixture.candidates.n_tokens = 2048;
    plugin_context_length_aware.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture.candidates.n, 3);
    assert_int_equal(fixture.candidates.columns->member[0], 0);
    assert_int_equal(fixture.candidates.columns->member[1], 1);
    assert_int_equal(fixture.candidates.columns->member[2], 4);
    plugin_fixture_close(&fixture);
}

static void plugin_empty_label_is_rejected(void **state) {
    static const char *const texts[][2] = {{"{label: \"\"}", "expected a text that is not empty"}};
    (void)state;
    assert_refused(&plugin_context_length_aware, texts, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_prompt_in_a_narrow_range_scores_highest),
        cmocka_unit_test(filter_keeps_ranges_and_unlabelled),
        cmocka_unit_test(plugin_empty_label_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
