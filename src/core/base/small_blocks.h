/* An allocator for a library that takes many small blocks of the same few sizes and soon frees
 * them: freed blocks are cached by size, and reusing one costs a tenth of a malloc. Larger blocks
 * go to the heap, through the same functions.
 *
 * With SLUICE_ARENA_EMULATE defined nothing is cached, so that the address sanitizer sees a use
 * after free.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_SMALL_BLOCKS_H
#define SLUICE_CORE_BASE_SMALL_BLOCKS_H

#include <stddef.h>

/* Sizes go up in steps; larger blocks than the last are not cached. */
enum { SMALL_BLOCKS_STEP = 32, SMALL_BLOCKS_SIZES = 16 };

struct small_block;

/* Zeroed but for `max_cached_bytes`, the limit of the cache, it is empty. */
struct small_blocks {
    size_t max_cached_bytes;
    size_t cached_bytes;
    struct small_block *free_lists[SMALL_BLOCKS_SIZES];
};

/* Frees the cached blocks. Blocks in use must have been freed before. */
void small_blocks_fini(struct small_blocks *blocks);

/* As the functions of <stdlib.h> with the same names, also for a size of 0. Their blocks are freed
 * by small_blocks_free or small_blocks_realloc of the same `blocks`. Returns: NULL when out of
 * memory. */
void *small_blocks_malloc(struct small_blocks *blocks, size_t n_bytes);
void *small_blocks_calloc(struct small_blocks *blocks, size_t n, size_t size);
void *small_blocks_realloc(struct small_blocks *blocks, void *ptr, size_t n_bytes);
void small_blocks_free(struct small_blocks *blocks, void *ptr);

#endif
