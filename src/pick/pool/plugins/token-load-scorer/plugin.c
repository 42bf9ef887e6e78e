/* Fewer tokens in flight score higher: a long prompt is more work than a short one. */
#include "pick/pool/profile/plugin.h"

struct limit {
    float n_tokens; /* scores 0 */
};

static const struct doc_member PARAMETERS[] = {
    {"queueThresholdTokens", MEMBER_WHOLE(struct limit, n_tokens, 1, INT64_C(1) << 40),
     .preset = 4194304},
    {0}};

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    (void)parameters;
    (void)err;
    needs->prompt = needs->body = true;
    return ST_OK;
}

SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const struct limit *limit = parameters;
    const float *n_tokens = candidates->columns->n_tokens;
    float factor = 1 / limit->n_tokens;
    (void)stats;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - n_tokens[i] * factor;
        out[i] += (left > 0 ? left : 0) * weight;
    }
}

static const struct plugin_cacheable CACHEABLE = {.score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_token_load_scorer = {.type = "token-load-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .load_share = 1,
                                                PLUGIN_PARAMETERS(struct limit, PARAMETERS),
                                                .add_needs = add_needs,
                                                .score = score,
                                                .cacheable = &CACHEABLE};
