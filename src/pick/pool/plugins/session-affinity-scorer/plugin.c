/* The endpoint that the request's session belongs to is better than the others. */
#include "pick/pool/profile/session_affinity.h"

static void score(const void *parameters, struct choice *choice, float weight) {
    (void)parameters;
    if (session_affinity_is_wanted(choice)) {
        choice_add_to(choice, session_affinity_place(choice), weight);
    }
}

const struct plugin plugin_session_affinity_scorer = {
    .type = "session-affinity-scorer", .kind = PLUGIN_SCORER, .score = score};
