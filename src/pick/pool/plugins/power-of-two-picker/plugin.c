/* Picks the better of two random candidates: several pickers with the same scores spread their
 * picks, and a bad endpoint is rarely picked (Mitzenmacher 2001). */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    uint32_t one = prng_below(candidates->prng, candidates->n), other = one;
    (void)parameters;
    (void)nth;
    if (candidates->n > 1) {
        other = prng_below(candidates->prng, candidates->n - 1);
        other += other >= one;
    }
    return candidates->score[other] > candidates->score[one] ? other : one;
}

const struct plugin plugin_power_of_two_picker = {
    .type = "power-of-two-picker", .kind = PLUGIN_PICKER, .pick = pick};
