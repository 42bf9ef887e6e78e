/* Which connection goes when there is no room: of the peer that has the most, the one that is idle
 * longest; a busy one never. */
#include "net/transport/conn_table.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "net/transport/address.h"

enum { MANY = 3000, NOW = 1000000 };

struct world {
    struct conn_table table;
    struct conn_entry conns[MANY];
};

static struct world *world_new(void) {
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    conn_table_init(&world->table);
    conn_table_init(&world->table); /* of a second server */
    return world;
}

static void add(struct world *world, size_t i, uint64_t host, uint64_t idle_since_ns) {
    conn_entry_set_idle(&world->conns[i], idle_since_ns);
    conn_entry_set_waiting(&world->conns[i], CONN_BUSY);
    conn_table_add(&world->table, &world->conns[i], host);
}

/* Returns: the index of the next that goes; -1: none. */
static int take(struct world *world) {
    const struct conn_search any = {0, NOW};
    struct conn_entry *entry = conn_table_take_idle(&world->table, &any, NOW);
    if (!entry) {
        return -1;
    }
    assert_true(entry->taken && entry->called);
    _Atomic uint64_t n_places = 1;
    /* Its place is that of another one. */
    assert_false(conn_table_remove(&world->table, entry, &n_places));
    assert_int_equal(n_places, 1);
    return (int)(entry - world->conns);
}

static void world_free(struct world *world) {
    size_t n_left = 0;
    _Atomic uint64_t n_places = MANY;
    for (size_t i = 0; i < MANY; i++) {
        n_left += conn_table_remove(&world->table, &world->conns[i], &n_places) ? 1 : 0;
    }
    assert_int_equal(n_places, MANY - n_left);
    assert_true(n_left <= MANY);
    assert_int_equal(world->table.by_size.cap, 0); /* nothing is left to free */
    lock_fini(&world->table.lock);
    free(world);
}

static void conn_table_peer_with_most_loses_its_oldest(void **state) {
    (void)state;
    struct world *world = world_new();
    add(world, 0, 7, 5); /* the oldest of all, of a peer that has two */
    add(world, 1, 7, 90);
    add(world, 2, 8, 30);
    add(world, 3, 8, 10);
    add(world, 4, 8, 20);
    add(world, 5, 8, CONN_BUSY);
    add(world, 6, 9, 1);
    const int order[] = {3, 4, 0}; /* then both have two, one of which is busy */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(take(world), order[i]);
    }
    assert_int_equal(take(world), 2);
    int last[] = {take(world), take(world)};
    assert_true((last[0] == 1 && last[1] == 6) || (last[0] == 6 && last[1] == 1));
    assert_int_equal(take(world), -1);
    world_free(world);
}

static void conn_table_times_that_changed_are_looked_at(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < 4; i++) {
        add(world, i, 7, 10 * i);
    }
    conn_entry_set_idle(&world->conns[0], 500); /* it has had a request */
    conn_entry_set_idle(&world->conns[1], CONN_BUSY);
    assert_int_equal(take(world), 2);
    conn_entry_set_idle(&world->conns[1], 400);
    assert_int_equal(take(world), 3);
    /* At NOW it was known to be busy, so 1 is taken for one that is idle since then. */
    assert_int_equal(take(world), 0);
    assert_int_equal(take(world), 1);
    assert_int_equal(take(world), -1);
    world_free(world);
}

static void conn_table_that_stays_is_added_again(void **state) {
    (void)state;
    struct world *world = world_new();
    add(world, 0, 7, 10);
    assert_int_equal(take(world), 0);
    add(world, 0, 7, CONN_BUSY);
    assert_false(world->conns[0].taken || world->conns[0].called);
    assert_int_equal(take(world), -1);
    _Atomic uint64_t n_places = 1;
    assert_true(conn_table_remove(&world->table, &world->conns[0], &n_places));
    assert_int_equal(n_places, 0);
    world_free(world);
}

/* A search is limited; what it has looked at is not looked at again. */
static void conn_table_idle_one_among_busy_ones_is_found(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < MANY; i++) {
        add(world, i, 7, CONN_BUSY);
    }
    conn_entry_set_idle(&world->conns[MANY / 2], 10);
    int found = -1, n = 0;
    for (; found < 0 && n < 20; n++) {
        found = take(world);
    }
    assert_int_equal(found, MANY / 2);
    assert_true(n < 10);
    world_free(world);
}

static void conn_table_idle_one_of_a_small_peer_is_found(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < 100; i++) {
        add(world, i, i % 10, CONN_BUSY);
    }
    add(world, 100, 99, 10);
    assert_int_equal(take(world), 100);
    world_free(world);
}

static void conn_table_idle_ones_of_small_peers_are_kept(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < 5; i++) {
        add(world, i, 7, 10);
    }
    const struct conn_search old = {5, 10}, older = {5, 9};
    assert_null(conn_table_take_idle(&world->table, &old, NOW));
    add(world, 5, 7, 10);
    assert_null(conn_table_take_idle(&world->table, &older, NOW));
    assert_non_null(conn_table_take_idle(&world->table, &old, NOW));
    assert_null(conn_table_take_idle(&world->table, &old, NOW));
    world_free(world);
}

