/* The memory of nghttp2: that blocks come back and are whole, at every size, and how many are kept.
 * It refuses to look into them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/h2_memory.h"

#ifdef SLUICE_ARENA_EMULATE
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif

static void test_a_block_is_used_again(void **state) {
    (void)state;
    struct h2_memory memory = {0};
    nghttp2_mem mem = h2_memory_functions(&memory);
    void *first = mem.malloc(100, &memory), *second = mem.malloc(100, &memory);
    assert_non_null(first);
    assert_true(first != second);
    mem.free(first, &memory);
    assert_int_equal(memory.kept_bytes, KEEPS * 128);
    void *other = mem.malloc(200, &memory); /* of another size */
    assert_int_equal(memory.kept_bytes, KEEPS * 128);
    void *again = mem.malloc(128, &memory);
    assert_int_equal(again == first, KEEPS);
    assert_int_equal(memory.kept_bytes, 0);
    mem.free(again, &memory);
    mem.free(second, &memory);
    mem.free(other, &memory);
    mem.free(NULL, &memory);
    assert_int_equal(memory.kept_bytes, KEEPS * (128 + 128 + 256));
    h2_memory_fini(&memory);
    assert_int_equal(memory.kept_bytes, 0);
}

/* Every size, at its whole length, aligned, and grown to twice as much. */
static void test_every_size(void **state) {
    (void)state;
    struct h2_memory memory = {0};
    nghttp2_mem mem = h2_memory_functions(&memory);
    for (size_t n = 0; n <= (size_t)H2_MEMORY_LARGEST * 2; n++) {
        unsigned char *bytes = mem.malloc(n, &memory);
        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % _Alignof(max_align_t), 0);
        memset(bytes, (int)(n % 251), n);
        bytes = mem.realloc(bytes, 2 * n, &memory);
        assert_non_null(bytes);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(bytes[i], n % 251);
        }
        memset(bytes, 0xff, 2 * n);
        assert_ptr_equal(mem.realloc(bytes, n, &memory), bytes);
        mem.free(bytes, &memory);
        unsigned char *zeroed = mem.calloc(n, 1, &memory);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(zeroed[i], 0);
        }
        mem.free(zeroed, &memory);
    }
    h2_memory_fini(&memory);
}

static void test_no_more_than_the_bound_is_kept(void **state) {
    (void)state;
    enum { N = 2 * H2_MEMORY_MOST_KEPT / H2_MEMORY_LARGEST };
    static void *blocks[N];
    struct h2_memory memory = {0};
    nghttp2_mem mem = h2_memory_functions(&memory);
    for (size_t i = 0; i < N; i++) {
        blocks[i] = mem.malloc(H2_MEMORY_LARGEST, &memory);
        assert_non_null(blocks[i]);
    }
    for (size_t i = 0; i < N; i++) {
        mem.free(blocks[i], &memory);
    }
    assert_int_equal(memory.kept_bytes, KEEPS * H2_MEMORY_MOST_KEPT);
    mem.free(mem.malloc(H2_MEMORY_LARGEST + 1, &memory), &memory);
    assert_int_equal(memory.kept_bytes, KEEPS * H2_MEMORY_MOST_KEPT);
    h2_memory_fini(&memory);
}

static void test_what_nobody_has(void **state) {
    (void)state;
    struct h2_memory memory = {0};
    nghttp2_mem mem = h2_memory_functions(&memory);
    volatile size_t most = SIZE_MAX;
    assert_null(mem.malloc(most, &memory));
    assert_null(mem.calloc(most / 2, 3, &memory));
    void *small = mem.realloc(NULL, 10, &memory);
    assert_non_null(small);
    assert_null(mem.realloc(small, most, &memory)); /* and it is still there */
    mem.free(small, &memory);
    h2_memory_fini(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_is_used_again),
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_no_more_than_the_bound_is_kept),
        cmocka_unit_test(test_what_nobody_has),
    };
    return cmocka_run_group_tests_name("net/h2_memory", tests, NULL, NULL);
}
