/* A few labels of two endpoints are compared. */
#include "pick/pool/profile/topology.h"

static struct str value_of(const struct topology_labels *labels, const struct pool_member *member,
                           enum topology_level level) {
    struct str key = labels->keys[level];
    const struct pool_label *label = key.len > 0 ? pool_labels_find(member->labels, key) : NULL;
    struct str value = label ? label->value : str_make(NULL, 0);
    return value.len == 0 && key.len > 0 && level == TOPOLOGY_HOST ? member->name.host : value;
}

enum topology_level topology_compare(const struct topology_labels *labels,
                                     const struct pool_member *a, const struct pool_member *b) {
    for (enum topology_level level = 0; level < N_TOPOLOGY_LEVELS; level++) {
        struct str value = value_of(labels, a, level);
        if (value.len > 0 && str_eq(value, value_of(labels, b, level))) {
            return level;
        }
    }
    return N_TOPOLOGY_LEVELS;
}

bool topology_knows_peer(const struct topology_labels *labels,
                         const struct candidate_set *candidates) {
    const struct pool_member *peer = candidates->peer;
    return peer && topology_compare(labels, peer, peer) < N_TOPOLOGY_LEVELS;
}
