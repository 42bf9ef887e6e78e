/* The memory of a session: its frame buffer takes the pages that it uses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/transport/h2_setup.h"

enum { FRAME_BYTES = 16384, MAX_PAGES = 16 };

static bool munmap_fails;

/* In place of libc's. */
int munmap(void *address, size_t n_bytes) {
    if (munmap_fails) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_munmap, address, n_bytes);
}

static size_t n_resident(void *mapped, size_t n_bytes) {
    unsigned char pages[MAX_PAGES];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    size_t n_pages = (n_bytes + page_bytes - 1) / page_bytes;
    assert_in_range(n_pages, 2, MAX_PAGES);
    assert_int_equal(mincore(mapped, n_bytes, pages), 0);
    for (size_t i = 0; i < n_pages; i++) {
        n += pages[i] & 1;
    }
    return n;
}

static void h2_memory_session_takes_a_page_of_its_frame_buffer(void **state) {
    struct h2_memory memory = {0};
    nghttp2_mem functions = h2_memory_functions(&memory);
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    const uint8_t *sent;
    (void)state;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    assert_int_equal(nghttp2_session_server_new3(&session, callbacks, NULL, NULL, &functions), 0);
    assert_non_null(memory.mappings[0].block);
    assert_int_equal(n_resident(memory.mappings[0].block, memory.mappings[0].n_bytes), 0);
    assert_int_equal(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    assert_int_equal(nghttp2_session_mem_send(session, &sent), 9);
    assert_memory_equal(sent, "\0\0\0\4\0\0\0\0\0", 9);
    assert_int_equal(n_resident(memory.mappings[0].block, memory.mappings[0].n_bytes), 1);
    nghttp2_session_del(session);
    assert_null(memory.mappings[0].block);
    nghttp2_session_callbacks_del(callbacks);
}

static void h2_memory_other_blocks_are_of_the_heap(void **state) {
    struct h2_memory memory = {0};
    nghttp2_mem f = h2_memory_functions(&memory);
    (void)state;
    void *small = f.malloc(FRAME_BYTES - 1, &memory);
    assert_null(memory.mappings[0].block);
    void *first = f.realloc(NULL, FRAME_BYTES + 10, &memory);
    assert_ptr_equal(first, memory.mappings[0].block);
    void *longer = f.malloc(4 * FRAME_BYTES, &memory);
    assert_ptr_equal(longer, memory.mappings[1].block);
    void *third = f.malloc(FRAME_BYTES + 10, &memory);
    third = f.realloc(third, 2 * FRAME_BYTES, &memory);
    assert_ptr_equal(first, memory.mappings[0].block);
    assert_ptr_equal(longer, memory.mappings[1].block);
    f.free(third, &memory);
    f.free(longer, &memory);
    assert_null(memory.mappings[1].block);
    f.free(small, &memory);
    f.free(NULL, &memory);
    assert_ptr_equal(first, memory.mappings[0].block);
    memset(first, 7, FRAME_BYTES + 10);
    unsigned char *moved = f.realloc(first, 2 * FRAME_BYTES, &memory);
    assert_null(memory.mappings[0].block);
    for (size_t i = 0; i < FRAME_BYTES + 10; i++) {
        assert_int_equal(moved[i], 7);
    }
    f.free(moved, &memory);
    int *zeroes = f.calloc(4, sizeof(int), &memory);
    assert_int_equal(zeroes[3], 0);
    f.free(zeroes, &memory);
}

/* As at the kernel's limit on mappings. */
static void h2_memory_failed_unmap_frees_the_pages(void **state) {
    struct h2_memory memory = {0};
    nghttp2_mem f = h2_memory_functions(&memory);
    (void)state;
    void *block = f.malloc(FRAME_BYTES + 10, &memory);
    size_t n_bytes = memory.mappings[0].n_bytes;
    assert_ptr_equal(block, memory.mappings[0].block);
    memset(block, 7, n_bytes);
    assert_in_range(n_resident(block, n_bytes), 2, MAX_PAGES);
    munmap_fails = true;
    f.free(block, &memory);
    munmap_fails = false;
    assert_null(memory.mappings[0].block);
    assert_int_equal(n_resident(block, n_bytes), 0);
    assert_int_equal(munmap(block, n_bytes), 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_memory_session_takes_a_page_of_its_frame_buffer),
        cmocka_unit_test(h2_memory_other_blocks_are_of_the_heap),
        cmocka_unit_test(h2_memory_failed_unmap_frees_the_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
