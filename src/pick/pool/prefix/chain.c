/* Each block is hashed with the hash before it as the seed. */
#include "pick/pool/prefix/chain.h"

#include <assert.h>

#include "core/base/hash.h"

/* The block that begins in `head` and ends in `text`. */
static uint64_t hash_both(struct str head, struct str text, uint64_t seed) {
    char block[PREFIX_MAX_BLOCK_BYTES];
    memcpy(block, head.ptr, head.len);
    memcpy(block + head.len, text.ptr, text.len);
    return hash_text(str_make(block, head.len + text.len), seed);
}

uint32_t prefix_chain_hash(struct prefix_blocks blocks, uint64_t seed, struct str model,
                           struct str head, struct str text, uint64_t *out) {
    uint64_t hash = hash_text(model, seed);
    size_t size = blocks.block_bytes;
    uint32_t n = 0;
    assert(size > 0 && size <= PREFIX_MAX_BLOCK_BYTES);
    while (n < blocks.most && head.len >= size) {
        out[n++] = hash = hash_text(str_make(head.ptr, size), hash);
        head = str_make(head.ptr + size, head.len - size);
    }
    if (n < blocks.most && head.len > 0 && head.len + text.len >= size) {
        size_t rest = size - head.len;
        out[n++] = hash = hash_both(head, str_make(text.ptr, rest), hash);
        text = str_make(text.ptr + rest, text.len - rest);
        head.len = 0;
    }
    while (n < blocks.most && head.len == 0 && text.len >= size) {
        out[n++] = hash = hash_text(str_make(text.ptr, size), hash);
        text = str_make(text.ptr + size, text.len - size);
    }
    return n;
}
