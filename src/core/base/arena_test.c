/* The arena: alignment, limits, growth in place, reused chunks, and that nothing leaks. */
#include "core/base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"

static size_t misalignment(const void *ptr, size_t alignment) {
    return (uintptr_t)ptr % alignment;
}

static void arena_alloc_blocks_are_aligned_and_disjoint(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    unsigned char *blocks[400];
    size_t sizes[400];
    (void)state;
    for (size_t i = 0; i < 400; i++) {
        sizes[i] = i % 7 == 0 ? i * 40 : i % 61;
        blocks[i] = arena_alloc(arena, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal(misalignment(blocks[i], 16), 0);
        memset(blocks[i], (int)(i % 251), sizes[i]);
    }
    for (size_t i = 0; i < 400; i++) {
        for (size_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(blocks[i][k], i % 251);
        }
    }
    arena_free(arena);
}

static void arena_alloc_aligned_honours_alignment(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        for (size_t n_bytes = 1; n_bytes <= 10000; n_bytes = n_bytes * 3 + 1) {
            char *block = arena_alloc_aligned(arena, n_bytes, alignment);
            assert_non_null(block);
            assert_int_equal(misalignment(block, alignment), 0);
            memset(block, 1, n_bytes);
            block = arena_realloc(arena, block, n_bytes, n_bytes * 2);
            assert_non_null(block);
            assert_int_equal(block[n_bytes - 1], 1);
        }
    }
    arena_free(arena);
}

static void arena_alloc_past_limit_returns_null(void **state) {
    (void)state;
    volatile size_t huge = SIZE_MAX; /* volatile: the compiler would warn about an impossible
                                        size */
    struct arena *arena = arena_new(NULL, 65536);
    assert_null(arena_alloc(arena, 65536));
    assert_null(arena_alloc(arena, huge));
    assert_null(arena_alloc(arena, huge - 8));
    assert_null(arena_alloc_aligned(arena, huge - 64, 64));
    assert_null(arena_calloc(arena, huge / 2, 3));
    char *large = arena_alloc(arena, 40000);
    assert_non_null(large);
    large[39999] = 'x';
    assert_null(arena_realloc(arena, large, 40000, 70000));
    assert_null(arena_realloc(arena, large, 40000, SIZE_MAX));
    assert_int_equal(large[39999], 'x');
    size_t n = 0;
    while (arena_alloc(arena, 1000)) {
        n++;
    }
    assert_in_range(n, 10, 25);
    assert_true(arena_bytes(arena) <= 65536);
    assert_true(arena_bytes(arena) > 65536 - 4200);
    /* freeing a large block lowers the total */
    assert_non_null(arena_realloc(arena, large, 40000, 5000));
    assert_non_null(arena_alloc(arena, 30000));
    arena_free(arena);
}

static void arena_limit_below_chunk_grants_one_chunk(void **state) {
    struct arena *arena = arena_new(NULL, 1);
    (void)state;
    assert_non_null(arena);
    assert_null(arena_alloc(arena, 100000));
    arena_free(arena);
}

static void arena_realloc_keeps_bytes(void **state) {
    static const size_t steps[] = {1,    15,   16,      17,   100,  2047, 2048,
                                   2049, 9000, 1 << 20, 3000, 2048, 5};
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (int between = 0; between < 2; between++) {
        unsigned char *block = NULL;
        size_t old = 0;
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            size_t kept = old < steps[i] ? old : steps[i];
            block = arena_realloc(arena, block, old, steps[i]);
            assert_non_null(block);
            for (size_t k = 0; k < kept; k += 1 + k / 64) {
                assert_int_equal(block[k], k % 253);
            }
            for (size_t k = 0; k < steps[i]; k++) {
                block[k] = (unsigned char)(k % 253);
            }
            old = steps[i];
            if (between) { /* so that it is not the newest */
                assert_non_null(arena_alloc(arena, 8));
            }
        }
    }
    arena_free(arena);
}

#ifndef SLUICE_ARENA_EMULATE
static void arena_realloc_newest_block_grows_in_place(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    char *block = arena_alloc(arena, 10);
    assert_ptr_equal(arena_realloc(arena, block, 10, 1000), block);
    assert_ptr_equal(arena_realloc(arena, block, 1000, 20), block);
    char *next = arena_alloc(arena, 1);
    assert_ptr_equal(next, block + 32);
    assert_ptr_not_equal(arena_realloc(arena, block, 20, 40), block);
    arena_free(arena);
}

static void arena_free_returns_chunks_to_cache(void **state) {
    struct arena_cache *cache = arena_cache_new(2);
    (void)state;
    struct arena *first = arena_new(cache, 0);
    arena_free(first);
    struct arena *second = arena_new(cache, 0);
    assert_ptr_equal(first, second);
    for (int i = 0; i < 20; i++) {
        assert_non_null(arena_alloc(second, 2000));
    }
    arena_free(second); /* the cache keeps two, the others are freed */
    arena_cache_free(cache);
}

static void arena_small_request_fits_one_chunk(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (int i = 0; i < 30; i++) {
        assert_non_null(arena_alloc(arena, 100));
    }
    assert_int_equal(arena_bytes(arena), 4096);
    arena_free(arena);
}

