/* Blocks of shared memory: their states, what is announced of them, and that the pool outlives its
 * owner until the last output is released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "python/block.h"

static const char *reason;

/* Returns: how many blocks were announced; their descriptors are closed. */
static size_t announce(struct block_pool *pool) {
    struct wire_buf buf = {0};
    int fds[POOL_MAX_FDS];
    wire_begin(&buf, WIRE_EXECUTE);
    size_t n = pool_announce(pool, &buf, fds);
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(ftruncate(fds[i], 1), 0); /* the seals keep its size */
        close(fds[i]);
    }
    wire_buf_fini(&buf);
    return n;
}

static void block_goes_through_its_states(void **state) {
    (void)state;
    struct block_pool *pool = pool_new();
    struct block *block = pool_take(pool, 100, BLOCK_GRANTED, &reason);
    assert_non_null(block);
    memset(block->bytes, 7, block->n_bytes);
    uint32_t number = block->number;
    assert_int_equal(announce(pool), 1);
    assert_int_equal(announce(pool), 0);
    assert_null(pool_accept(pool, number + 1));
    assert_false(pool_give_back(pool, number, BLOCK_INPUT));
    assert_ptr_equal(pool_accept(pool, number), block);
    assert_null(pool_accept(pool, number));
    block_ref(block);
    block_release(block);
    assert_int_equal(block->state, BLOCK_OUTPUT);
    block_release(block);
    assert_ptr_equal(pool_take(pool, 200, BLOCK_INPUT, &reason), block); /* it is used again */
    assert_true(pool_give_back(pool, number, BLOCK_INPUT));
    pool_unref(pool);
}

static size_t memory_of(const struct block *block) {
    struct stat info;
    assert_int_equal(fstat(block->fd, &info), 0);
    return (size_t)info.st_blocks * 512;
}

static void block_that_is_idle_loses_its_memory(void **state) {
    (void)state;
    struct block_pool *pool = pool_new();
    struct block *used = pool_take(pool, 1 << 20, BLOCK_INPUT, &reason);
    struct block *block = pool_take(pool, 1 << 20, BLOCK_INPUT, &reason);
    memset(used->bytes, 7, used->n_bytes);
    memset(block->bytes, 7, block->n_bytes);
    assert_true(pool_give_back(pool, block->number, BLOCK_INPUT));
    for (unsigned i = 0; i < BLOCK_TRIM_S; i++) {
        pool_trim(pool);
    }
    assert_int_equal(memory_of(block), block->n_bytes);
    pool_trim(pool);
    assert_int_equal(memory_of(block), 0);
    assert_int_equal(memory_of(used), used->n_bytes);
    assert_ptr_equal(pool_take(pool, 1 << 20, BLOCK_INPUT, &reason), block);
    memset(block->bytes, 8, block->n_bytes);
    pool_trim(pool);
    assert_int_equal(memory_of(block), block->n_bytes);
    pool_unref(pool);
}

static void block_outlives_the_pools_owner(void **state) {
    (void)state;
    struct block_pool *pool = pool_new();
    struct block *block = pool_take(pool, 1 << 20, BLOCK_GRANTED, &reason);
    assert_ptr_equal(pool_accept(pool, block->number), block);
    pool_unref(pool);
    block->bytes[0] = 1;
    block_release(block);
}

static void block_grants_are_limited(void **state) {
    (void)state;
    struct block_pool *pool = pool_new();
    for (int i = 0; i < BLOCK_MAX_GRANTED; i++) {
        assert_non_null(pool_take(pool, 1, BLOCK_GRANTED, &reason));
        (void)announce(pool);
    }
    assert_null(pool_take(pool, 1, BLOCK_GRANTED, &reason));
    assert_non_null(strstr(reason, "too many blocks"));
    assert_null(pool_take(pool, SIZE_MAX, BLOCK_INPUT, &reason));
    pool_unref(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_goes_through_its_states),
        cmocka_unit_test(block_that_is_idle_loses_its_memory),
        cmocka_unit_test(block_outlives_the_pools_owner),
        cmocka_unit_test(block_grants_are_limited),
    };
    return cmocka_run_group_tests_name("python/block", tests, NULL, NULL);
}
