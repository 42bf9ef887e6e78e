/* Endpoints that encode: those of that role, or of one that has it in it. */
#include "pick/pool/profile/role.h"

static bool has_role(const void *parameters, const struct choice *choice, uint32_t i) {
    (void)parameters;
    return role_is_of(choice_member(choice, i)->labels, ROLE_ENCODE);
}

static void filter(const void *parameters, struct choice *choice) {
    choice_keep(choice, parameters, has_role);
}

const struct plugin plugin_encode_filter = {
    .type = "encode-filter", .kind = PLUGIN_FILTER, .filter = filter};
