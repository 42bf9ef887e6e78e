/* Fewer of this picker's own requests in flight is better: none is 1, the most of all is 0. */
#include "pool/plugin.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    choice_add_less_of_most(choice, choice->columns->in_flight, weight);
}

const struct plugin plugin_active_request_scorer = {
    .type = "active-request-scorer", .kind = PLUGIN_SCORER, .score = score};
