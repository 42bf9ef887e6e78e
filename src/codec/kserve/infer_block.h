/* A request without its tensors' bytes in one relocatable block of memory, for the decode caches
 * (decode_cache.h, codec/kserve/grpc/decode_cache.h). */
#ifndef SLUICE_CODEC_KSERVE_INFER_BLOCK_H
#define SLUICE_CODEC_KSERVE_INFER_BLOCK_H

#include "core/tensor/infer.h"

enum {
    INFER_BLOCK_BYTES = 1024, /* larger requests are not cached */
    INFER_BLOCK_INPUTS = INFER_BLOCK_BYTES / sizeof(struct infer_input), /* nor requests with more
                                                                            inputs */
};

/* Zeroed memory is an empty block. */
struct infer_block {
    size_t n_used;
    _Alignas(max_align_t) char bytes[INFER_BLOCK_BYTES];
};

/* Can the request be stored? It must have no id, no parameters and nothing in shared memory, and
 * each of its inputs must be one piece. */
bool infer_block_can_hold(const struct infer_request *request);
/* Each appends a copy of its argument and makes the argument point into the block. Texts are
 * NUL-terminated. Returns: false when the block is full. */
bool infer_block_add_request(struct infer_block *block, struct infer_request *request);
bool infer_block_add_text(struct infer_block *block, struct str *text);
bool infer_block_add_bytes(struct infer_block *block, const void **bytes, size_t n_bytes);

/* Returns: a copy in `arena`; NULL when out of memory. */
char *infer_block_copy(const struct infer_block *block, struct arena *arena);
/* Translates a pointer into the block to the same place in its copy. */
static inline void *infer_block_relocate(const struct infer_block *block, char *copy,
                                         const void *at) {
    return copy + ((const char *)at - block->bytes);
}
/* Makes a request that points into the block point into the copy. The caller sets the data of
 * the pieces: pieces[0] of each input. Returns: the first input's piece; those of the other
 * inputs follow it. */
struct piece *infer_block_relocate_request(const struct infer_block *block, char *copy,
                                           struct infer_request *request);

#endif
