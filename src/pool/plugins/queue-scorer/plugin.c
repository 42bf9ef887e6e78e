/* Fewer requests waiting is better. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    choice_add_least(choice, choice->columns->n_waiting, weight);
}

const struct plugin plugin_queue_scorer = {
    .type = "queue-scorer", .kind = PLUGIN_SCORER, .score = score};
