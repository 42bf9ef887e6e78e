/* Fewer waiting requests score higher; `threshold` or more score 0. */
#include "pick/pool/profile/plugin.h"

struct limit {
    float n_waiting;
};

/* The score without waiting requests: how many more the endpoint could take is unknown. */
static const float IDLE = 0.5f;

static const struct doc_member PARAMETERS[] = {
    {"threshold", MEMBER_WHOLE(struct limit, n_waiting, 1, 1000000), .preset = 128}, {0}};

SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const struct limit *limit = parameters;
    const float *waiting = candidates->columns->n_waiting;
    float factor = 1 / limit->n_waiting, most = IDLE * weight;
    (void)stats;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - waiting[i] * factor;
        out[i] += (left > 0 ? left : 0) * most;
    }
}

static const struct plugin_cacheable CACHEABLE = {.score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_load_aware_scorer = {.type = "load-aware-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .load_share = 0.5f,
                                                PLUGIN_PARAMETERS(struct limit, PARAMETERS),
                                                .score = score,
                                                .cacheable = &CACHEABLE};
