/* The label's values. */
#include "pick/pool/profile/role.h"

bool labels_have_role(struct pool_labels labels, enum role role) {
    static const struct {
        const char *name;
        unsigned roles;
    } rows[] = {{"encode", ROLE_ENCODE},
                {"prefill", ROLE_PREFILL},
                {"decode", ROLE_DECODE},
                {"encode-prefill", ROLE_ENCODE | ROLE_PREFILL},
                {"prefill-decode", ROLE_PREFILL | ROLE_DECODE},
                {"both", ROLE_PREFILL | ROLE_DECODE},
                {"encode-prefill-decode", ROLE_ENCODE | ROLE_PREFILL | ROLE_DECODE}};
    const struct pool_label *label = pool_labels_find(labels, STR("llm-d.ai/role"));
    for (size_t i = 0; label && i < sizeof(rows) / sizeof(*rows); i++) {
        if (str_is(label->value, rows[i].name)) {
            return (rows[i].roles & role) != 0;
        }
    }
    return !label && role == ROLE_DECODE;
}
