/* Fewer of this picker's own requests in flight is better: none is 1, the most of all is 0. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    uint32_t most = 0;
    (void)parameters;
    for (uint32_t i = 0; i < choice->n; i++) {
        most = choice->candidates[i].in_flight > most ? choice->candidates[i].in_flight : most;
    }
    float span = most > 0 ? (float)most : 1;
    for (uint32_t i = 0; i < choice->n; i++) {
        struct candidate *candidate = &choice->candidates[i];
        uint32_t better = most > 0 ? most - candidate->in_flight : 1;
        candidate->score += (float)better / span * weight;
    }
}

const struct plugin plugin_active_request_scorer = {
    .type = "active-request-scorer", .kind = PLUGIN_SCORER, .score = score};
