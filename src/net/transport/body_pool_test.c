/* Blocks for bodies: reused soon after use, bounded, freed after some seconds. */
#include "net/transport/body_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const size_t MIB = 1 << 20;

static void body_pool_alloc_after_free_reuses_block(void **state) {
    (void)state;
    struct body_pool pool;
    size_t got, again;
    body_pool_init(&pool, 64 * MIB);
    char *block = body_pool_alloc(&pool, 3 * MIB, &got);
    assert_non_null(block);
    assert_true(got >= 3 * MIB && got <= 4 * MIB);
    assert_int_equal((uintptr_t)block % 64, 0);
    memset(block, 7, 3 * MIB);
    body_pool_free(&pool, block, got, 100);
    assert_int_equal(pool.n_bytes, got);
    assert_ptr_equal(body_pool_alloc(&pool, 3 * MIB - 5, &again), block);
    assert_int_equal(again, got);
    assert_int_equal(pool.n_bytes, 0);
    body_pool_free(&pool, block, got, 100);
    /* A far smaller one gets a block of its own. */
    char *small = body_pool_alloc(&pool, MIB / 2, &again);
    assert_ptr_not_equal(small, block);
    body_pool_free(&pool, small, again, 100);
    body_pool_fini(&pool);
    assert_int_equal(pool.n_bytes, 0);
}

static void trim_until_nothing_is_due(struct body_pool *pool, uint64_t now_ns) {
    while (body_pool_trim(pool, now_ns) == now_ns) {
    }
}

static void body_pool_trim_keeps_at_most_max_bytes(void **state) {
    (void)state;
    struct body_pool pool;
    void *blocks[60];
    size_t got[60];
    body_pool_init(&pool, 8 * MIB);
    for (size_t i = 0; i < 60; i++) {
        blocks[i] = body_pool_alloc(&pool, MIB, &got[i]);
        assert_non_null(blocks[i]);
    }
    for (size_t i = 0; i < 60; i++) {
        body_pool_free(&pool, blocks[i], got[i], 100);
        assert_true(pool.n_bytes <= 12 * MIB);
    }
    trim_until_nothing_is_due(&pool, 100);
    assert_true(pool.n >= 4 && pool.n_bytes <= pool.max_bytes);
    /* What alone exceeds the limit goes first. */
    void *huge = body_pool_alloc(&pool, 9 * MIB, &got[0]);
    size_t before = pool.n;
    body_pool_free(&pool, huge, got[0], 100);
    trim_until_nothing_is_due(&pool, 100);
    assert_int_equal(pool.n, before);
    body_pool_fini(&pool);
}

static void body_pool_free_with_all_slots_used_frees_oldest(void **state) {
    (void)state;
    struct body_pool pool;
    void *blocks[BODY_POOL_SLOTS + 1];
    size_t got[BODY_POOL_SLOTS + 1];
    body_pool_init(&pool, 1000 * MIB);
    for (size_t i = 0; i <= BODY_POOL_SLOTS; i++) {
        blocks[i] = body_pool_alloc(&pool, MIB, &got[i]);
        assert_non_null(blocks[i]);
    }
    for (size_t i = 0; i <= BODY_POOL_SLOTS; i++) {
        body_pool_free(&pool, blocks[i], got[i], 100 + i);
    }
    assert_int_equal(pool.n, BODY_POOL_SLOTS);
    assert_ptr_equal(pool.blocks[0].ptr, blocks[1]);
    body_pool_fini(&pool);
    assert_int_equal(pool.n_bytes, 0);
}

