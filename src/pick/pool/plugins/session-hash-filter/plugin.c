/* Keeps only the endpoint of the request's session. */
#include "pick/pool/profile/plugin.h"

static void filter(const void *parameters, struct candidate_set *candidates) {
    (void)parameters;
    if (session_affinity_applies(candidates)) {
        candidate_set_select(candidates, session_affinity_index(candidates, INFINITY));
    }
}

const struct plugin plugin_session_hash_filter = {
    .type = "session-hash-filter", .kind = PLUGIN_FILTER, .filter = filter};
