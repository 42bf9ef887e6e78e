/* Prefers the endpoint that the request's token names. */
#include "pick/pool/profile/session_token.h"

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    uint32_t i = session_token_find(parameters, candidates);
    if (i < candidates->n) {
        candidate_set_add_score(candidates, i, weight);
    }
}

const struct plugin plugin_session_affinity_scorer = {
    .type = "session-affinity-scorer",
    .kind = PLUGIN_SCORER,
    PLUGIN_PARAMETERS(struct session_token_parameters, SESSION_TOKEN_PARAMETERS),
    .add_needs = session_token_add_needs,
    .affinity_share = 1,
    .score = score};
