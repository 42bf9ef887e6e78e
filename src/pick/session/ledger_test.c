/* Rows: their names, their bound, and several ledgers added up. */
#include "pick/session/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct pick_ledger *ledger_new(void) {
    struct pick_ledger *ledger = calloc(1, sizeof(*ledger));
    assert_non_null(ledger);
    return ledger;
}

static void ledger_free(struct pick_ledger *ledger) {
    pick_ledger_fini(ledger);
    free(ledger);
}

static struct pick_row *row_of(struct pick_ledger *ledger, struct str model, struct str target) {
    struct pick_row *row = pick_ledger_row(ledger, STR("p"), model, target);
    assert_non_null(row);
    return row;
}

static void a_row_for_each_pair(void **state) {
    struct pick_ledger *ledger = ledger_new();
    struct pick_row *row = row_of(ledger, STR("a"), STR("b"));
    (void)state;
    assert_ptr_equal(row_of(ledger, STR("a"), STR("b")), row);
    assert_ptr_not_equal(row_of(ledger, STR("a"), STR("a")), row);
    assert_ptr_not_equal(row_of(ledger, STR("b"), STR("a")), row);
    assert_ptr_not_equal(row_of(ledger, STR("ab"), STR("")), row);
    assert_ptr_not_equal(pick_ledger_row(ledger, STR("q"), STR("a"), STR("b")), row);
    assert_int_equal(ledger->n_rows, 5);
    ledger_free(ledger);
}

static void what_is_too_much_is_one_row(void **state) {
    struct pick_ledger *ledger = ledger_new();
    struct pick_row *first = row_of(ledger, STR("model"), STR("0"));
    struct pick_row *other = NULL;
    (void)state;
    for (unsigned i = 0; i < 3 * PICK_MOST_ROWS; i++) {
        char name[16];
        int n = snprintf(name, sizeof(name), "%u", i);
        other = row_of(ledger, STR("model"), str_make(name, (size_t)n));
    }
    assert_int_equal(ledger->n_rows, PICK_MOST_ROWS + 1);
    assert_true(str_eq(other->model, PICK_MODEL_OTHER));
    assert_ptr_equal(row_of(ledger, STR("model"), STR("0")), first);
    ledger_free(ledger);
}

static void several_are_added_up(void **state) {
    struct pick_ledger *ledgers[] = {ledger_new(), ledger_new()};
    struct arena *arena = arena_new(NULL, 0);
    struct pick_tally *tallies;
    size_t n;
    struct error err;
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        struct pick_row *row = row_of(ledgers[i], STR("b"), STR("b"));
        metric_cell_add(&row->n_picked, 3);
        metric_cell_add(&row->n_ended, i);
        metric_cell_add(&row->n_refused[ST_SATURATED], i + 1);
        metric_histogram_add_ns(&row->times, 5000);
    }
    metric_cell_add(&row_of(ledgers[1], STR("a"), STR("a"))->n_picked, 1);
    assert_int_equal(
        pick_ledger_read((const struct pick_ledger *const *)ledgers, 2, arena, &tallies, &n, &err),
        ST_OK);
    assert_int_equal(n, 2);
    assert_true(str_is(tallies[0].model, "a") && str_is(tallies[1].model, "b"));
    assert_int_equal(tallies[1].n_picked, 6);
    assert_int_equal(tallies[1].n_running, 5);
    assert_int_equal(tallies[1].n_refused[ST_SATURATED], 3);
    assert_int_equal(tallies[1].times.count, 2);
    assert_int_equal(tallies[1].times.sum, 10000);
    arena_free(arena);
    ledger_free(ledgers[0]);
    ledger_free(ledgers[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_for_each_pair),
        cmocka_unit_test(what_is_too_much_is_one_row),
        cmocka_unit_test(several_are_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
