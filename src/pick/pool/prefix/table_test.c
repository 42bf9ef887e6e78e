/* The prefix table: matches, expiry, bounded memory, and consistency with many threads. */
#include "pick/pool/prefix/table.h"

#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/random.h"

enum { N = 16, MANY = 1 << 30 };

static struct prefix_table *open_table(size_t max_bytes) {
    struct prefix_table *table;
    struct error err;
    assert_int_equal(prefix_table_new(max_bytes, 0, &table, &err), ST_OK);
    return table;
}

/* Prompt `i`; no two prompts have a block in common. */
static void roll(uint64_t i, uint64_t hashes[N]) {
    struct prng prng = {i * 7919 + 1};
    for (int k = 0; k < N; k++) {
        hashes[k] = prng_next(&prng);
    }
}

static struct prefix_key key_of(const uint64_t *hashes, uint32_t n) {
    return (struct prefix_key){.hashes = hashes, .n = n};
}

static void add(struct prefix_table *table, uint32_t host, uint32_t capacity,
                const uint64_t *hashes, uint32_t n) {
    struct prefix_key key = key_of(hashes, n);
    prefix_table_add(table, host, capacity, &key);
}

static void hold(struct prefix_table *table, uint32_t host, const uint64_t *hashes, uint32_t n,
                 struct prefix_hold *out) {
    struct prefix_key key = key_of(hashes, n);
    prefix_table_hold(table, host, &key, out);
}

static uint32_t match_key(const struct prefix_table *table, const struct prefix_key *key,
                          uint32_t host) {
    struct prefix_hit hits[PREFIX_MAX_HOSTS];
    uint32_t n_hits = prefix_table_find(table, key, hits), n = key->n, found = 0;
    assert_true(n_hits <= PREFIX_MAX_HOSTS);
    for (uint32_t i = 0; i < n_hits; i++) {
        assert_true(hits[i].n_blocks >= 1 && hits[i].n_blocks <= n);
        found = hits[i].host == host ? hits[i].n_blocks : found;
    }
    return found;
}

/* The number of first blocks that the host has. */
static uint32_t match(const struct prefix_table *table, const uint64_t *hashes, uint32_t n,
                      uint32_t host) {
    struct prefix_key key = key_of(hashes, n);
    return match_key(table, &key, host);
}

/* ---- matches --------------------------------------------------------------------------------- */

static void prefix_table_finds_hosts_of_prefix(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t one[N], other[N];
    uint32_t a = prefix_table_add_host(table), b = prefix_table_add_host(table);
    (void)state;
    roll(1, one);
    roll(2, other);
    assert_int_equal(match(table, one, N, a), 0);
    add(table, a, MANY, one, N);
    assert_int_equal(match(table, one, N, a), N);
    assert_int_equal(match(table, one, 3, a), 3);
    assert_int_equal(match(table, one, N, b), 0);
    assert_int_equal(match(table, other, N, a), 0);
    /* The same beginning, then different blocks. */
    other[0] = one[0], other[1] = one[1];
    assert_int_equal(match(table, other, N, a), 2);
    add(table, b, MANY, other, N);
    assert_int_equal(match(table, other, N, b), N);
    assert_int_equal(match(table, one, N, b), 2);
    assert_int_equal(match(table, one, N, a), N);
    /* Blocks that were not sent as a beginning do not match as one. */
    assert_int_equal(match(table, one + 1, N - 1, b), 1);
    assert_int_equal(match(table, one + 2, N - 2, b), 0);
    assert_int_equal(match(table, one, 0, a), 0);
    prefix_table_unref(table);
}

static void prefix_table_entry_keeps_latest_hosts(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    struct prefix_hit hits[PREFIX_MAX_HOSTS];
    uint64_t hashes[N];
    uint32_t hosts[100];
    (void)state;
    roll(1, hashes);
    for (int i = 0; i < 100; i++) {
        hosts[i] = prefix_table_add_host(table);
        add(table, hosts[i], MANY, hashes, N);
        assert_int_equal(match(table, hashes, N, hosts[i]), N);
        /* A host that was displaced lost its whole chain. */
        struct prefix_key key = key_of(hashes, N);
        uint32_t n = prefix_table_find(table, &key, hits);
        assert_int_equal(n, i < PREFIX_MAX_HOSTS ? i + 1 : PREFIX_MAX_HOSTS);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(hits[k].n_blocks, N);
        }
    }
    prefix_table_unref(table);
}