#ifndef SLUICE_ARENA_EMULATE
/* The rest of the block stays for body_pool_trim. */
static void body_pool_free_over_hard_limit_frees_the_excess(void **state) {
    (void)state;
    struct body_pool pool;
    size_t got[2];
    body_pool_init(&pool, 8 * MIB);
    void *first = body_pool_alloc(&pool, 8 * MIB, &got[0]);
    void *second = body_pool_alloc(&pool, 8 * MIB, &got[1]);
    body_pool_free(&pool, first, got[0], 100);
    body_pool_free(&pool, second, got[1] - 1, 100); /* not a whole number of pages */
    assert_int_equal(pool.n, 2);
    assert_true(pool.n_bytes <= 12 * MIB && pool.n_bytes > 12 * MIB - 4096);
    trim_until_nothing_is_due(&pool, 100);
    assert_true(pool.n_bytes <= 8 * MIB);
    body_pool_fini(&pool);
}
#endif

static void body_pool_grow_keeps_bytes(void **state) {
    (void)state;
    struct body_pool pool;
    size_t got;
    body_pool_init(&pool, 8 * MIB);
    char *block = body_pool_alloc(&pool, 100000, &got);
    size_t filled = got;
    memset(block, 7, filled);
    block = body_pool_grow(&pool, block, got, 5 * MIB, &got);
    assert_non_null(block);
    assert_true(got >= 5 * MIB);
    assert_int_equal((uintptr_t)block % 64, 0);
    assert_int_equal(block[0], 7);
    assert_int_equal(block[filled - 1], 7);
    assert_null(body_pool_grow(&pool, block, got, SIZE_MAX - 10, &got));
    assert_true(got >= 5 * MIB);
    body_pool_free(&pool, block, got, 100);
    assert_null(body_pool_alloc(&pool, SIZE_MAX - 10, &got));
    body_pool_fini(&pool);
}

static void body_pool_trim_frees_old_blocks(void **state) {
    (void)state;
    struct body_pool pool;
    size_t got[2];
    body_pool_init(&pool, 8 * MIB);
    assert_true(body_pool_trim(&pool, 0) == UINT64_MAX);
    void *first = body_pool_alloc(&pool, MIB, &got[0]);
    void *second = body_pool_alloc(&pool, MIB, &got[1]);
    body_pool_free(&pool, first, got[0], 1000);
    body_pool_free(&pool, second, got[1], 2000);
    uint64_t next = body_pool_trim(&pool, 3000);
    assert_int_equal(pool.n, 2);
    assert_true(body_pool_trim(&pool, next) == next + 1000);
    assert_int_equal(pool.n, 1);
    assert_true(body_pool_trim(&pool, next + 1000) == UINT64_MAX);
    assert_int_equal(pool.n_bytes, 0);
    body_pool_fini(&pool);
}

#ifndef SLUICE_ARENA_EMULATE
static void body_pool_trim_frees_large_block_in_steps(void **state) {
    (void)state;
    struct body_pool pool;
    size_t got, n_steps = 0;
    body_pool_init(&pool, 64 * MIB);
    char *block = body_pool_alloc(&pool, 32 * MIB, &got);
    memset(block, 7, got);
    body_pool_free(&pool, block, got, 1000);
    uint64_t due = body_pool_trim(&pool, 1000);
    assert_true(due > 1000);
    while (pool.n > 0) {
        size_t before = pool.n_bytes;
        uint64_t next = body_pool_trim(&pool, due);
        assert_true(next == due || pool.n == 0);
        assert_true(pool.n_bytes < before && before - pool.n_bytes <= 8 * MIB);
        n_steps++;
    }
    assert_true(n_steps >= 4);
    body_pool_fini(&pool);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_pool_alloc_after_free_reuses_block),
        cmocka_unit_test(body_pool_trim_keeps_at_most_max_bytes),
        cmocka_unit_test(body_pool_free_with_all_slots_used_frees_oldest),
#ifndef SLUICE_ARENA_EMULATE
        cmocka_unit_test(body_pool_free_over_hard_limit_frees_the_excess),
#endif
        cmocka_unit_test(body_pool_grow_keeps_bytes),
        cmocka_unit_test(body_pool_trim_frees_old_blocks),
#ifndef SLUICE_ARENA_EMULATE
        cmocka_unit_test(body_pool_trim_frees_large_block_in_steps),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
