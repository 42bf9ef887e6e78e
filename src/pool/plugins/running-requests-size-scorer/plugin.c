/* Fewer requests running is better. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    choice_add_least(choice, choice->columns->n_running, weight);
}

const struct plugin plugin_running_requests_size_scorer = {
    .type = "running-requests-size-scorer", .kind = PLUGIN_SCORER, .score = score};
