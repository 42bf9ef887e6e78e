/* Keeps only the endpoint of the request's session. */
#include "pick/pool/profile/session_token.h"

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    return session_add_needs(parameters, "session-affinity-filter", needs, err);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    uint32_t i = session_find(parameters, candidates);
    if (i < candidates->n) {
        candidate_set_select(candidates, i);
    }
}

const struct plugin plugin_session_affinity_filter = {
    .type = "session-affinity-filter",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct session_parameters, SESSION_PARAMETERS),
    .add_needs = add_needs,
    .filter = filter};
