/* Fewer tokens in flight score higher: a long prompt is more work than a short one. */
#include "pick/pool/profile/plugin.h"

enum { QUEUE_THRESHOLD_TOKENS = 4194304 };

struct token_load {
    struct str producer;
    float n_tokens;  /* scores 0 */
    uint32_t prefix; /* the producer that says what of the prompt is in the cache */
};

static const struct doc_member PARAMETERS[] = {
    {"queueThresholdTokens", MEMBER_WHOLE(struct token_load, n_tokens, 0, INT64_C(1) << 40),
     .preset = QUEUE_THRESHOLD_TOKENS},
    {"inFlightLoadProducerName", MEMBER_TEXT(struct token_load, producer)},
    {0}};

static float threshold_of(const struct token_load *own) {
    return own->n_tokens > 0 ? own->n_tokens : QUEUE_THRESHOLD_TOKENS;
}

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    struct token_load *own = parameters;
    (void)err;
    own->prefix = needs->load.prefix;
    pool_needs_tokens(needs);
    return ST_OK;
}

SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const float *n_tokens = candidates->columns->n_tokens;
    float factor = 1 / threshold_of(parameters);
    (void)stats;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - n_tokens[i] * factor;
        out[i] += (left > 0 ? left : 0) * weight;
    }
}

static float share_left(float n_tokens, float threshold) {
    return n_tokens < threshold ? 1 - n_tokens / threshold : 0;
}

/* The request would add its prompt to each endpoint, less what the endpoint has of it: the latter
 * makes the difference. */
static void adjust_scores(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct token_load *own = parameters;
    const struct prefix_matches *prefix = &candidates->prefixes[own->prefix];
    float block_tokens = (float)prefix->block_bytes / PROMPT_BYTES_PER_TOKEN;
    for (uint32_t k = 0; k < prefix->n; k++) {
        uint32_t i = candidate_set_index_of(candidates, prefix->hits[k].member);
        if (i < candidates->n) {
            float whole = candidates->columns->n_tokens[i] + (float)prefix->n_blocks * block_tokens;
            float less = (float)prefix->hits[k].n_blocks * block_tokens;
            float more =
                share_left(whole - less, threshold_of(own)) - share_left(whole, threshold_of(own));
            candidate_set_add_score(candidates, i, more * weight);
        }
    }
}

static const struct plugin_cacheable CACHEABLE = {.score_range = score_range,
                                                  .adjust_scores = adjust_scores};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
    adjust_scores(parameters, candidates, weight);
}

const struct plugin plugin_token_load_scorer = {.type = "token-load-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .load_share = 1,
                                                PLUGIN_PARAMETERS(struct token_load, PARAMETERS),
                                                .add_needs = add_needs,
                                                .score = score,
                                                .cacheable = &CACHEABLE};
