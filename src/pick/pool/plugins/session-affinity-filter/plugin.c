/* Only the endpoint that the request's session belongs to. */
#include "pick/pool/profile/session_affinity.h"

static void filter(const void *parameters, struct choice *choice) {
    (void)parameters;
    if (session_affinity_is_wanted(choice)) {
        choice_keep_one(choice, session_affinity_place(choice));
    }
}

const struct plugin plugin_session_affinity_filter = {
    .type = "session-affinity-filter", .kind = PLUGIN_FILTER, .filter = filter};
