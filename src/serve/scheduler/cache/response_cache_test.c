/* The response cache: lookup, eviction order, and that the size limit holds under concurrent
 * storing, reading and dropping. */
#include "serve/scheduler/cache/response_cache.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/scheduler/shared_budget.h"

enum { LIMIT = 64 * 1024, SMALL = 1000 };

static struct keyed_hash key(uint64_t number) {
    return (struct keyed_hash){number * UINT64_C(0x9e3779b97f4a7c15), number};
}

static struct response_cache *make(uint64_t n_bytes) {
    struct response_cache *cache;
    struct error err;
    assert_int_equal(response_cache_new(n_bytes, &cache, &err), ST_OK);
    return cache;
}

/* Stores a block that contains its number. Returns: false when there was no capacity. */
static bool put(struct cache_scope *scope, uint64_t number, size_t n_bytes) {
    struct cache_entry *entry = cache_reserve(scope, n_bytes);
    if (entry) {
        memset(cache_entry_data(entry), (int)(number & 0x7f), n_bytes);
        cache_store(scope, key(number), entry);
    }
    return entry != NULL;
}

static bool has(struct cache_scope *scope, uint64_t number) {
    struct cache_entry *entry = cache_find(scope, key(number));
    if (entry) {
        const char *data = cache_entry_data(entry);
        assert_int_equal(data[0], (int)(number & 0x7f));
        assert_int_equal((uintptr_t)data % RESPONSE_CACHE_ALIGNMENT, 0);
        cache_entry_unref(entry);
    }
    return entry != NULL;
}

static int64_t n_bytes_counted(void) {
    return metric_read(METRIC_RESPONSE_CACHE_BYTES);
}

static void cache_stored_entry_is_found(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    (void)state;
    cache_scope_open(&scope, cache);
    assert_false(has(&scope, 1));
    assert_true(put(&scope, 1, SMALL));
    assert_true(put(&scope, 2, 0 + 1));
    assert_true(has(&scope, 1));
    assert_true(has(&scope, 2));
    assert_false(has(&scope, 3));
    cache_scope_close(&scope);
    response_cache_free(cache);
    assert_int_equal(n_bytes_counted(), 0);
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_ENTRIES), 0);
}

/* Two equal calls at the same time: the first answer stays. */
static void cache_store_existing_key_keeps_first(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    (void)state;
    cache_scope_open(&scope, cache);
    put(&scope, 1, SMALL);
    int64_t before = n_bytes_counted();
    struct cache_entry *first = cache_find(&scope, key(1));
    assert_true(put(&scope, 1, SMALL));
    struct cache_entry *again = cache_find(&scope, key(1));
    assert_ptr_equal(first, again);
    cache_entry_unref(first);
    cache_entry_unref(again);
    assert_int_equal(n_bytes_counted(), before);
    cache_scope_close(&scope);
    response_cache_free(cache);
}

static void cache_full_evicts_least_recently_used(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    uint64_t n = 0;
    (void)state;
    int64_t evictions = metric_read(METRIC_RESPONSE_CACHE_EVICTIONS_TOTAL);
    cache_scope_open(&scope, cache);
    while (metric_read(METRIC_RESPONSE_CACHE_EVICTIONS_TOTAL) == evictions) {
        assert_true(put(&scope, n++, SMALL));
        assert_true(has(&scope, 0)); /* recently used */
        assert_true(n_bytes_counted() <= LIMIT);
    }
    assert_true(n > LIMIT / 2 / SMALL);
    assert_true(has(&scope, 0));
    assert_false(has(&scope, 1));
    assert_true(has(&scope, 2));
    assert_true(has(&scope, n - 1));
    cache_scope_close(&scope);
    response_cache_free(cache);
}

/* A referenced block is not freed, and counts against the limit. */
static void cache_referenced_entry_is_not_evicted(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    struct cache_entry *held[LIMIT / SMALL];
    uint64_t n = 0;
    (void)state;
    cache_scope_open(&scope, cache);
    while (put(&scope, n, SMALL)) {
        held[n] = cache_find(&scope, key(n));
        assert_non_null(held[n]);
        n++;
    }
    assert_true(n > 0 && n < LIMIT / SMALL);
    assert_true(n_bytes_counted() <= LIMIT);
    for (uint64_t i = 0; i < n; i++) {
        const char *data = cache_entry_data(held[i]);
        assert_int_equal(data[SMALL - 1], (int)(i & 0x7f));
    }
    cache_entry_unref(held[n / 2]);
    assert_true(put(&scope, n, SMALL));
    assert_false(has(&scope, n / 2));
    for (uint64_t i = 0; i < n; i++) {
        if (i != n / 2) {
            cache_entry_unref(held[i]);
        }
    }
    cache_scope_close(&scope);
    response_cache_free(cache);
    assert_int_equal(n_bytes_counted(), 0);
}

