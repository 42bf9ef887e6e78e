/* Where endpoints are, by their labels, and how close two are: for the stages of a request that
 * pass its KV cache from one endpoint to another. */
#ifndef SLUICE_PICK_POOL_PROFILE_TOPOLOGY_H
#define SLUICE_PICK_POOL_PROFILE_TOPOLOGY_H

#include "pick/pool/profile/candidate_set.h"

/* What two endpoints have in common, from close to far. */
enum topology_level {
    TOPOLOGY_HOST,
    TOPOLOGY_RACK,
    TOPOLOGY_ZONE,
    TOPOLOGY_REGION,
    N_TOPOLOGY_LEVELS, /* nothing */
};

/* The keys of the labels. Without any the place of endpoints is unknown. */
struct topology_labels {
    struct str keys[N_TOPOLOGY_LEVELS];
};

/* The parameters of both plugins begin with it. */
struct topology_user {
    struct str producer;           /* name of the topology-extractor; empty: its type */
    struct topology_labels labels; /* of that: set when the whole configuration was read */
};

/* The closest level at which both have a label with the same value, which is not empty. Without a
 * label of its host a pod's spec.hostname is that. */
enum topology_level topology_compare(const struct topology_labels *labels,
                                     const struct pool_member *a, const struct pool_member *b);
/* Whether the endpoint of the earlier stage is known, and where it is. */
bool topology_knows_peer(const struct topology_labels *labels,
                         const struct candidate_set *candidates);

#endif
