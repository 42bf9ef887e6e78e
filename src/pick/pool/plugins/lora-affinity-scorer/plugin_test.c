/* The adapter runs, waits, can be loaded, or none is reported. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

static void say(struct plugin_fixture *fixture, uint32_t i, const char *running,
                const char *waiting, uint32_t most) {
    struct endpoint_load load = {
        .until_ns = UINT64_MAX, .known = LOAD_ADAPTERS, .max_adapters = most};
    load_add_adapter(&load, str_of(running), false);
    load_add_adapter(&load, str_of(waiting), true);
    load_cell_set(&load, &fixture->candidates.snapshot->loads[i],
                  &fixture->candidates.snapshot->adapters[i]);
    fixture->known[i] = LOAD_ADAPTERS;
    fixture->adapters[i] = fixture->candidates.snapshot->loads[i].adapters;
}

static void check_loaded(struct str model, float n_at_first, const float *wanted) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, &plugin_lora_affinity_scorer, 5);
    say(&fixture, 0, "sql", "poems", 4);
    say(&fixture, 1, "poems", "sql", 2);
    say(&fixture, 2, "poems", "sql", 4); /* there is room: as if it did not wait */
    say(&fixture, 3, "poems", "jokes", 2);
    fixture.candidates.model = model;
    plugin_fixture_load(&fixture, 0, n_at_first);
    plugin_lora_affinity_scorer.score(fixture.parameters, &fixture.candidates, 1);
    for (uint32_t i = 0; i < 5; i++) {
        assert_near(fixture.score[i], wanted[i]);
    }
    plugin_fixture_close(&fixture);
}

static void check(struct str model, const float *wanted) {
    check_loaded(model, 0, wanted);
}

static void scorer_busy_endpoint_with_adapter_scores_zero(void **state) {
    static const float free_slots[] = {1, 0.6f, 0.8f, 0, 0}, busy[] = {0, 0.6f, 0.8f, 0, 0};
    (void)state;
    check_loaded(STR("sql"), 3, free_slots);
    check_loaded(STR("sql"), 4, busy);
}

static void scorer_loaded_adapter_scores_highest(void **state) {
    static const float wanted[] = {1, 0.6f, 0.8f, 0, 0}; /* the last one reports no adapters */
    (void)state;
    check(STR("sql"), wanted);
}

static void scorer_unloaded_adapter_scores_free_slots(void **state) {
    static const float wanted[] = {0.8f, 0, 0.8f, 0, 0};
    (void)state;
    check(STR("riddles"), wanted);
}

static void scorer_without_model_scores_zero(void **state) {
    static const float wanted[] = {0, 0, 0, 0, 0};
    (void)state;
    check(str_make(NULL, 0), wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_loaded_adapter_scores_highest),
        cmocka_unit_test(scorer_busy_endpoint_with_adapter_scores_zero),
        cmocka_unit_test(scorer_unloaded_adapter_scores_free_slots),
        cmocka_unit_test(scorer_without_model_scores_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
