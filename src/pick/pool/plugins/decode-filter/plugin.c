/* Keeps endpoints that decode: a role that includes it, or no role. */
#include "pick/pool/profile/plugin.h"

static bool allows(const void *parameters, struct pool_labels labels) {
    (void)parameters;
    return labels_have_role(labels, ROLE_DECODE);
}

static bool has_role(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    return allows(parameters, candidate_set_member(candidates, i)->labels);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, has_role);
}

const struct plugin plugin_decode_filter = {
    .type = "decode-filter", .kind = PLUGIN_FILTER, .filter = filter, .allows = allows};
