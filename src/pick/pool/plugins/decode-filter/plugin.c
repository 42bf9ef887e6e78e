/* Keeps endpoints that decode: a role that includes it, or no role. */
#include "pick/pool/profile/plugin.h"

static bool has_role(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    (void)parameters;
    return labels_have_role(candidate_set_member(candidates, i)->labels, ROLE_DECODE);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, has_role);
}

const struct plugin plugin_decode_filter = {
    .type = "decode-filter", .kind = PLUGIN_FILTER, .filter = filter};