/* All prompts begin alike, which more hosts were sent than an entry has owners: each prompt finds
 * the host that was sent its end. */
static void prefix_table_common_beginning_hides_no_host(void **state) {
    enum { HOSTS = 3 * PREFIX_MAX_HOSTS };
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t prompts[HOSTS][N];
    uint32_t hosts[HOSTS];
    (void)state;
    for (uint64_t i = 0; i < HOSTS; i++) {
        roll(i, prompts[i]);
        prompts[i][0] = prompts[0][0], prompts[i][1] = prompts[0][1];
        hosts[i] = prefix_table_add_host(table);
        add(table, hosts[i], MANY, prompts[i], N);
    }
    for (uint64_t i = 0; i < HOSTS; i++) {
        struct prefix_hit hits[PREFIX_MAX_HOSTS];
        struct prefix_key key = key_of(prompts[i], N);
        assert_int_equal(match(table, prompts[i], N, hosts[i]), N);
        assert_int_equal(prefix_table_find(table, &key, hits), PREFIX_MAX_HOSTS);
        for (uint32_t k = 0; k < PREFIX_MAX_HOSTS; k++) { /* others have the beginning */
            assert_true(hits[k].host == hosts[i] || hits[k].n_blocks == 2);
        }
    }
    prefix_table_unref(table);
}

/* Hosts with beginnings of all lengths. */
static void prefix_table_finds_each_length(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N];
    uint32_t hosts[PREFIX_MAX_HOSTS];
    (void)state;
    roll(1, hashes);
    for (int i = 0; i < PREFIX_MAX_HOSTS; i++) {
        hosts[i] = prefix_table_add_host(table);
    }
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct prng prng = {seed};
        uint32_t lengths[PREFIX_MAX_HOSTS];
        for (int i = 0; i < PREFIX_MAX_HOSTS; i++) {
            lengths[i] = prng_below(&prng, N + 1);
            prefix_table_invalidate_host(table, hosts[i]);
            add(table, hosts[i], MANY, hashes, lengths[i]);
        }
        for (int i = 0; i < PREFIX_MAX_HOSTS; i++) {
            assert_int_equal(match(table, hashes, N, hosts[i]), lengths[i]);
        }
    }
    prefix_table_unref(table);
}

/* ---- expiry ---------------------------------------------------------------------------------- */

static void prefix_table_invalidated_host_is_not_found(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N];
    uint32_t a = prefix_table_add_host(table), b = prefix_table_add_host(table);
    (void)state;
    roll(1, hashes);
    add(table, a, MANY, hashes, N);
    add(table, b, MANY, hashes, N);
    prefix_table_invalidate_host(table, a);
    assert_int_equal(match(table, hashes, N, a), 0);
    assert_int_equal(match(table, hashes, N, b), N);
    add(table, a, MANY, hashes, 4);
    assert_int_equal(match(table, hashes, N, a), 4);
    /* The next host with this number has none of its blocks. */
    prefix_table_remove_host(table, a);
    assert_int_equal(prefix_table_add_host(table), a);
    assert_int_equal(match(table, hashes, N, a), 0);
    prefix_table_invalidate_host(table, 0);
    prefix_table_remove_host(table, 0);
    add(table, 0, MANY, hashes, N);
    assert_int_equal(match(table, hashes, N, b), N);
    prefix_table_unref(table);
}

/* Like a cache of 4 prompts: the least recently sent one expires first. */
static void prefix_table_prompts_beyond_capacity_expire(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N];
    uint32_t host = prefix_table_add_host(table);
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        roll(i, hashes);
        add(table, host, 4 * N, hashes, N);
        roll(0, hashes);
        add(table, host, 4 * N, hashes, N);
    }
    static const uint32_t wanted[] = {N, 0, 0, N, N, N};
    for (uint64_t i = 0; i < 6; i++) {
        roll(i, hashes);
        assert_int_equal(match(table, hashes, N, host), wanted[i]);
    }
    prefix_table_unref(table);
}

