/* A free list for each size; a header in front of every block contains its size. */
#include "core/base/small_blocks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

/* Without caching, the address sanitizer sees a use after free. */
#ifdef SLUICE_ARENA_EMULATE
enum { CACHE_BLOCKS = 0 };
#else
enum { CACHE_BLOCKS = 1 };
#endif

/* Its size keeps the bytes after it aligned. */
struct small_block {
    _Alignas(max_align_t) size_t size; /* SMALL_BLOCKS_SIZES: larger than all of them */
    size_t capacity;                   /* bytes after this header */
};

/* The link of a cached block, in its content. */
static struct small_block **next_of(struct small_block *block) {
    return (struct small_block **)(void *)(block + 1);
}

static struct small_block *block_of(void *ptr) {
    return (struct small_block *)ptr - 1;
}

void small_blocks_fini(struct small_blocks *blocks) {
    for (size_t i = 0; i < SMALL_BLOCKS_SIZES; i++) {
        while (blocks->free_lists[i]) {
            struct small_block *block = blocks->free_lists[i];
            blocks->free_lists[i] = *next_of(block);
            free(block);
        }
    }
    blocks->cached_bytes = 0;
}

void *small_blocks_malloc(struct small_blocks *blocks, size_t n_bytes) {
    size_t size = n_bytes > 0 ? (n_bytes - 1) / SMALL_BLOCKS_STEP : 0;
    if (size < SMALL_BLOCKS_SIZES && blocks->free_lists[size]) {
        struct small_block *block = blocks->free_lists[size];
        blocks->free_lists[size] = *next_of(block);
        blocks->cached_bytes -= block->capacity;
        return block + 1;
    }
    bool small = size < SMALL_BLOCKS_SIZES;
    size_t capacity = small ? (size + 1) * SMALL_BLOCKS_STEP : n_bytes;
    struct small_block *block =
        capacity <= SIZE_MAX - sizeof(*block) ? malloc(sizeof(*block) + capacity) : NULL;
    if (!block) {
        return NULL;
    }
    *block = (struct small_block){.size = small ? size : SMALL_BLOCKS_SIZES, .capacity = capacity};
    return block + 1;
}

void small_blocks_free(struct small_blocks *blocks, void *ptr) {
    if (!ptr) {
        return;
    }
    struct small_block *block = block_of(ptr);
    if (!CACHE_BLOCKS || block->size >= SMALL_BLOCKS_SIZES ||
        blocks->cached_bytes + block->capacity > blocks->max_cached_bytes) {
        free(block);
        return;
    }
    *next_of(block) = blocks->free_lists[block->size];
    blocks->free_lists[block->size] = block;
    blocks->cached_bytes += block->capacity;
}

void *small_blocks_calloc(struct small_blocks *blocks, size_t n, size_t size) {
    size_t n_bytes;
    void *ptr = checked_mul(n, size, &n_bytes) ? small_blocks_malloc(blocks, n_bytes) : NULL;
    return ptr ? memset(ptr, 0, n_bytes) : NULL;
}

void *small_blocks_realloc(struct small_blocks *blocks, void *ptr, size_t n_bytes) {
    if (ptr && n_bytes <= block_of(ptr)->capacity) {
        return ptr;
    }
    void *larger = small_blocks_malloc(blocks, n_bytes);
    if (ptr && larger) {
        memcpy(larger, ptr, block_of(ptr)->capacity);
        small_blocks_free(blocks, ptr);
    }
    return larger;
}