/* Returns: the index of the one that goes for another of `host`; -1: none. */
static int take_waiting(struct world *world, uint64_t host) {
    struct conn_entry *entry = conn_table_take_waiting(&world->table, host);
    if (!entry) {
        return -1;
    }
    assert_true(entry->taken && entry->called && entry->was_waiting);
    return (int)(entry - world->conns);
}

static void conn_table_waiting_one_goes_for_a_peer_that_has_fewer(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < CONN_TABLE_KEPT + 2; i++) {
        add(world, i, 7, CONN_BUSY);
    }
    assert_int_equal(take_waiting(world, 8), -1); /* all are busy */
    conn_entry_set_waiting(&world->conns[3], 200);
    conn_entry_set_waiting(&world->conns[5], 100);
    conn_entry_set_waiting(&world->conns[1], 300);
    assert_int_equal(take_waiting(world, 7), -1); /* no other peer has more */
    assert_int_equal(take_waiting(world, 8), 5);
    assert_int_equal(take_waiting(world, 8), 3);
    assert_int_equal(take_waiting(world, 8), -1); /* it has CONN_TABLE_KEPT */
    for (size_t i = 0; i < CONN_TABLE_KEPT; i++) {
        add(world, 100 + i, 8, CONN_BUSY);
        add(world, 200 + i, 7, CONN_BUSY);
    }
    for (size_t i = 0; i < CONN_TABLE_KEPT - 1; i++) {
        add(world, 300 + i, 8, CONN_BUSY);
    }
    assert_int_equal(take_waiting(world, 8), -1); /* then it would have as many */
    assert_int_equal(take_waiting(world, 9), 1);
    world_free(world);
}

/* Returns: of those that have a descriptor in this test, the first. */
static size_t choose(struct conn_entry *const *entries, size_t n) {
    size_t i = 0;
    assert_in_range(n, 1, CONN_TABLE_LOOKED);
    while (i < n && entries[i]->fd < 0) {
        i++;
    }
    return i;
}

static int take_left(struct world *world, size_t n_kept) {
    struct conn_entry *entry = conn_table_take_left(&world->table, n_kept, choose);
    if (!entry) {
        return -1;
    }
    assert_true(entry->taken && entry->called && entry->had_left && !entry->was_waiting);
    return (int)(entry - world->conns);
}

static void conn_table_one_whose_client_left_goes_wherever_it_is(void **state) {
    (void)state;
    struct world *world = world_new();
    for (size_t i = 0; i < MANY; i++) {
        conn_entry_set_fd(&world->conns[i], -1);
        add(world, i, i < 3 ? 8 : 7, CONN_BUSY);
    }
    assert_int_equal(take_left(world, 0), -1);
    const int left[] = {2900, 1500, 3};
    for (size_t i = 0; i < 3; i++) { /* of many, some are looked at each time */
        conn_entry_set_fd(&world->conns[left[i]], 1);
        int found = -1;
        for (int k = 0; k <= MANY / CONN_TABLE_LOOKED && found < 0; k++) {
            found = take_left(world, 0);
        }
        assert_int_equal(found, left[i]);
    }
    conn_entry_set_fd(&world->conns[1], 1);
    for (int k = 0; k <= MANY / CONN_TABLE_LOOKED + 1; k++) {
        assert_int_equal(take_left(world, 3), -1); /* of a peer that has as few */
    }
    world_free(world);
}

static struct address address_of(const char *text) {
    struct address address = {0};
    struct error err;
    assert_int_equal(address_parse(str_of(text), &address, &err), ST_OK);
    return address;
}

static void address_peer_hash_is_that_of_the_host(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"127.0.0.1:80", "127.0.0.1:81", true},
        {"127.0.0.1:80", "127.0.0.2:80", false},
        {"127.0.0.1:80", "[::ffff:127.0.0.1]:80", true},
        {"[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.2]:80", false},
        {"[2001:db8::1]:80", "[2001:db8::2]:80", true}, /* one host may have both */
        {"[2001:db8::1]:80", "[2001:db8:0:1::1]:80", false},
        {"unix:/a", "unix:/b", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct address a = address_of(rows[i].a), b = address_of(rows[i].b);
        assert_int_equal(address_peer_hash(&a) == address_peer_hash(&b), rows[i].same);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conn_table_peer_with_most_loses_its_oldest),
        cmocka_unit_test(conn_table_times_that_changed_are_looked_at),
        cmocka_unit_test(conn_table_that_stays_is_added_again),
        cmocka_unit_test(conn_table_idle_one_among_busy_ones_is_found),
        cmocka_unit_test(conn_table_idle_one_of_a_small_peer_is_found),
        cmocka_unit_test(conn_table_idle_ones_of_small_peers_are_kept),
        cmocka_unit_test(conn_table_waiting_one_goes_for_a_peer_that_has_fewer),
        cmocka_unit_test(conn_table_one_whose_client_left_goes_wherever_it_is),
        cmocka_unit_test(address_peer_hash_is_that_of_the_host),
    };
    return cmocka_run_group_tests_name("net/transport/conn_table", tests, NULL, NULL);
}
