/* Memory for a library that takes many small blocks of the same few sizes and soon gives them back:
 * those that come back are kept by their size for who asks next, which costs a tenth of a heap's
 * way. Larger blocks are the heap's, with the same functions.
 *
 * With SLUICE_ARENA_EMULATE defined nothing is kept, so that the address sanitizer sees who uses a
 * block that was given back.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_SMALL_BLOCKS_H
#define SLUICE_CORE_BASE_SMALL_BLOCKS_H

#include <stddef.h>

/* Sizes go up in steps; what is larger than all of them is not kept. */
enum { SMALL_BLOCKS_STEP = 32, SMALL_BLOCKS_SIZES = 16 };

struct small_block;

/* Zeroed but for `most_bytes`, the bound of what it keeps, it is an empty one. */
struct small_blocks {
    size_t max_cached_bytes;
    size_t n_bytes; /* kept now */
    struct small_block *free_lists[SMALL_BLOCKS_SIZES];
};

/* Gives what is kept back to the heap. Blocks that are out must have come back before. */
void small_blocks_fini(struct small_blocks *blocks);

/* As their namesakes of <stdlib.h>, of a size of 0 too. What they return goes to small_blocks_free
 * or small_blocks_realloc of the same `blocks`. Returns: NULL when memory is out. */
void *small_blocks_malloc(struct small_blocks *blocks, size_t n_bytes);
void *small_blocks_calloc(struct small_blocks *blocks, size_t n, size_t size);
void *small_blocks_realloc(struct small_blocks *blocks, void *ptr, size_t n_bytes);
void small_blocks_free(struct small_blocks *blocks, void *ptr);

#endif