/* A cache that is full keeps a prompt that is sent again and again, and what is sent beside it. */
static void prefix_table_repeated_prompts_keep_others(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t one[N], other[N];
    uint32_t host = prefix_table_add_host(table);
    (void)state;
    roll(1, one);
    roll(2, other);
    add(table, host, 4 * N, other, N);
    for (int i = 0; i < 1000; i++) {
        add(table, host, 4 * N, one, N);
    }
    assert_int_equal(match(table, one, N, host), N);
    assert_int_equal(match(table, other, N, host), N);
    prefix_table_unref(table);
}

/* The stamps of a prompt that was sent a moment ago stay, but it counts as long as it is sent, and
 * those that are not sent again expire, to a 64th of the cache. */
static void prefix_table_recent_stamps_are_exact_enough(void **state) {
    enum { PROMPTS = 200, NEAR = PROMPTS / 64 + 2 };
    struct prefix_table *table = open_table(8 * PREFIX_MIN_BYTES); /* no bucket is full */
    uint64_t one[N], hashes[N];
    uint32_t host = prefix_table_add_host(table);
    (void)state;
    roll(0, one);
    add(table, host, PROMPTS * N, one, N);
    for (uint64_t i = 1; i < 3 * PROMPTS; i++) {
        roll(i, hashes);
        add(table, host, PROMPTS * N, hashes, N);
        assert_int_equal(match(table, one, N, host), N);
        add(table, host, PROMPTS * N, one, N);
        if (i > PROMPTS + NEAR) {
            roll(i - PROMPTS - NEAR, hashes);
            assert_int_equal(match(table, hashes, N, host), 0);
        }
        if (i > PROMPTS) {
            roll(i - (PROMPTS - NEAR), hashes);
            assert_int_equal(match(table, hashes, N, host), N);
        }
    }
    prefix_table_unref(table);
}

/* As in a cache of the least recently used, a loop over more prompts than fit finds none of them,
 * and one over fewer finds all. */
static void prefix_table_loop_beyond_capacity_expires(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N];
    (void)state;
    for (uint64_t n_prompts = 30; n_prompts <= 60; n_prompts += 10) {
        uint32_t host = prefix_table_add_host(table), n_found = 0;
        for (uint64_t i = 0; i < 20 * n_prompts; i++) {
            roll(i % n_prompts, hashes);
            n_found += i >= 10 * n_prompts ? match(table, hashes, N, host) : 0;
            add(table, host, 45 * N, hashes, N);
        }
        assert_int_equal(n_found, n_prompts < 45 ? 10 * n_prompts * N : 0);
    }
    prefix_table_unref(table);
}

/* A prompt that is not in the small cache any more is still in the large one. */
static void prefix_table_indexes_have_own_capacities(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint32_t host = prefix_table_add_host(table);
    static const uint32_t capacities[] = {2 * N, 8 * N};
    const uint64_t salt = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hashes[N];
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        roll(i, hashes);
        for (uint32_t k = 0; k < 2; k++) {
            struct prefix_key key = {.hashes = hashes, .n = N, .index = k, .salt = k * salt};
            prefix_table_add(table, host, capacities[k], &key);
        }
    }
    for (uint64_t i = 0; i < 6; i++) {
        roll(i, hashes);
        struct prefix_key small = {.hashes = hashes, .n = N, .index = 0, .salt = 0},
                          large = {.hashes = hashes, .n = N, .index = 1, .salt = salt},
                          none = {.hashes = hashes, .n = N, .index = 2, .salt = 2 * salt};
        assert_int_equal(match_key(table, &small, host), i >= 4 ? N : 0);
        assert_int_equal(match_key(table, &large, host), N);
        assert_int_equal(match_key(table, &none, host), 0);
    }
    prefix_table_unref(table);
}

