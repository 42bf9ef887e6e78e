/* Picks the highest score; equal ones at random. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    struct column_max best = column_max_find(candidates, candidates->score);
    (void)parameters;
    (void)nth;
    return column_max_index(&best, candidates->score,
                            best.n > 1 ? prng_below(candidates->prng, best.n) : 0);
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
