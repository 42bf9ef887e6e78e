/* Scores the beginning of the prompt that an endpoint was recently sent: its share of the prompt,
 * and, with `matchLengthWeight`, its length. */
#include "pick/pool/profile/plugin.h"

enum { MOST_BLOCKS = 65536 };

struct prefix_scorer {
    struct prefix_user user;
    float length_weight; /* of the length; the share has the rest */
    double full_tokens;  /* a length that scores 1 */
    /* Set the parameters of the default producer; 0: not given. */
    struct prefix_producer own;
};

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

static void read_count(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_u64(reader, node, reader->row->min, reader->row->max, out);
}

static void read_capacity(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint32_t *capacity = out;
    uint64_t n = *capacity;
    doc_reader_u64(reader, node, reader->row->min, reader->row->max, &n);
    *capacity = (uint32_t)n;
}

static uint64_t block_bytes_of(const struct prefix_producer *own) {
    return own->block_bytes > 0 ? own->block_bytes : PREFIX_PRODUCER_DEFAULT.block_bytes;
}

static void check_text_bytes(struct doc_reader *reader, const struct doc_node *node,
                             void *parameters) {
    const struct prefix_producer *own = &((const struct prefix_scorer *)parameters)->own;
    if (own->max_blocks * block_bytes_of(own) > PREFIX_MAX_TEXT_BYTES) {
        doc_reader_fail(reader, node, "expected blocks of %d bytes together at most",
                        (int)PREFIX_MAX_TEXT_BYTES);
    }
}

static const struct doc_member PARAMETERS[] = {
    {"prefixMatchInfoProducerName", MEMBER_TEXT(struct prefix_scorer, user.producer)},
    {"matchLengthWeight", MEMBER_NUMBER(struct prefix_scorer, length_weight, 0, 1)},
    {"matchLengthScaleTokens", MEMBER_NUMBER(struct prefix_scorer, full_tokens, 1, INT32_MAX),
     .preset = 8192},
    {"blockSize",
     MEMBER_CUSTOM_FIELD(struct prefix_scorer, own.block_bytes, uint32_t, read_block_bytes),
     .min = 1, .max = PREFIX_MAX_BLOCK_BYTES, .form = "bytes"},
    {"blockSizeTokens", MEMBER_BY_CALLER, .form = "the same in tokens"}, /* read with blockSize */
    {"maxPrefixBlocksToMatch",
     MEMBER_CUSTOM_FIELD(struct prefix_scorer, own.max_blocks, uint64_t, read_count), .min = 1,
     .max = MOST_BLOCKS, .check = check_text_bytes},
    {"lruCapacityPerServer",
     MEMBER_CUSTOM_FIELD(struct prefix_scorer, own.capacity, uint32_t, read_capacity), .min = 1,
     .max = INT32_MAX},
    {"autoTune", MEMBER_BOOL(struct prefix_scorer, own.auto_capacity), .preset = true},
    {0}};

static bool is_given(const struct prefix_producer *own) {
    return own->block_bytes > 0 || own->max_blocks > 0 || own->capacity > 0 || !own->auto_capacity;
}

static bool is_same(const struct prefix_producer *a, const struct prefix_producer *b) {
    return a->block_bytes == b->block_bytes && a->max_blocks == b->max_blocks &&
           a->capacity == b->capacity && a->auto_capacity == b->auto_capacity;
}

/* Some parameters of the default producer may be given here instead of there. */
static enum status set_producer(const struct prefix_producer *own, struct pool_request_needs *needs,
                                struct prefix_producer *producer, struct error *err) {
    if (needs->is_set && !is_same(own, &needs->set_by_scorer)) {
        return error_set(err, ST_BAD_CONFIG,
                         "the profile has two prefix-cache-scorers with different parameters");
    }
    needs->is_set = true;
    needs->set_by_scorer = *own;
    if (own->block_bytes > 0) {
        producer->block_bytes = own->block_bytes;
        producer->auto_block = false;
    }
    if (own->max_blocks > 0) {
        producer->max_blocks = own->max_blocks;
        producer->max_tokens = 0;
    }
    producer->capacity = own->capacity > 0 ? own->capacity : producer->capacity;
    producer->auto_capacity = producer->auto_capacity && own->auto_capacity;
    return ST_OK;
}

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    struct prefix_scorer none = {.own = {.auto_capacity = true}};
    struct prefix_scorer *own = parameters ? parameters : &none;
    enum status st = pool_needs_use_prefix(needs, &own->user, err);
    if (st == ST_OK && own->user.producer.len == 0) {
        return set_producer(&own->own, needs, &needs->prefixes[own->user.index], err);
    }
    if (st == ST_OK && is_given(&own->own)) {
        return error_set(err, ST_BAD_CONFIG,
                         "a prefix-cache-scorer has parameters of its producer \"%.*s\"",
                         STR_ARG(own->user.producer));
    }
    return st;
}

static float score_of(const struct prefix_scorer *own, const struct prefix_matches *prefix,
                      uint32_t n_blocks) {
    float share = (float)n_blocks / (float)prefix->n_blocks;
    if (!own || !(own->length_weight > 0)) {
        return share;
    }
    double n_tokens = (double)n_blocks * prefix->block_bytes / PROMPT_BYTES_PER_TOKEN;
    float length = n_tokens < own->full_tokens ? (float)(n_tokens / own->full_tokens) : 1;
    return own->length_weight * length * length + (1 - own->length_weight) * share;
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct prefix_scorer *own = parameters;
    const struct prefix_matches *prefix = &candidates->prefixes[own ? own->user.index : 0];
    float limit = prefix->is_placed ? INFINITY : prefix->n > 0 ? affinity_limit(candidates) : 0;
    for (uint32_t k = 0; k < prefix->n; k++) {
        uint32_t i = candidate_set_index_of(candidates, prefix->hits[k].member);
        uint32_t n_blocks = prefix->hits[k].n_blocks;
        if (i < candidates->n &&
            candidates->columns->in_flight[i] < limit + affinity_allowance(prefix, n_blocks)) {
            candidate_set_add_score(candidates, i, weight * score_of(own, prefix, n_blocks));
        }
    }
}

const struct plugin plugin_prefix_cache_scorer = {
    .type = "prefix-cache-scorer",
    .kind = PLUGIN_SCORER,
    .affinity_share = 1,
    PLUGIN_PARAMETERS(struct prefix_scorer, PARAMETERS),
    .add_needs = add_needs,
    .score = score};
