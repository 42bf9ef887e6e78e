/* Picks at random, whatever the scores. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    (void)parameters;
    (void)nth;
    return prng_below(candidates->prng, candidates->n);
}

const struct plugin plugin_random_picker = {
    .type = "random-picker", .kind = PLUGIN_PICKER, .pick = pick};