/* The same sizes again, in whatever way they are reached, are the same blocks again. */
static void arena_cache_keep_large_reuses_blocks(void **state) {
    (void)state;
    struct arena_cache *cache = arena_cache_new(4);
    void *seen[3] = {NULL};
    arena_cache_keep_large(cache);
    for (int round = 0; round < 3; round++) {
        struct arena *arena = arena_new(cache, 0);
        char *small = arena_alloc(arena, 5000);
        char *grown = memset(arena_alloc(arena, 3000), round, 3000);
        grown = arena_realloc(arena, grown, 3000, 100000);
        char *wide = arena_alloc_aligned(arena, 300000, 4096);
        for (int i = 0; i < 3000; i++) {
            assert_int_equal(grown[i], round);
        }
        assert_int_equal((uintptr_t)wide % 4096, 0);
        memset(small, 1, 5000);
        memset(grown, 2, 100000);
        memset(wide, 3, 300000);
        void *now[] = {small, grown, wide};
        if (round == 2) {
            assert_memory_equal(now, seen, sizeof(now));
        }
        memcpy(seen, now, sizeof(now));
        arena_free(arena);
    }
    arena_cache_free(cache);
}
#endif

static void arena_cache_null_or_empty_is_accepted(void **state) {
    struct arena_cache *cache = arena_cache_new(0);
    (void)state;
    struct arena *arena = arena_new(cache, 0);
    assert_non_null(arena_alloc(arena, 10000));
    arena_free(arena);
    arena_cache_free(cache);
    arena_cache_free(NULL);
    arena_free(NULL);
}

static void arena_new_and_free_update_gauge(void **state) {
    int64_t before = metric_read(METRIC_ARENAS);
    (void)state;
    struct arena *a = arena_new(NULL, 0), *b = arena_new(NULL, 0);
    assert_int_equal(metric_read(METRIC_ARENAS), before + 2);
    arena_free(a);
    arena_free(b);
    assert_int_equal(metric_read(METRIC_ARENAS), before);
}

static bool take_bytes(void *user, size_t n_bytes, size_t n_counted) {
    (void)n_counted;
    size_t *n_left = user;
    bool fits = n_bytes <= *n_left;
    *n_left -= fits ? n_bytes : 0;
    return fits;
}

static void give_bytes(void *user, size_t n_bytes) {
    *(size_t *)user += n_bytes;
}

static void arena_alloc_over_budget_returns_null(void **state) {
    size_t n_left = 1000000;
    const struct arena_budget budget = {take_bytes, give_bytes, &n_left, 16384};
    (void)state;
    struct arena *a = arena_new(NULL, 0), *b = arena_new(NULL, 0);
    arena_set_budget(a, &budget);
    arena_set_budget(b, &budget);
    assert_non_null(arena_alloc(a, 100));
    assert_int_equal(n_left, 1000000); /* a small request does not count */
    void *block = arena_alloc(a, 700000);
    assert_non_null(block);
    assert_true(n_left < 400000);
    assert_null(arena_alloc(b, 500000));
    assert_true(arena_is_over_budget(b) && !arena_is_over_budget(a));
    block = arena_realloc(a, block, 700000, 100000);
    assert_non_null(block);
    assert_non_null(arena_alloc(b, 500000));
    assert_null(arena_realloc(a, block, 100000, 900000));
    arena_stop_counting(b);
    assert_non_null(arena_realloc(a, block, 100000, 900000));
    assert_non_null(arena_alloc(b, 500000));
    arena_free(a);
    arena_free(b);
    assert_int_equal(n_left, 1000000);
}

static void arena_dup_and_printf_copy_text(void **state) {
    struct arena *arena = arena_new(NULL, 100000);
    (void)state;
    struct str copy = arena_dup(arena, STR("a\0b"));
    assert_int_equal(copy.len, 3);
    assert_memory_equal(copy.ptr, "a\0b\0", 4);
    struct str empty = arena_dup(arena, str_make(NULL, 0));
    assert_non_null(empty.ptr);
    assert_string_equal(empty.ptr, "");
    struct str text = arena_printf(arena, "%s=%d", "n", 42);
    assert_string_equal(text.ptr, "n=42");
    assert_int_equal(text.len, 4);
    assert_int_equal(arena_printf(arena, "%5000d", 1).len, 5000);
    assert_null(arena_printf(arena, "%200000d", 1).ptr);
    assert_null(arena_dup(arena, str_make("", SIZE_MAX)).ptr);
    char *zeros = arena_calloc(arena, 100, 7);
    for (int i = 0; i < 700; i++) {
        assert_int_equal(zeros[i], 0);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_alloc_blocks_are_aligned_and_disjoint),
        cmocka_unit_test(arena_alloc_aligned_honours_alignment),
        cmocka_unit_test(arena_alloc_past_limit_returns_null),
        cmocka_unit_test(arena_limit_below_chunk_grants_one_chunk),
        cmocka_unit_test(arena_realloc_keeps_bytes),
#ifndef SLUICE_ARENA_EMULATE
        cmocka_unit_test(arena_realloc_newest_block_grows_in_place),
        cmocka_unit_test(arena_free_returns_chunks_to_cache),
        cmocka_unit_test(arena_small_request_fits_one_chunk),
        cmocka_unit_test(arena_cache_keep_large_reuses_blocks),
#endif
        cmocka_unit_test(arena_cache_null_or_empty_is_accepted),
        cmocka_unit_test(arena_new_and_free_update_gauge),
        cmocka_unit_test(arena_alloc_over_budget_returns_null),
        cmocka_unit_test(arena_dup_and_printf_copy_text),
    };
    return cmocka_run_group_tests_name("core/base/arena", tests, NULL, NULL);
}
