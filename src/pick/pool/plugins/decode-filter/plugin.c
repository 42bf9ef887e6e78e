/* Endpoints that decode: those of that role, of one that has it in it, and of none. */
#include "pick/pool/profile/role.h"

static bool has_role(const void *parameters, const struct choice *choice, uint32_t i) {
    (void)parameters;
    return role_is_of(choice_member(choice, i)->labels, ROLE_DECODE);
}

static void filter(const void *parameters, struct choice *choice) {
    choice_keep(choice, parameters, has_role);
}

const struct plugin plugin_decode_filter = {
    .type = "decode-filter", .kind = PLUGIN_FILTER, .filter = filter};
