/* Picks at random, whatever the scores. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    (void)parameters;
    (void)nth;
    return prng_below(candidates->prng, candidates->n);
}

static const struct doc_member PARAMETERS[] = {
    {"maxNumOfEndpoints",
     MEMBER_WHOLE(struct picker_parameters, max_endpoints, 0, PICKER_MAX_ENDPOINTS), .preset = 1},
    {0}};

const struct plugin plugin_random_picker = {.type = "random-picker",
                                            .kind = PLUGIN_PICKER,
                                            PLUGIN_PARAMETERS(struct picker_parameters, PARAMETERS),
                                            .pick = pick,
                                            .has_max_endpoints = true};
