/* Sessions are bound, moved, forgotten in time, and displaced where there are too many. */
#include "pick/pool/profile/session_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const struct session_expiry EXPIRY = {.ttl_ns = 100, .sweep_ns = 30};

static struct keyed_hash session(const struct session_table *table, const char *name) {
    return session_table_hash(table, str_of(name));
}

static uint64_t find(const struct session_table *table, const char *name, uint64_t now_ns) {
    return session_table_find(table, session(table, name), now_ns, &EXPIRY);
}

static void bind_to(struct session_table *table, const char *name, uint64_t endpoint, bool moves,
                    uint64_t now_ns) {
    session_table_bind(table, session(table, name), endpoint, moves, now_ns, &EXPIRY);
}

static void table_sessions_stay_unless_moved(void **state) {
    (void)state;
    struct session_table *table = session_table_new(5);
    assert_non_null(table);
    assert_int_equal(session_table_owner(table), 5);
    assert_int_equal(find(table, "a", 10), 0);
    bind_to(table, "a", 7, false, 10);
    bind_to(table, "b", UINT64_MAX, false, 10);
    assert_int_equal(find(table, "a", 10), 7);
    assert_true(find(table, "b", 10) == UINT64_MAX);
    assert_int_equal(find(table, "c", 10), 0);
    bind_to(table, "a", 8, false, 20);
    assert_int_equal(find(table, "a", 20), 7);
    bind_to(table, "a", 8, true, 20);
    assert_int_equal(find(table, "a", 20), 8);
    session_table_ref(table);
    session_table_unref(table);
    assert_int_equal(find(table, "a", 20), 8);
    session_table_unref(table);
}

/* Used at 45, with 100 of life: the sweep at 150 is the first one beyond. */
static void table_sessions_end_at_a_sweep(void **state) {
    (void)state;
    struct session_table *table = session_table_new(0);
    bind_to(table, "a", 7, false, 20);
    bind_to(table, "a", 7, false, 45);
    assert_int_equal(find(table, "a", 149), 7);
    assert_int_equal(find(table, "a", 150), 0);
    bind_to(table, "a", 8, false, 149); /* it is still the other's */
    assert_int_equal(find(table, "a", 149), 7);
    bind_to(table, "a", 8, false, 150);
    assert_int_equal(find(table, "a", 150), 8);
    bind_to(table, "b", 9, false, 10); /* a time before the last use */
    assert_int_equal(find(table, "b", 5), 9);
    session_table_unref(table);
}

/* Of many sessions the table keeps as many as it has places, and the newest ones of each group. */
static void table_keeps_the_newest(void **state) {
    enum { N = 4 * SESSION_TABLE_PLACES };
    static const struct session_expiry never = {.ttl_ns = UINT64_MAX / 2, .sweep_ns = 1};
    struct session_table *table = session_table_new(0);
    size_t n_kept = 0, n_new = 0;
    char name[32];
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 1; i <= N; i++) {
            struct str text = str_make(name, (size_t)snprintf(name, sizeof(name), "s%d", (int)i));
            struct keyed_hash hash = session_table_hash(table, text);
            uint64_t found = pass == 0 ? 0 : session_table_find(table, hash, N, &never);
            if (pass == 0) {
                session_table_bind(table, hash, i, false, i, &never);
                assert_int_equal(session_table_find(table, hash, N, &never), i);
            }
            assert_true(found == 0 || found == i);
            n_kept += found != 0;
            n_new += found != 0 && i > N / 2;
        }
    }
    assert_int_equal(n_kept, SESSION_TABLE_PLACES);
    assert_true(n_new > SESSION_TABLE_PLACES * 9 / 10);
    session_table_unref(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_sessions_stay_unless_moved),
        cmocka_unit_test(table_sessions_end_at_a_sweep),
        cmocka_unit_test(table_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
