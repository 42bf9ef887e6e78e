/* Blocks of all sizes, written to from end to end; freed blocks are reused, up to a limit. */
#include "core/base/small_blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1300, LARGEST = SMALL_BLOCKS_STEP * SMALL_BLOCKS_SIZES };

static void assert_filled(const unsigned char *block, size_t n_bytes, unsigned char with) {
    for (size_t i = 0; i < n_bytes; i++) {
        assert_int_equal(block[i], with);
    }
}

/* Two of each size from 0 to above the largest that is cached, in rounds. */
static void small_blocks_are_aligned_and_disjoint(void **state) {
    struct small_blocks blocks = {.max_cached_bytes = 1 << 20};
    unsigned char *taken[N];
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N; i++) {
            taken[i] = small_blocks_malloc(&blocks, i / 2);
            assert_non_null(taken[i]);
            assert_int_equal((uintptr_t)taken[i] % _Alignof(max_align_t), 0);
            memset(taken[i], (int)(i % 251), i / 2);
        }
        for (size_t i = 0; i < N; i++) {
            assert_filled(taken[i], i / 2, (unsigned char)(i % 251));
            small_blocks_free(&blocks, taken[i]);
        }
    }
    small_blocks_fini(&blocks);
    assert_int_equal(blocks.cached_bytes, 0);
}

static void small_blocks_calloc_zeroes_reused_block(void **state) {
    struct small_blocks blocks = {.max_cached_bytes = 1 << 20};
    (void)state;
    for (size_t n = 1; n < N; n += 100) {
        unsigned char *before = small_blocks_malloc(&blocks, n);
        assert_non_null(before);
        memset(before, 0xff, n);
        small_blocks_free(&blocks, before);
        unsigned char *block = small_blocks_calloc(&blocks, n, 1);
        assert_non_null(block);
        assert_filled(block, n, 0);
        small_blocks_free(&blocks, block);
    }
    assert_null(small_blocks_calloc(&blocks, SIZE_MAX / 2, 3));
    assert_null(small_blocks_malloc(&blocks, SIZE_MAX - 8));
    small_blocks_fini(&blocks);
}

static void small_blocks_realloc_keeps_bytes(void **state) {
    struct small_blocks blocks = {.max_cached_bytes = 1 << 20};
    unsigned char *block = small_blocks_realloc(&blocks, NULL, 1);
    (void)state;
    assert_non_null(block);
    block[0] = 7;
    for (size_t n = 2; n < N; n++) {
        block = small_blocks_realloc(&blocks, block, n);
        assert_non_null(block);
        block[n - 1] = 7;
    }
    assert_filled(block, N - 1, 7);
    assert_null(small_blocks_realloc(&blocks, block, SIZE_MAX - 8));
    block = small_blocks_realloc(&blocks, block, 10);
    assert_non_null(block);
    assert_filled(block, 10, 7);
    small_blocks_free(&blocks, block);
    small_blocks_free(&blocks, NULL);
    small_blocks_fini(&blocks);
}

#ifndef SLUICE_ARENA_EMULATE
static void small_blocks_free_caches_up_to_limit(void **state) {
    struct small_blocks blocks = {.max_cached_bytes = 3 * SMALL_BLOCKS_STEP};
    void *taken[5];
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        taken[i] = small_blocks_malloc(&blocks, SMALL_BLOCKS_STEP);
        assert_non_null(taken[i]);
    }
    for (size_t i = 0; i < 5; i++) {
        small_blocks_free(&blocks, taken[i]);
        assert_int_equal(blocks.cached_bytes, (i < 3 ? i + 1 : 3) * SMALL_BLOCKS_STEP);
    }
    assert_ptr_equal(small_blocks_malloc(&blocks, 1), taken[2]); /* the last that was freed */
    assert_int_equal(blocks.cached_bytes, 2 * SMALL_BLOCKS_STEP);
    small_blocks_free(&blocks, taken[2]);
    void *large = small_blocks_malloc(&blocks, LARGEST + 1);
    assert_non_null(large);
    small_blocks_free(&blocks, large);
    assert_int_equal(blocks.cached_bytes, 3 * SMALL_BLOCKS_STEP);
    small_blocks_fini(&blocks);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_are_aligned_and_disjoint),
        cmocka_unit_test(small_blocks_calloc_zeroes_reused_block),
        cmocka_unit_test(small_blocks_realloc_keeps_bytes),
#ifndef SLUICE_ARENA_EMULATE
        cmocka_unit_test(small_blocks_free_caches_up_to_limit),
#endif
    };
    return cmocka_run_group_tests_name("core/base/small_blocks", tests, NULL, NULL);
}
