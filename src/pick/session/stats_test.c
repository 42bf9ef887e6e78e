/* Rows: their names, their limit, and sums over workers. */
#include "pick/session/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct pick_stats *ledger_new(void) {
    struct pick_stats *stats = calloc(1, sizeof(*stats));
    assert_non_null(stats);
    return stats;
}

static void ledger_free(struct pick_stats *stats) {
    pick_stats_fini(stats);
    free(stats);
}

static struct pick_stats_row *row_of(struct pick_stats *stats, struct str model,
                                     struct str target) {
    struct pick_stats_row *row = pick_stats_get_row(stats, STR("p"), model, target);
    assert_non_null(row);
    return row;
}

static void stats_each_model_and_target_has_a_row(void **state) {
    struct pick_stats *stats = ledger_new();
    struct pick_stats_row *row = row_of(stats, STR("a"), STR("b"));
    (void)state;
    assert_ptr_equal(row_of(stats, STR("a"), STR("b")), row);
    assert_ptr_not_equal(row_of(stats, STR("a"), STR("a")), row);
    assert_ptr_not_equal(row_of(stats, STR("b"), STR("a")), row);
    assert_ptr_not_equal(row_of(stats, STR("ab"), STR("")), row);
    assert_ptr_not_equal(pick_stats_get_row(stats, STR("q"), STR("a"), STR("b")), row);
    assert_int_equal(stats->n_rows, 5);
    ledger_free(stats);
}

static void stats_rows_over_limit_count_as_other(void **state) {
    struct pick_stats *stats = ledger_new();
    struct pick_stats_row *first = row_of(stats, STR("model"), STR("0"));
    struct pick_stats_row *other = NULL;
    (void)state;
    for (unsigned i = 0; i < 3 * PICK_MAX_ROWS; i++) {
        char name[16];
        int n = snprintf(name, sizeof(name), "%u", i);
        other = row_of(stats, STR("model"), str_make(name, (size_t)n));
    }
    assert_int_equal(stats->n_rows, PICK_MAX_ROWS + 1);
    assert_true(str_eq(other->model, PICK_MODEL_OTHER));
    assert_ptr_equal(row_of(stats, STR("model"), STR("0")), first);
    ledger_free(stats);
}

static void stats_of_workers_are_summed(void **state) {
    struct pick_stats *all_stats[] = {ledger_new(), ledger_new()};
    struct arena *arena = arena_new(NULL, 0);
    struct pick_stats_sum *tallies;
    size_t n;
    struct error err;
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        struct pick_stats_row *row = row_of(all_stats[i], STR("b"), STR("b"));
        metric_cell_add(&row->n_picked, 3);
        metric_cell_add(&row->n_ended, i);
        metric_cell_add(&row->n_refused[ST_SATURATED], i + 1);
        metric_histogram_add_ns(&row->times, 5000);
    }
    metric_cell_add(&row_of(all_stats[1], STR("a"), STR("a"))->n_picked, 1);
    assert_int_equal(pick_stats_sum_all((const struct pick_stats *const *)all_stats, 2, arena,
                                        &tallies, &n, &err),
                     ST_OK);
    assert_int_equal(n, 2);
    assert_true(str_is(tallies[0].model, "a") && str_is(tallies[1].model, "b"));
    assert_int_equal(tallies[1].n_picked, 6);
    assert_int_equal(tallies[1].n_running, 5);
    assert_int_equal(tallies[1].n_refused[ST_SATURATED], 3);
    assert_int_equal(tallies[1].times.count, 2);
    assert_int_equal(tallies[1].times.sum, 10000);
    arena_free(arena);
    ledger_free(all_stats[0]);
    ledger_free(all_stats[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_each_model_and_target_has_a_row),
        cmocka_unit_test(stats_rows_over_limit_count_as_other),
        cmocka_unit_test(stats_of_workers_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
