/* Picks the highest score; of equal ones that with the fewest requests in flight, which counts the
 * picks of a burst while the scores do not; equal ones of these at random. */
#include "pick/pool/profile/plugin.h"

/* The number of requests in flight, negative, of candidates with the score. */
SIMD_TARGETS static void rank_equal(const struct candidate_set *candidates, float score) {
    const float *in_flight = candidates->columns->in_flight;
#pragma omp simd
    for (uint32_t i = 0; i < candidates->n; i++) {
        candidates->scratch[i] = candidates->score[i] >= score ? -in_flight[i] : -INFINITY;
    }
}

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    struct column_max best = column_max_find(candidates, candidates->score);
    const float *values = candidates->score;
    (void)parameters;
    (void)nth;
    if (best.n > 1) {
        rank_equal(candidates, best.value);
        values = candidates->scratch;
        best = column_max_find(candidates, values);
    }
    return column_max_index(&best, values, best.n > 1 ? prng_below(candidates->prng, best.n) : 0);
}

static const struct doc_member PARAMETERS[] = {
    {"maxNumOfEndpoints",
     MEMBER_WHOLE(struct picker_parameters, max_endpoints, 0, PICKER_MAX_ENDPOINTS), .preset = 1},
    {0}};

const struct plugin plugin_max_score_picker = {
    .type = "max-score-picker",
    .kind = PLUGIN_PICKER,
    PLUGIN_PARAMETERS(struct picker_parameters, PARAMETERS),
    .pick = pick,
    .has_max_endpoints = true};
