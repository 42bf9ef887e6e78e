/* Scores the share of the prompt's beginning that an endpoint was recently sent. */
#include "pick/pool/profile/plugin.h"

enum { MOST_BLOCKS = 65536 };

/* Reads `blockSize`, or `blockSizeTokens` beside it. */
static void read_block_bytes(struct doc_reader *reader, const struct doc_node *bytes, void *out) {
    struct doc_node tokens = doc_get(bytes->parent, "blockSizeTokens");
    uint32_t *block_bytes = out;
    uint64_t n_bytes = *block_bytes, n_tokens = 0;
    if (doc_is_present(bytes) && doc_is_present(&tokens)) {
        doc_reader_fail(reader, &tokens, "expected blockSize or blockSizeTokens, not both");
    }
    doc_reader_u64(reader, bytes, reader->row->min, reader->row->max, &n_bytes);
    doc_reader_u64(reader, &tokens, 1, PREFIX_MAX_BLOCK_BYTES / PROMPT_BYTES_PER_TOKEN, &n_tokens);
    *block_bytes =
        (uint32_t)(doc_is_present(&tokens) ? n_tokens * PROMPT_BYTES_PER_TOKEN : n_bytes);
}

static void check_text_bytes(struct doc_reader *reader, const struct doc_node *node,
                             void *parameters) {
    const struct pool_request_needs *needs = parameters;
    if ((int64_t)needs->blocks.block_bytes * needs->blocks.most > PREFIX_MAX_TEXT_BYTES) {
        doc_reader_fail(reader, node, "expected blocks of %d bytes together at most",
                        (int)PREFIX_MAX_TEXT_BYTES);
    }
}

static const struct doc_member PARAMETERS[] = {
    {"blockSize",
     MEMBER_CUSTOM_NUMBER(struct pool_request_needs, blocks.block_bytes, read_block_bytes),
     .min = 1, .max = PREFIX_MAX_BLOCK_BYTES, .preset = PREFIX_BLOCK_BYTES_DEFAULT},
    {"blockSizeTokens", MEMBER_BY_CALLER, .form = "the same in tokens"}, /* read with blockSize */
    {"maxPrefixBlocksToMatch", MEMBER_WHOLE(struct pool_request_needs, blocks.most, 1, MOST_BLOCKS),
     .preset = PREFIX_MOST_BLOCKS_DEFAULT, .check = check_text_bytes},
    {"lruCapacityPerServer", MEMBER_WHOLE(struct pool_request_needs, capacity, 1, INT32_MAX),
     .preset = PREFIX_CAPACITY_DEFAULT},
    {"autoTune", MEMBER_BOOL(struct pool_request_needs, auto_capacity), .preset = true},
    {0}};

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

const struct plugin plugin_prefix_cache_scorer = {
    .type = "prefix-cache-scorer",
    .kind = PLUGIN_SCORER,
    .affinity_share = 1,
    PLUGIN_PARAMETERS(struct pool_request_needs, PARAMETERS),
    .add_needs = add_needs,
    .score = score};
