/* Adapts small_blocks to nghttp2's allocator interface. */
#include "net/transport/h2_mem.h"

static void *mem_malloc(size_t n_bytes, void *user) {
    return small_blocks_malloc(user, n_bytes);
}

static void *mem_calloc(size_t n, size_t size, void *user) {
    return small_blocks_calloc(user, n, size);
}

static void *mem_realloc(void *ptr, size_t n_bytes, void *user) {
    return small_blocks_realloc(user, ptr, n_bytes);
}

static void mem_free(void *ptr, void *user) {
    small_blocks_free(user, ptr);
}

nghttp2_mem h2_mem_from_blocks(struct small_blocks *blocks) {
    return (nghttp2_mem){blocks, mem_malloc, mem_free, mem_calloc, mem_realloc};
}
