/* Picks at random, with probabilities proportional to the scores; equal ones where all scores are
 * 0. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    double total = 0;
    (void)parameters;
    (void)nth;
    for (uint32_t i = 0; i < candidates->n; i++) {
        total += (double)candidates->score[i];
    }
    if (!(total > 0)) {
        return prng_below(candidates->prng, candidates->n);
    }
    double left = prng_double(candidates->prng) * total;
    uint32_t last = 0; /* the last candidate with a score above 0: for what rounding leaves */
    for (uint32_t i = 0; i < candidates->n; i++) {
        double score = (double)candidates->score[i];
        if (score > 0) {
            last = i;
            if (left < score) {
                return i;
            }
            left -= score;
        }
    }
    return last;
}

static const struct doc_member PARAMETERS[] = {
    {"maxNumOfEndpoints",
     MEMBER_WHOLE(struct picker_parameters, max_endpoints, 0, PICKER_MAX_ENDPOINTS), .preset = 1},
    {0}};

const struct plugin plugin_weighted_random_picker = {
    .type = "weighted-random-picker",
    .kind = PLUGIN_PICKER,
    PLUGIN_PARAMETERS(struct picker_parameters, PARAMETERS),
    .pick = pick,
    .has_max_endpoints = true};
