/* The more of the prompt's beginning an endpoint was sent lately, the better. */
#include "pick/pool/profile/plugin.h"

enum { BYTES_OF_TOKEN = 4, MOST_BLOCKS = 65536 };

static enum status read_blocks(const struct doc_node *node, struct pool_wants *out,
                               struct error *err) {
    struct doc_node bytes = doc_get(node, "blockSize"), tokens = doc_get(node, "blockSizeTokens");
    struct doc_node most = doc_get(node, "maxPrefixBlocksToMatch");
    int64_t n_bytes = out->blocks.block_bytes, n_tokens = n_bytes / BYTES_OF_TOKEN;
    int64_t n_blocks = out->blocks.most;
    if (doc_present(&bytes) && doc_present(&tokens)) {
        return doc_error(&tokens, err, "expected a blockSize or a blockSizeTokens, not both");
    }
    enum status st = doc_read_i64(&bytes, 1, PREFIX_MOST_BLOCK_BYTES, &n_bytes, err);
    if (st == ST_OK) {
        st = doc_read_i64(&tokens, 1, PREFIX_MOST_BLOCK_BYTES / BYTES_OF_TOKEN, &n_tokens, err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&most, 1, MOST_BLOCKS, &n_blocks, err);
    }
    n_bytes = doc_present(&tokens) ? n_tokens * BYTES_OF_TOKEN : n_bytes;
    if (st == ST_OK && n_bytes * n_blocks > PREFIX_MOST_TEXT_BYTES) {
        return doc_error(&most, err, "expected blocks of %d bytes together at most",
                         (int)PREFIX_MOST_TEXT_BYTES);
    }
    out->blocks.block_bytes = (uint32_t)n_bytes;
    out->blocks.most = (uint32_t)n_blocks;
    return st;
}

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const names[] = {"autoTune",
                                        "blockSize",
                                        "blockSizeTokens",
                                        "lruCapacityPerServer",
                                        "maxPrefixBlocksToMatch",
                                        NULL};
    struct doc_node capacity = doc_get(node, "lruCapacityPerServer");
    struct doc_node tune = doc_get(node, "autoTune");
    struct pool_wants *wants = arena_calloc(arena, 1, sizeof(*wants));
    int64_t n_blocks = PREFIX_CAPACITY_DEFAULT;
    *parameters = wants;
    if (!wants) {
        return error_set(err, ST_NO_MEMORY, "no memory for a scorer");
    }
    *wants = (struct pool_wants){.blocks = PREFIX_BLOCKS_DEFAULT, .auto_capacity = true};
    enum status st = doc_present(node) ? doc_only(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = read_blocks(node, wants, err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&capacity, 1, INT32_MAX, &n_blocks, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&tune, &wants->auto_capacity, err);
    }
    wants->capacity = (uint32_t)n_blocks;
    return st;
}

/* Of one request there is one chain of blocks. */
static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    const struct pool_wants *own = parameters;
    if (wants->is_said &&
        (own->blocks.block_bytes != wants->blocks.block_bytes ||
         own->blocks.most != wants->blocks.most || own->capacity != wants->capacity ||
         own->auto_capacity != wants->auto_capacity)) {
        return error_set(err, ST_BAD_CONFIG,
                         "the profile has two prefix-cache-scorers with different parameters");
    }
    wants->blocks = own->blocks;
    wants->capacity = own->capacity;
    wants->auto_capacity = own->auto_capacity;
    wants->prompt = wants->body = wants->is_said = true;
    return ST_OK;
}

static void score(const void *parameters, struct choice *choice, float weight) {
    const struct choice_prefix *prefix = choice->prefix;
    (void)parameters;
    for (uint32_t k = 0; k < prefix->n; k++) {
        uint32_t i = choice_place_of(choice, prefix->hits[k].member);
        if (i < choice->n) {
            choice_add_to(choice, i,
                          weight * ((float)prefix->hits[k].n_blocks / (float)prefix->n_blocks));
        }
    }
}

const struct plugin plugin_prefix_cache_scorer = {.type = "prefix-cache-scorer",
                                                  .kind = PLUGIN_SCORER,
                                                  .read = read,
                                                  .want = want,
                                                  .score = score};
