/* A block that is cut by the pieces that the text arrives in is put together in `rest`; whole ones
 * are hashed where they are. */
#include "pick/pool/prefix/chain.h"

#include <assert.h>
#include <string.h>

#include "core/base/hash.h"

enum { FIRST_CAP = 16 };

void prefix_chain_init(struct prefix_chain *chain, struct arena *arena, struct prefix_blocks blocks,
                       uint64_t seed) {
    assert(blocks.block_bytes > 0 && blocks.block_bytes <= PREFIX_MAX_BLOCK_BYTES);
    *chain = (struct prefix_chain){.arena = arena, .blocks = blocks, .seed = seed, .last = seed};
}

/* Without memory the blocks so far are what is known. */
static bool has_room(struct prefix_chain *chain) {
    if (chain->n < chain->cap) {
        return true;
    }
    uint32_t most = chain->blocks.most;
    uint32_t cap = chain->cap == 0 ? FIRST_CAP : chain->cap > most / 2 ? most : 2 * chain->cap;
    cap = cap < most ? cap : most;
    uint64_t *hashes = arena_realloc(chain->arena, chain->hashes, chain->cap * sizeof(*hashes),
                                     cap * sizeof(*hashes));
    if (!hashes) {
        chain->ended = true;
        return false;
    }
    chain->hashes = hashes;
    chain->cap = cap;
    return true;
}

static void add_block(struct prefix_chain *chain, struct str block) {
    if (has_room(chain)) {
        chain->last = hash_block(block, chain->last, chain->seed);
        chain->hashes[chain->n++] = chain->last;
    }
}

static bool is_full(const struct prefix_chain *chain) {
    return chain->ended || chain->n >= chain->blocks.most;
}

/* Moves the beginning of *text to the end of the rest, up to a block. */
static void fill_rest(struct prefix_chain *chain, struct str *text) {
    size_t room = chain->blocks.block_bytes - chain->n_rest;
    size_t n = text->len < room ? text->len : room;
    if (!chain->rest) {
        chain->rest = arena_alloc(chain->arena, chain->blocks.block_bytes);
        if (!chain->rest) {
            chain->ended = true;
            return;
        }
    }
    memcpy(chain->rest + chain->n_rest, text->ptr, n);
    chain->n_rest += (uint32_t)n;
    *text = str_make(text->ptr + n, text->len - n);
}

void prefix_chain_add(struct prefix_chain *chain, struct str text) {
    size_t size = chain->blocks.block_bytes;
    if (chain->n_rest > 0 && text.len > 0 && !is_full(chain)) {
        fill_rest(chain, &text);
        if (chain->n_rest == size) {
            add_block(chain, str_make(chain->rest, size));
            chain->n_rest = 0;
        }
    }
    while (text.len >= size && !is_full(chain)) {
        add_block(chain, str_make(text.ptr, size));
        text = str_make(text.ptr + size, text.len - size);
    }
    if (text.len > 0 && !is_full(chain)) {
        fill_rest(chain, &text);
    }
}

void prefix_chain_end(struct prefix_chain *chain) {
    if (chain->n_rest > 0 && !is_full(chain)) {
        add_block(chain, str_make(chain->rest, chain->n_rest));
    }
    chain->ended = true;
}
