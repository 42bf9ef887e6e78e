/* Prefers the endpoint of the request's session. */
#include "pick/pool/profile/session_token.h"

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    return session_add_needs(parameters, "session-affinity-scorer", needs, err);
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    uint32_t i = session_find(parameters, candidates);
    if (i < candidates->n) {
        candidate_set_add_score(candidates, i, weight);
    }
}

const struct plugin plugin_session_affinity_scorer = {
    .type = "session-affinity-scorer",
    .kind = PLUGIN_SCORER,
    PLUGIN_PARAMETERS(struct session_parameters, SESSION_PARAMETERS),
    .add_needs = add_needs,
    .affinity_share = 1,
    .score = score};
