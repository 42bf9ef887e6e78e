/* Fewer requests waiting is better. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->candidates[i].value = choice->candidates[i].n_waiting;
    }
    choice_add_least(choice, weight);
}

const struct plugin plugin_queue_scorer = {
    .type = "queue-scorer", .kind = PLUGIN_SCORER, .score = score};
