/* Keeps endpoints with a role that includes prefill. */
#include "pick/pool/profile/plugin.h"

static bool has_role(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    (void)parameters;
    return labels_have_role(candidate_set_member(candidates, i)->labels, ROLE_PREFILL);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, has_role);
}

const struct plugin plugin_prefill_filter = {
    .type = "prefill-filter", .kind = PLUGIN_FILTER, .filter = filter};
