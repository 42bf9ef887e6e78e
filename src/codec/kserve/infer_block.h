/* A request without its tensors' bytes in one block of memory, of which there can be copies: for
 * front ends that know a request again (decode_cache.h, codec/kserve/grpc/decode_cache.h). */
#ifndef SLUICE_CODEC_KSERVE_INFER_BLOCK_H
#define SLUICE_CODEC_KSERVE_INFER_BLOCK_H

#include "core/tensor/infer.h"

enum {
    INFER_BLOCK_BYTES = 1024, /* what takes more is not kept */
    INFER_BLOCK_INPUTS = INFER_BLOCK_BYTES / sizeof(struct infer_input), /* nor are more of them */
};

/* Zeroed memory is an empty one. */
struct infer_block {
    size_t n_used;
    _Alignas(max_align_t) char bytes[INFER_BLOCK_BYTES];
};

/* Can it be kept? It has no id, no parameters and nothing in shared memory, and each of its inputs
 * is one piece. */
bool infer_block_can_hold(const struct infer_request *request);
/* Each puts what it is given behind what is there; it then points into the block. Texts are
 * NUL-terminated. Returns: false when the block is full. */
bool infer_block_add_request(struct infer_block *block, struct infer_request *request);
bool infer_block_add_text(struct infer_block *block, struct str *text);
bool infer_block_add_bytes(struct infer_block *block, const void **bytes, size_t n_bytes);

/* Returns: a copy in `arena`; NULL when out of memory. */
char *infer_block_copy(const struct infer_block *block, struct arena *arena);
/* Where something of the block is in its copy. */
static inline void *infer_block_relocate(const struct infer_block *block, char *copy,
                                         const void *at) {
    return copy + ((const char *)at - block->bytes);
}
/* A request that points into the block points into the copy from now on. The data of its pieces are
 * for the caller to set: pieces[0] of each input. Returns: the first input's piece; those of the
 * others are behind it. */
struct piece *infer_block_relocate_request(const struct infer_block *block, char *copy,
                                           struct infer_request *request);

#endif
