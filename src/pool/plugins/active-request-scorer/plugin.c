/* Fewer of this picker's own requests in flight is better: none is 1, the most of all is 0. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    uint32_t most = 0;
    (void)parameters;
    for (uint32_t i = 0; i < choice->n; i++) {
        most = choice->candidates[i].in_flight > most ? choice->candidates[i].in_flight : most;
    }
    float share = most > 0 ? weight / (float)most : 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        struct candidate *candidate = &choice->candidates[i];
        float better = (float)(most - candidate->in_flight) * share;
        candidate->score += most == 0 || better > weight ? weight : better;
    }
}

const struct plugin plugin_active_request_scorer = {
    .type = "active-request-scorer", .kind = PLUGIN_SCORER, .score = score};
