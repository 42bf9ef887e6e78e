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

static struct pick_stats *ledger_new_with(const struct hash_key *key) {
    struct pick_stats *stats = calloc(1, sizeof(*stats));
    assert_non_null(stats);
    stats->key = key;
    return stats;
}

static struct pick_stats *ledger_new(void) {
    static const struct hash_key key = {{1, 2, 3}};
    return ledger_new_with(&key);
}

static void ledger_free(struct pick_stats *stats) {
    pick_stats_fini(stats);
    free(stats);
}

static struct pick_stats_row *row_of(struct pick_stats *stats, struct str model,
                                     struct str target) {
    struct pick_stats_key key = {STR("p"), model, target, PICK_FAIRNESS_NONE, 0};
    struct pick_stats_row *row = pick_stats_get_row(stats, &key);
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
    struct pick_stats_key key = {STR("q"), STR("a"), STR("b"), PICK_FAIRNESS_NONE, 0};
    assert_ptr_not_equal(pick_stats_get_row(stats, &key), row);
    key = (struct pick_stats_key){STR("p"), STR("a"), STR("b"), STR("team"), 0};
    assert_ptr_not_equal(pick_stats_get_row(stats, &key), row);
    key = (struct pick_stats_key){STR("p"), STR("a"), STR("b"), PICK_FAIRNESS_NONE, -1};
    assert_ptr_not_equal(pick_stats_get_row(stats, &key), row);
    assert_int_equal(stats->n_rows, 7);
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
    assert_true(str_eq(other->key.model, PICK_LABEL_OTHER));
    assert_ptr_equal(row_of(stats, STR("model"), STR("0")), first);
    ledger_free(stats);
}

/* Made-up fairness ids do not keep models from having rows. */
static void stats_fairness_ids_over_limit_count_as_other(void **state) {
    struct pick_stats *stats = ledger_new();
    struct pick_stats_row *row = NULL;
    (void)state;
    for (unsigned i = 0; i < 2 * PICK_MAX_ROWS; i++) {
        char id[16];
        int n = snprintf(id, sizeof(id), "%u", i);
        row = pick_stats_get_row(stats, &(struct pick_stats_key){STR("p"), STR("m"), STR("m"),
                                                                 str_make(id, (size_t)n), 0});
    }
    assert_int_equal(stats->n_rows, PICK_MAX_FAIR_ROWS + 1);
    assert_true(str_is(row->key.model, "m") && str_eq(row->key.fairness_id, PICK_LABEL_OTHER));
    assert_true(str_is(row_of(stats, STR("new"), STR("new"))->key.model, "new"));
    ledger_free(stats);
}

/* The slots of eight rows whose model (or fairness id) is a number. */
static void find_slots(struct pick_stats *stats, bool by_fairness_id, size_t out[8]) {
    for (unsigned i = 0; i < 8; i++) {
        char name[2] = {(char)('0' + i), 0};
        struct str own = str_make(name, 1), same = STR("same");
        struct pick_stats_key key = {STR("p"), by_fairness_id ? same : own, STR("t"),
                                     by_fairness_id ? own : same, 0};
        const struct pick_stats_row *row = pick_stats_get_row(stats, &key);
        assert_non_null(row);
        out[i] = 0;
        while (atomic_load(&stats->slots[out[i]]) != row) {
            out[i]++;
        }
    }
}

/* Clients choose models and fairness ids: without the key they cannot tell which share a slot. */
static void stats_slots_depend_on_key(void **state) {
    struct hash_key keys[2];
    (void)state;
    hash_key_init(&keys[0]);
    hash_key_init(&keys[1]);
    for (int by_fairness_id = 0; by_fairness_id < 2; by_fairness_id++) {
        struct pick_stats *one = ledger_new_with(&keys[0]), *other = ledger_new_with(&keys[1]),
                          *again = ledger_new_with(&keys[0]);
        size_t slots[3][8];
        find_slots(one, by_fairness_id, slots[0]);
        find_slots(other, by_fairness_id, slots[1]);
        find_slots(again, by_fairness_id, slots[2]);
        assert_memory_not_equal(slots[0], slots[1], sizeof(slots[0]));
        assert_memory_equal(slots[0], slots[2], sizeof(slots[0]));
        assert_int_not_equal(row_of(one, STR("m"), STR("t"))->target_hash,
                             row_of(other, STR("m"), STR("t"))->target_hash);
        assert_int_equal(row_of(one, STR("m"), STR("t"))->target_hash,
                         row_of(again, STR("m"), STR("t"))->target_hash);
        ledger_free(one);
        ledger_free(other);
        ledger_free(again);
    }
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
        metric_cell_add(&row->n_queued, 2);
        metric_cell_add(&row->n_dequeued, 1);
        pick_stats_row_add(row, PICK_HISTOGRAM_DURATION, 5000000);
        if (i == 1) {
            pick_stats_row_add(row, PICK_HISTOGRAM_INPUT_TOKENS, 9);
        }
    }
    metric_cell_add(&row_of(all_stats[1], STR("a"), STR("a"))->n_picked, 1);
    assert_int_equal(pick_stats_sum_all((const struct pick_stats *const *)all_stats, 2, arena,
                                        &tallies, &n, &err),
                     ST_OK);
    assert_int_equal(n, 2);
    assert_true(str_is(tallies[0].key.model, "a") && str_is(tallies[1].key.model, "b"));
    assert_int_equal(tallies[1].n_picked, 6);
    assert_int_equal(tallies[1].n_running, 5);
    assert_int_equal(tallies[1].n_refused[ST_SATURATED], 3);
    assert_int_equal(tallies[1].n_queued, 2);
    assert_int_equal(tallies[1].histograms[PICK_HISTOGRAM_DURATION][0], 2);
    assert_int_equal(tallies[1].histograms[PICK_HISTOGRAM_DURATION][36], 10000000);
    assert_int_equal(tallies[1].histograms[PICK_HISTOGRAM_INPUT_TOKENS][2], 1);
    assert_null(tallies[1].histograms[PICK_HISTOGRAM_OUTPUT_TOKENS]);
    assert_null(tallies[0].histograms[PICK_HISTOGRAM_DURATION]);
    arena_free(arena);
    ledger_free(all_stats[0]);
    ledger_free(all_stats[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_each_model_and_target_has_a_row),
        cmocka_unit_test(stats_rows_over_limit_count_as_other),
        cmocka_unit_test(stats_fairness_ids_over_limit_count_as_other),
        cmocka_unit_test(stats_slots_depend_on_key),
        cmocka_unit_test(stats_of_workers_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
