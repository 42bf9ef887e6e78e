/* Scores the share of the prompt's beginning that an endpoint was recently sent. */
#include "pick/pool/profile/plugin.h"

enum { MOST_BLOCKS = 65536 };

static enum status read_blocks(const struct doc_node *node, struct pool_request_needs *out,
                               struct error *err) {
    struct doc_node bytes = doc_get(node, "blockSize"), tokens = doc_get(node, "blockSizeTokens");
    struct doc_node most = doc_get(node, "maxPrefixBlocksToMatch");
    int64_t n_bytes = out->blocks.block_bytes, n_tokens = n_bytes / PROMPT_BYTES_PER_TOKEN;
    int64_t n_blocks = out->blocks.most;
    if (doc_is_present(&bytes) && doc_is_present(&tokens)) {
        return doc_error(&tokens, err, "expected blockSize or blockSizeTokens, not both");
    }
    enum status st = doc_read_i64(&bytes, 1, PREFIX_MAX_BLOCK_BYTES, &n_bytes, err);
    if (st == ST_OK) {
        st = doc_read_i64(&tokens, 1, PREFIX_MAX_BLOCK_BYTES / PROMPT_BYTES_PER_TOKEN, &n_tokens,
                          err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&most, 1, MOST_BLOCKS, &n_blocks, err);
    }
    n_bytes = doc_is_present(&tokens) ? n_tokens * PROMPT_BYTES_PER_TOKEN : n_bytes;
    if (st == ST_OK && n_bytes * n_blocks > PREFIX_MAX_TEXT_BYTES) {
        return doc_error(&most, err, "expected blocks of %d bytes together at most",
                         (int)PREFIX_MAX_TEXT_BYTES);
    }
    out->blocks.block_bytes = (uint32_t)n_bytes;
    out->blocks.most = (uint32_t)n_blocks;
    return st;
}

static enum status read_parameters(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err) {
    static const char *const names[] = {"autoTune",
                                        "blockSize",
                                        "blockSizeTokens",
                                        "lruCapacityPerServer",
                                        "maxPrefixBlocksToMatch",
                                        NULL};
    struct doc_node capacity = doc_get(node, "lruCapacityPerServer");
    struct doc_node tune = doc_get(node, "autoTune");
    struct pool_request_needs *needs = arena_calloc(arena, 1, sizeof(*needs));
    int64_t n_blocks = PREFIX_CAPACITY_DEFAULT;
    *parameters = needs;
    if (!needs) {
        return error_no_memory(err, "a scorer");
    }
    *needs = (struct pool_request_needs){.blocks = PREFIX_BLOCKS_DEFAULT, .auto_capacity = true};
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = read_blocks(node, needs, err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&capacity, 1, INT32_MAX, &n_blocks, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&tune, &needs->auto_capacity, err);
    }
    needs->capacity = (uint32_t)n_blocks;
    return st;
}

/* All plugins of a profile share one chain of blocks per request. */
static enum status add_needs(const void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    const struct pool_request_needs *own = parameters;
    if (needs->is_set &&
        (own->blocks.block_bytes != needs->blocks.block_bytes ||
         own->blocks.most != needs->blocks.most || own->capacity != needs->capacity ||
         own->auto_capacity != needs->auto_capacity)) {
        return error_set(err, ST_BAD_CONFIG,
                         "the profile has two prefix-cache-scorers with different parameters");
    }
    needs->blocks = own->blocks;
    needs->capacity = own->capacity;
    needs->auto_capacity = own->auto_capacity;
    needs->prompt = needs->body = needs->is_set = true;
    return ST_OK;
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct prefix_matches *prefix = candidates->prefix;
    float limit = prefix->n > 0 ? affinity_limit(candidates) : 0;
    (void)parameters;
    for (uint32_t k = 0; k < prefix->n; k++) {
        uint32_t i = candidate_set_index_of(candidates, prefix->hits[k].member);
        if (i < candidates->n && candidates->columns->in_flight[i] < limit) {
            candidate_set_add_score(
                candidates, i,
                weight * ((float)prefix->hits[k].n_blocks / (float)prefix->n_blocks));
        }
    }
}

const struct plugin plugin_prefix_cache_scorer = {.type = "prefix-cache-scorer",
                                                  .kind = PLUGIN_SCORER,
                                                  .affinity_share = 1,
                                                  .read_parameters = read_parameters,
                                                  .add_needs = add_needs,
                                                  .score = score};