static void cache_oversized_entry_evicts_nothing(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    int64_t refused = metric_read(METRIC_RESPONSE_CACHE_REFUSED_TOTAL);
    (void)state;
    cache_scope_open(&scope, cache);
    put(&scope, 1, SMALL);
    assert_false(put(&scope, 2, LIMIT));
    assert_null(cache_reserve(&scope, SIZE_MAX));
    assert_null(cache_reserve(&scope, SIZE_MAX - 200));
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_REFUSED_TOTAL) - refused, 3);
    assert_true(has(&scope, 1));
    cache_scope_close(&scope);
    response_cache_free(cache);
    cache = make(1);
    cache_scope_open(&scope, cache);
    assert_false(put(&scope, 1, 1));
    cache_scope_close(&scope);
    response_cache_free(cache);
}

static void cache_scope_close_removes_own_entries_only(void **state) {
    struct cache_scope a, b;
    struct response_cache *cache = make(1 << 20);
    enum { MANY = 300 };
    (void)state;
    cache_scope_open(&a, cache);
    cache_scope_open(&b, cache);
    assert_true(a.generation != b.generation);
    for (uint64_t i = 0; i < MANY; i++) {
        put(&a, i, 10);
        assert_false(has(&b, i));
        put(&b, i, 10);
    }
    cache_scope_close(&a);
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_ENTRIES), MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_true(has(&b, i));
    }
    cache_scope_close(&b);
    cache_scope_open(&a, NULL); /* caching is off */
    cache_scope_close(&a);
    response_cache_free(cache);
    assert_int_equal(n_bytes_counted(), 0);
}

/* ---- concurrency ----------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 4000, KEYS = 200 };

struct crowd {
    struct response_cache *cache;
    struct cache_scope shared;
    atomic_bool wrong_data;
};

static void *crowd_run(void *user) {
    struct crowd *crowd = user;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    struct cache_scope own;
    cache_scope_open(&own, crowd->cache);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t number = (uint64_t)rand_r(&seed) % KEYS;
        struct cache_scope *scope = i % 2 ? &crowd->shared : &own;
        struct cache_entry *entry = cache_find(scope, key(number));
        if (entry) {
            const char *data = cache_entry_data(entry);
            if (data[0] != (int)(number & 0x7f)) {
                atomic_store(&crowd->wrong_data, true);
            }
            cache_entry_unref(entry);
        } else {
            put(scope, number, 1 + number * 10);
        }
        if (i % 500 == 0) {
            cache_scope_close(&own);
            cache_scope_open(&own, crowd->cache);
        }
    }
    cache_scope_close(&own);
    return NULL;
}

/* That the limit holds at every instant is an assertion of the cache, under its lock: a metric is a
 * sum over threads that count meanwhile. */
static void cache_many_threads_stay_within_limit(void **state) {
    struct crowd crowd = {.cache = make(LIMIT)};
    pthread_t threads[THREADS];
    (void)state;
    cache_scope_open(&crowd.shared, crowd.cache);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_false(atomic_load(&crowd.wrong_data));
    assert_in_range(n_bytes_counted(), SMALL, LIMIT);
    cache_scope_close(&crowd.shared);
    response_cache_free(crowd.cache);
    assert_int_equal(n_bytes_counted(), 0);
    assert_int_equal(metric_read(METRIC_RESPONSE_CACHE_ENTRIES), 0);
}

static uint64_t budget_left;

static bool take(void *user, uint64_t n_bytes) {
    (void)user;
    if (n_bytes > budget_left) {
        return false;
    }
    budget_left -= n_bytes;
    return true;
}

static void give(void *user, uint64_t n_bytes) {
    (void)user;
    budget_left += n_bytes;
}

static void cache_counts_in_budget_and_shrinks(void **state) {
    struct cache_scope scope;
    struct response_cache *cache = make(LIMIT);
    (void)state;
    budget_left = 4 * SMALL;
    response_cache_set_budget(cache, &(struct shared_budget){.take = take, .give = give});
    cache_scope_open(&scope, cache);
    assert_true(put(&scope, 1, SMALL));
    assert_true(put(&scope, 2, SMALL));
    assert_true(put(&scope, 3, SMALL));
    assert_true(budget_left < SMALL);
    assert_false(put(&scope, 4, SMALL)); /* nothing is evicted for it: others use the budget, too */
    assert_true(has(&scope, 1));
    response_cache_shrink(cache, 2 * SMALL);
    assert_true(budget_left > 2 * SMALL);
    assert_false(has(&scope, 2)); /* used less recently than 1 */
    assert_false(has(&scope, 3));
    assert_true(has(&scope, 1));
    response_cache_shrink(cache, UINT64_MAX);
    assert_int_equal(budget_left, 4 * SMALL);
    cache_scope_close(&scope);
    response_cache_free(cache);
    assert_int_equal(n_bytes_counted(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_stored_entry_is_found),
        cmocka_unit_test(cache_store_existing_key_keeps_first),
        cmocka_unit_test(cache_full_evicts_least_recently_used),
        cmocka_unit_test(cache_referenced_entry_is_not_evicted),
        cmocka_unit_test(cache_oversized_entry_evicts_nothing),
        cmocka_unit_test(cache_scope_close_removes_own_entries_only),
        cmocka_unit_test(cache_many_threads_stay_within_limit),
        cmocka_unit_test(cache_counts_in_budget_and_shrinks),
    };
    return cmocka_run_group_tests_name("serve/scheduler/cache/response_cache", tests, NULL, NULL);
}