/* Ten times the capacity: nearly all of the most recent entries are there. */
/* Engines evict the end of a prompt first: its beginning is there. */
static void prefix_table_prompt_beyond_capacity_keeps_its_beginning(void **state) {
    enum { CAPACITY = N / 2 };
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t one[N], two[N];
    uint32_t a = prefix_table_add_host(table);
    (void)state;
    roll(1, one);
    roll(2, two);
    add(table, a, CAPACITY, one, N);
    assert_in_range(match(table, one, N, a), CAPACITY, CAPACITY + 1);
    /* As much as there is room for beside another one, which was sent later. */
    add(table, a, CAPACITY, two, CAPACITY / 2);
    assert_int_equal(match(table, two, N, a), CAPACITY / 2);
    assert_in_range(match(table, one, N, a), CAPACITY / 2, CAPACITY / 2 + 1);
    prefix_table_unref(table);
}

static void prefix_table_full_table_replaces_oldest(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N], n = prefix_table_capacity(table) * 10 / N, n_known = 0, n_old = 0;
    uint32_t host = prefix_table_add_host(table);
    (void)state;
    assert_true(prefix_table_capacity(table) * 64 <= PREFIX_MIN_BYTES);
    for (uint64_t i = 0; i < n; i++) {
        roll(i, hashes);
        add(table, host, MANY, hashes, N);
    }
    for (uint64_t i = n - n / 100; i < n; i++) {
        roll(i, hashes);
        n_known += match(table, hashes, N, host) == N;
    }
    for (uint64_t i = 0; i < n / 100; i++) {
        roll(i, hashes);
        n_old += match(table, hashes, N, host);
    }
    assert_true(n_known * 100 >= n / 100 * 95);
    assert_int_equal(n_old, 0);
    prefix_table_unref(table);
}

/* All hashes in one bucket: other buckets are unchanged. */
static void prefix_table_full_bucket_leaves_others_intact(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    uint64_t hashes[N], flood[1000];
    uint32_t a = prefix_table_add_host(table), b = prefix_table_add_host(table);
    (void)state;
    roll(1, hashes);
    add(table, a, MANY, hashes, N);
    for (uint64_t i = 0; i < 1000; i++) {
        flood[i] = i << 40 | 0x12345;
    }
    add(table, b, MANY, flood, 1000);
    assert_int_equal(match(table, hashes, N, a), N);
    prefix_table_unref(table);
}

static void prefix_table_host_numbers_run_out_and_are_reused(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    (void)state;
    for (uint32_t i = 1; i < 65536; i++) {
        assert_int_equal(prefix_table_add_host(table), i);
    }
    assert_int_equal(prefix_table_add_host(table), 0);
    prefix_table_remove_host(table, 17);
    assert_int_equal(prefix_table_add_host(table), 17);
    prefix_table_unref(table);
}

/* ---- many threads ---------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_TURNS = 4000, N_PROMPTS = 64, N_SHARED = 8, N_HELD = 16 };

/* A prompt in flight. */
struct flight {
    uint64_t hashes[N];
    struct prefix_hold held;
};

struct churn {
    struct prefix_table *table;
    uint32_t hosts[N_SHARED];
    uint64_t seed;
};

/* The prompt in flight ends; another one, which half of the time other threads have in flight as
 * well, begins. */
static void change_flight(const struct churn *self, struct prng *prng, struct flight *flight) {
    uint32_t among = prng_below(prng, 2) > 0 ? N_PROMPTS : 1 << 20;
    prefix_table_unhold(self->table, &flight->held);
    roll(prng_below(prng, among), flight->hashes);
    hold(self->table, self->hosts[prng_below(prng, N_SHARED)], flight->hashes, N, &flight->held);
}

/* Hosts are added, removed and invalidated while prompts are recorded and found, and others are in
 * flight, of which new ones replace the oldest. */
