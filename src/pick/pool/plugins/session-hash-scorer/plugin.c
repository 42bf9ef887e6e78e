/* Prefers the endpoint of the request's session. */
#include "pick/pool/profile/plugin.h"

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    (void)parameters;
    if (session_affinity_applies(candidates)) {
        uint32_t i = session_affinity_index(candidates, affinity_limit(candidates));
        candidate_set_add_score(candidates, i, weight);
    }
}

const struct plugin plugin_session_hash_scorer = {
    .type = "session-hash-scorer", .kind = PLUGIN_SCORER, .affinity_share = 1, .score = score};
