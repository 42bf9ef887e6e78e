/* A few labels of two endpoints are compared. */
#include "pick/pool/profile/topology.h"

static struct str value_of(struct pool_labels labels, struct str key) {
    const struct pool_label *label = key.len > 0 ? pool_labels_find(labels, key) : NULL;
    return label ? label->value : str_make(NULL, 0);
}

enum topology_level topology_compare(const struct topology_labels *labels, struct pool_labels a,
                                     struct pool_labels b) {
    for (enum topology_level level = 0; level < N_TOPOLOGY_LEVELS; level++) {
        struct str value = value_of(a, labels->keys[level]);
        if (value.len > 0 && str_eq(value, value_of(b, labels->keys[level]))) {
            return level;
        }
    }
    return N_TOPOLOGY_LEVELS;
}

bool topology_knows_peer(const struct topology_labels *labels,
                         const struct candidate_set *candidates) {
    const struct pool_member *peer = candidates->peer;
    return peer && topology_compare(labels, peer->labels, peer->labels) < N_TOPOLOGY_LEVELS;
}
