/* Load reports: stored, corrected, expired, and kept across updates of the pool. */
#include "pick/pool/endpoint/load.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"

static void load_estimate_is_adjusted_by_requests_in_flight(void **state) {
    static const struct {
        uint32_t waiting, running;
        int64_t n_sent;
        uint32_t waiting_then, running_then;
    } rows[] = {
        {0, 0, 0, 0, 0},  {0, 0, 3, 3, 3},  {0, 5, 2, 2, 7},  {4, 5, 2, 6, 5},  {4, 5, -3, 1, 5},
        {4, 5, -6, 0, 3}, {0, 5, -2, 0, 3}, {1, 1, -9, 0, 0}, {0, 0, -1, 0, 0}, {4, 5, -4, 0, 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct load_estimate now = {.n_waiting = rows[i].waiting, .n_running = rows[i].running};
        load_estimate_adjust(&now, rows[i].n_sent);
        assert_int_equal(now.n_waiting, rows[i].waiting_then);
        assert_int_equal(now.n_running, rows[i].running_then);
    }
}

/* Our requests that the page does not show wait: a server hangs, and says that it is idle. */
static void load_unreported_requests_count_as_waiting(void **state) {
    static const struct {
        unsigned known;
        uint32_t in_flight, waiting, running, in_flight_now, waiting_now;
    } rows[] = {
        {LOAD_WAITING | LOAD_RUNNING, 16, 0, 0, 16, 16},
        {LOAD_WAITING | LOAD_RUNNING, 16, 0, 0, 20, 20},
        {LOAD_WAITING | LOAD_RUNNING, 16, 2, 8, 16, 8},
        {LOAD_WAITING | LOAD_RUNNING, 16, 2, 8, 10, 2},
        {LOAD_WAITING | LOAD_RUNNING, 16, 0, 16, 16, 0},
        {LOAD_WAITING | LOAD_RUNNING, 16, 9, 40, 16, 9},
        {LOAD_WAITING, 16, 3, 0, 16, 3}, /* running ones are not reported */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct endpoint_load load = {.until_ns = 2,
                                     .known = rows[i].known,
                                     .in_flight = rows[i].in_flight,
                                     .n_waiting = rows[i].waiting,
                                     .n_running = rows[i].running},
                             out;
        struct load_cell cell = {0};
        struct load_adapters adapters = {0};
        load_cell_set(&load, &cell, &adapters);
        assert_int_equal(load_estimate_get(&cell, 1, rows[i].in_flight_now).n_waiting,
                         rows[i].waiting_now);
        load_cell_get(&cell, &adapters, 1, &out);
        assert_int_equal(out.n_waiting, rows[i].waiting); /* as reported, for pages */
    }
}

/* A page that does not show most of our requests reports what the others of them use. */
static void load_kv_cache_is_lower_bound_where_requests_are_unreported(void **state) {
    static const struct {
        uint32_t in_flight, waiting, running;
        bool least;
    } rows[] = {{16, 0, 0, true},   {16, 2, 5, true}, {16, 2, 6, false},
                {16, 0, 16, false}, {0, 0, 0, false}, {0, 0, 9, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct endpoint_load load = {.until_ns = 2,
                                     .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE,
                                     .in_flight = rows[i].in_flight,
                                     .n_waiting = rows[i].waiting,
                                     .n_running = rows[i].running,
                                     .kv_cache_used = 0.25F},
                             out;
        struct load_cell cell = {0};
        struct load_adapters adapters = {0};
        load_cell_set(&load, &cell, &adapters);
        struct load_estimate now = load_estimate_get(&cell, 1, rows[i].in_flight);
        assert_int_equal((now.known & LOAD_KV_CACHE_LEAST) != 0, rows[i].least);
        assert_true(now.known & LOAD_KV_CACHE);
        assert_float_equal(now.kv_cache_used, 0.25F, 0);
        assert_true(now.known & LOAD_WAITING);
        load_cell_get(&cell, &adapters, 1, &out); /* as it was reported */
        assert_true(out.known & LOAD_KV_CACHE);
    }
}

/* A page that reports as many requests as fit: one more of ours does not make them none. */
static void load_of_most_requests_stays_high(void **state) {
    struct endpoint_load load = {.until_ns = 2,
                                 .known = LOAD_WAITING | LOAD_RUNNING,
                                 .n_waiting = UINT32_MAX,
                                 .n_running = UINT32_MAX};
    struct load_cell cell = {0};
    struct load_adapters adapters = {0};
    (void)state;
    load_cell_set(&load, &cell, &adapters);
    assert_true(load_estimate_get(&cell, 1, 1).n_waiting > 1 << 29);
    load.n_waiting = 0;
    load_cell_set(&load, &cell, &adapters);
    assert_true(load_estimate_get(&cell, 1, 1).n_running > 1 << 29);
}

static void load_kv_cache_outside_0_to_1_is_clamped(void **state) {
    static const struct {
        float said, kept;
        bool known;
    } rows[] = {{0.25f, 0.25f, true}, {1, 1, true},    {0, 0, true},        {1.5f, 1, true},
                {-1, 0, false},       {NAN, 0, false}, {INFINITY, 1, true}, {-0.0f, 0, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct endpoint_load load = {
            .until_ns = 2, .known = LOAD_KV_CACHE, .kv_cache_used = rows[i].said};
        struct load_cell cell = {0};
        struct load_adapters adapters = {0};
        load_cell_set(&load, &cell, &adapters);
        struct load_estimate now = load_estimate_get(&cell, 1, 0);
        assert_int_equal(now.known, rows[i].known ? LOAD_KV_CACHE : 0);
        assert_true(now.kv_cache_used == rows[i].kept);
    }
}

static void load_adapters_are_added_and_counted(void **state) {
    struct endpoint_load load = {.until_ns = 2, .known = LOAD_ADAPTERS, .max_adapters = 4}, out;
    struct load_cell cell = {0};
    struct load_adapters adapters = {0};
    (void)state;
    assert_true(load_add_adapter(&load, STR("sql"), false));
    assert_true(load_add_adapter(&load, STR("poems"), true));
    for (int i = 2; i < LOAD_MAX_ADAPTERS; i++) {
        assert_true(load_add_adapter(&load, STR(""), true));
    }
    assert_false(load_add_adapter(&load, STR("one more"), false));
    load_cell_set(&load, &cell, &adapters);
    load_cell_get(&cell, &adapters, 1, &out);
    assert_memory_equal(&out, &load, sizeof(out));
    assert_int_equal(out.adapters[0], load_adapter_hash(STR("sql")));
    assert_int_not_equal(out.adapters[0], out.adapters[1]);
}

static void load_cell_with_impossible_counts_stays_in_bounds(void **state) {
    struct endpoint_load load = {.until_ns = 2,
                                 .known = LOAD_ADAPTERS,
                                 .n_running_adapters = UINT32_MAX,
                                 .n_waiting_adapters = UINT32_MAX},
                         out;
    struct load_cell cell = {0};
    struct load_adapters adapters = {0};
    (void)state;
    load_cell_set(&load, &cell, &adapters);
    load_cell_get(&cell, &adapters, 1, &out);
    assert_int_equal(out.n_running_adapters, LOAD_MAX_ADAPTERS);
    assert_int_equal(out.n_waiting_adapters, 0);
}

/* ---- in a pool ------------------------------------------------------------------------------- */

static struct endpoint_load known_of(const struct fixture *fixture, uint32_t i) {
    struct endpoint_load load;
    struct endpoint_address address = fixture_numbered(i);
    struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    pool_snapshot_get_load(snapshot, pool_snapshot_find(snapshot, &address), clock_now_ns(), &load);
    return load;
}

static void load_is_unknown_after_it_expires(void **state) {
    struct fixture fixture;
    struct endpoint_load load = {
        .asked_ns = 100, .until_ns = 200, .known = LOAD_WAITING | LOAD_RUNNING, .n_waiting = 7};
    (void)state;
    clock_set_fake_ns(100);
    fixture_open(&fixture, fixture_spec_of(3));
    pool_set_load(fixture.pool, pool_reader_refresh(fixture.reader)->members[1].endpoint, &load);
    assert_int_equal(known_of(&fixture, 0).known, 0);
    assert_int_equal(known_of(&fixture, 1).known, LOAD_WAITING | LOAD_RUNNING);
    assert_int_equal(known_of(&fixture, 1).n_waiting, 7);
    clock_set_fake_ns(199);
    assert_int_equal(known_of(&fixture, 1).known, LOAD_WAITING | LOAD_RUNNING);
    clock_set_fake_ns(200);
    assert_int_equal(known_of(&fixture, 1).known, 0);
    fixture_close(&fixture);
    clock_set_fake_ns(0);
}

static void load_survives_pool_update(void **state) {
    struct fixture fixture;
    struct endpoint_load load = {.asked_ns = 1, .until_ns = 200, .known = LOAD_WAITING};
    (void)state;
    clock_set_fake_ns(100);
    fixture_open(&fixture, fixture_spec_of(4));
    for (uint32_t i = 0; i < 4; i++) {
        load.n_waiting = i + 1;
        pool_set_load(fixture.pool, pool_reader_refresh(fixture.reader)->members[i].endpoint,
                      &load);
    }
    struct pool_pick last = fixture_pick(&fixture); /* its ticket keeps the endpoint */
    fixture_update(fixture.pool, fixture_spec_of(2));
    assert_int_equal(known_of(&fixture, 1).n_waiting, 2);
    fixture_update(fixture.pool, fixture_spec_of(5)); /* endpoints added again are new */
    assert_int_equal(known_of(&fixture, 0).n_waiting, 1);
    assert_int_equal(known_of(&fixture, 1).n_waiting, 2);
    for (uint32_t i = 2; i < 5; i++) {
        assert_int_equal(known_of(&fixture, i).known, 0);
    }
    pool_release_ticket(fixture.pool, &last.ticket);
    fixture_close(&fixture);
    clock_set_fake_ns(0);
}

/* An endpoint that only a ticket keeps, after it left the pool. */
static void load_of_removed_endpoint_is_ignored(void **state) {
    struct fixture fixture;
    struct endpoint_load load = {.asked_ns = 1, .until_ns = UINT64_MAX, .known = LOAD_WAITING};
    (void)state;
    fixture_open(&fixture, fixture_spec_of(1));
    struct pool_pick pick = fixture_pick(&fixture);
    fixture_update(fixture.pool, fixture_spec());
    pool_set_load(fixture.pool, pick.ticket.endpoint, &load);
    pool_release_ticket(fixture.pool, &pick.ticket);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_unreported_requests_count_as_waiting),
        cmocka_unit_test(load_kv_cache_is_lower_bound_where_requests_are_unreported),
        cmocka_unit_test(load_estimate_is_adjusted_by_requests_in_flight),
        cmocka_unit_test(load_of_most_requests_stays_high),
        cmocka_unit_test(load_kv_cache_outside_0_to_1_is_clamped),
        cmocka_unit_test(load_adapters_are_added_and_counted),
        cmocka_unit_test(load_cell_with_impossible_counts_stays_in_bounds),
        cmocka_unit_test(load_is_unknown_after_it_expires),
        cmocka_unit_test(load_survives_pool_update),
        cmocka_unit_test(load_of_removed_endpoint_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
