/* One allocation per block: there are few, made when a model is loaded. */
#include "common/block.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

struct block {
    struct block *next;
    max_align_t bytes[];
};

void *block_alloc(struct block **blocks, size_t n, size_t n_bytes, sluice_error *error) {
    struct block *block = NULL;
    if (n_bytes == 0 || n <= (SIZE_MAX - sizeof(*block)) / n_bytes) {
        block = calloc(1, sizeof(*block) + n * n_bytes);
    }
    if (!block) {
        error_no_memory(error, "the model's signature");
        return NULL;
    }
    block->next = *blocks;
    *blocks = block;
    return block->bytes;
}

char *block_strdup(struct block **blocks, const char *text, sluice_error *error) {
    size_t n_bytes = strlen(text) + 1;
    char *copy = block_alloc(blocks, n_bytes, 1, error);
    return copy ? memcpy(copy, text, n_bytes) : NULL;
}

void blocks_free(struct block **blocks) {
    for (struct block *block = *blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *blocks = NULL;
}
