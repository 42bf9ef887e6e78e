/* Which runs of a profile are measured, and which plugins have a row then. */
#include "pick/pool/profile/plugin_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/profile/score_cache.h"

static const struct profile_step FILTERS[] = {
    {.plugin = &plugin_decode_filter, .name = STR("decode-filter")}};
static const struct profile_step ENCODE_FILTERS[] = {
    {.plugin = &plugin_encode_filter, .name = STR("encode-filter")}};
static const struct profile_step SCORERS[] = {
    {.plugin = &plugin_queue_scorer, .weight = 1, .name = STR("one")},
    {.plugin = &plugin_queue_scorer, .weight = 1, .name = STR("other")}};

#define PROFILE(list)                                                                              \
    {                                                                                              \
        .name = STR("p"), .filters = (list), .n_filters = 1, .scorers = SCORERS, .n_scorers = 2,   \
        .picker = {                                                                                \
            .plugin = &plugin_max_score_picker,                                                    \
            .name = STR("max-score-picker")                                                        \
        }                                                                                          \
    }

static uint64_t count_of(const struct plugin_times_row *row) {
    uint64_t counts[PLUGIN_TIMES_CELLS] = {0}, n = 0;
    metric_scale_read(&PLUGIN_TIMES, row->cells, counts);
    for (size_t i = 0; i + 1 < PLUGIN_TIMES_CELLS; i++) {
        n += counts[i];
    }
    return n;
}

static void pick_times(struct fixture *fixture, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct pool_request request = {.model = {NULL, 0}};
        struct pool_pick out;
        struct error err;
        enum status st = pool_pick(fixture->reader, &request, &out, &err);
        if (st == ST_OK) {
            pool_release_ticket(fixture->pool, &out.ticket);
        } else {
            assert_int_equal(st, ST_NO_ENDPOINT);
        }
    }
}

static void assert_counts(const struct fixture *fixture, size_t n_rows, uint64_t count) {
    const struct plugin_times_row *const *rows;
    assert_int_equal(pool_plugin_times(fixture->pool, &rows), n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        assert_int_equal(count_of(rows[i]), count);
    }
}

static void open_pool(struct fixture *fixture, uint32_t n, const struct profile *profile) {
    struct pool_spec *spec = fixture_spec_of(n);
    spec->profile = profile;
    fixture_open(fixture, spec);
}

/* Two scorers of one type are told apart; the sums that the score cache has kept cost nothing. */
static void plugin_times_first_run_of_each_interval_is_measured(void **state) {
    static const struct profile profile = PROFILE(FILTERS);
    static const uint32_t sizes[] = {3, SCORE_CACHE_MIN_CANDIDATES};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct fixture fixture;
        const struct plugin_times_row *const *rows;
        open_pool(&fixture, sizes[k], &profile);
        assert_int_equal(pool_plugin_times(fixture.pool, &rows), 0);
        pick_times(&fixture, 1);
        assert_counts(&fixture, 4, 1);
        pick_times(&fixture, PLUGIN_TIMES_INTERVAL - 1);
        assert_counts(&fixture, 4, 1);
        pick_times(&fixture, 1);
        assert_counts(&fixture, 4, 2);
        assert_int_equal(pool_plugin_times(fixture.pool, &rows), 4);
        assert_int_equal(rows[0]->point, POINT_FILTER);
        assert_string_equal(rows[1]->type, "queue-scorer");
        assert_true(str_is(rows[1]->name, "one"));
        assert_true(str_is(rows[2]->name, "other"));
        assert_string_equal(plugin_point_name(rows[3]->point), "Picker");
        fixture_close(&fixture);
    }
}

/* Of plugins that did not run there is no time. */
static void plugin_times_scorers_after_a_filter_that_leaves_none_have_no_row(void **state) {
    static const struct profile profile = PROFILE(ENCODE_FILTERS);
    struct fixture fixture;
    (void)state;
    open_pool(&fixture, 3, &profile);
    pick_times(&fixture, 1);
    assert_counts(&fixture, 1, 1);
    fixture_close(&fixture);
}

static void plugin_times_rows_are_bounded(void **state) {
    struct plugin_times *times = calloc(1, sizeof(*times));
    struct plugin_clock clock = {.steps = 1, .step_ns = {1500000}};
    (void)state;
    assert_non_null(times);
    plugin_times_init(times);
    for (uint32_t i = 0; i < PLUGIN_TIMES_MAX_ROWS + 10; i++) {
        char name[16];
        int n = snprintf(name, sizeof(name), "p%u", i);
        const struct profile_step filter = {.plugin = &plugin_decode_filter,
                                            .name = str_make(name, (size_t)n)};
        const struct profile profile = {
            .filters = &filter, .n_filters = 1, .picker = {.plugin = &plugin_max_score_picker}};
        plugin_times_add(times, &profile, &clock);
        plugin_times_add(times, &profile, &clock);
    }
    assert_int_equal(times->n, PLUGIN_TIMES_MAX_ROWS);
    assert_int_equal(count_of(times->rows[PLUGIN_TIMES_MAX_ROWS - 1]), 2);
    plugin_times_fini(times);
    free(times);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugin_times_first_run_of_each_interval_is_measured),
        cmocka_unit_test(plugin_times_scorers_after_a_filter_that_leaves_none_have_no_row),
        cmocka_unit_test(plugin_times_rows_are_bounded),
    };
    return cmocka_run_group_tests_name("pick/pool/profile/plugin_times", tests, NULL, NULL);
}
