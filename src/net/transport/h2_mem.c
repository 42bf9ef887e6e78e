/* nghttp2's four functions, as they are wanted there. */
#include "net/transport/h2_mem.h"

static void *take(size_t n_bytes, void *user) {
    return small_blocks_malloc(user, n_bytes);
}

static void *take_zeroed(size_t n, size_t size, void *user) {
    return small_blocks_calloc(user, n, size);
}

static void *resize(void *ptr, size_t n_bytes, void *user) {
    return small_blocks_realloc(user, ptr, n_bytes);
}

static void give(void *ptr, void *user) {
    small_blocks_free(user, ptr);
}

nghttp2_mem h2_mem_of(struct small_blocks *blocks) {
    return (nghttp2_mem){blocks, take, give, take_zeroed, resize};
}
