/* Keeps only the endpoint that the request's token names. */
#include "pick/pool/profile/session_token.h"

static void filter(const void *parameters, struct candidate_set *candidates) {
    uint32_t i = session_token_find(parameters, candidates);
    if (i < candidates->n) {
        candidate_set_select(candidates, i);
    }
}

const struct plugin plugin_session_affinity_filter = {
    .type = "session-affinity-filter",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct session_token_parameters, SESSION_TOKEN_PARAMETERS),
    .add_needs = session_token_add_needs,
    .filter = filter};
