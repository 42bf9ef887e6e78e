/* Fewer requests running is better. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->candidates[i].value = choice->candidates[i].n_running;
    }
    choice_add_least(choice, weight);
}

const struct plugin plugin_running_requests_size_scorer = {
    .type = "running-requests-size-scorer", .kind = PLUGIN_SCORER, .score = score};