static void *churn(void *arg) {
    const struct churn *self = arg;
    struct prng prng = {self->seed};
    struct prefix_hit hits[PREFIX_MAX_HOSTS];
    struct flight flights[N_HELD] = {0};
    uint64_t hashes[N];
    for (int i = 0; i < N_TURNS; i++) {
        uint32_t host = self->hosts[prng_below(&prng, N_SHARED)];
        roll(prng_below(&prng, N_PROMPTS), hashes);
        add(self->table, host, MANY, hashes, N);
        change_flight(self, &prng, &flights[prng_below(&prng, N_HELD)]);
        struct prefix_key key = key_of(hashes, N);
        uint32_t n = prefix_table_find(self->table, &key, hits);
        for (uint32_t k = 0; k < n; k++) {
            assert(hits[k].host > 0 && hits[k].n_blocks <= N);
        }
        if (i % 50 == 0) {
            uint32_t own = prefix_table_add_host(self->table);
            add(self->table, own, MANY, hashes, N);
            prefix_table_remove_host(self->table, own);
            prefix_table_invalidate_host(self->table, host);
        }
    }
    for (int i = 0; i < N_HELD; i++) {
        prefix_table_unhold(self->table, &flights[i].held);
    }
    return NULL;
}

static void prefix_table_concurrent_use_keeps_entries_valid(void **state) {
    struct prefix_table *table = open_table(PREFIX_MIN_BYTES);
    struct churn churns[N_THREADS];
    pthread_t threads[N_THREADS];
    uint64_t hashes[N];
    struct prefix_hold held;
    (void)state;
    for (int i = 0; i < N_THREADS; i++) {
        churns[i] = (struct churn){.table = table, .seed = (uint64_t)i + 1};
        for (int k = 0; k < N_SHARED; k++) {
            churns[i].hosts[k] = i == 0 ? prefix_table_add_host(table) : churns[0].hosts[k];
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churns[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    /* It still works, and nothing is in flight: a prompt that was not sent anywhere is unknown. */
    roll(1 << 21, hashes);
    for (int k = 0; k < N_SHARED; k++) {
        assert_int_equal(match(table, hashes, N, churns[0].hosts[k]), 0);
        hold(table, churns[0].hosts[k], hashes, N, &held);
        assert_int_equal(match(table, hashes, N, churns[0].hosts[k]), N);
        prefix_table_unhold(table, &held);
        assert_int_equal(match(table, hashes, N, churns[0].hosts[k]), 0);
    }
    roll(1, hashes);
    add(table, churns[0].hosts[0], MANY, hashes, N);
    assert_int_equal(match(table, hashes, N, churns[0].hosts[0]), N);
    prefix_table_unref(table);
}

static void prefix_table_seed_is_the_given_one_or_random(void **state) {
    struct prefix_table *tables[3];
    struct error err;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(prefix_table_new(PREFIX_MIN_BYTES, i == 0 ? 7 : 0, &tables[i], &err),
                         ST_OK);
    }
    assert_int_equal(prefix_table_seed(tables[0]), 7);
    assert_true(prefix_table_seed(tables[1]) != prefix_table_seed(tables[2]));
    for (size_t i = 0; i < 3; i++) {
        prefix_table_unref(tables[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_table_seed_is_the_given_one_or_random),
        cmocka_unit_test(prefix_table_finds_hosts_of_prefix),
        cmocka_unit_test(prefix_table_entry_keeps_latest_hosts),
        cmocka_unit_test(prefix_table_common_beginning_hides_no_host),
        cmocka_unit_test(prefix_table_finds_each_length),
        cmocka_unit_test(prefix_table_invalidated_host_is_not_found),
        cmocka_unit_test(prefix_table_prompts_beyond_capacity_expire),
        cmocka_unit_test(prefix_table_prompt_beyond_capacity_keeps_its_beginning),
        cmocka_unit_test(prefix_table_full_table_replaces_oldest),
        cmocka_unit_test(prefix_table_full_bucket_leaves_others_intact),
        cmocka_unit_test(prefix_table_host_numbers_run_out_and_are_reused),
        cmocka_unit_test(prefix_table_indexes_have_own_capacities),
        cmocka_unit_test(prefix_table_repeated_prompts_keep_others),
        cmocka_unit_test(prefix_table_recent_stamps_are_exact_enough),
        cmocka_unit_test(prefix_table_loop_beyond_capacity_expires),
        cmocka_unit_test(prefix_table_concurrent_use_keeps_entries_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
