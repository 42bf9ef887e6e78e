/* Keeps endpoints that are close to the endpoint of an earlier stage, where there are any. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/topology.h"

struct affinity {
    struct topology_user user;
    unsigned least; /* enum topology_level */
};

static const char *const LEVELS[] = {"host", "rack", "zone", "region", NULL};

static const struct doc_member PARAMETERS[] = {
    {"minAffinity", MEMBER_WORD(struct affinity, least, LEVELS)},
    {"topologyProducerName", MEMBER_TEXT(struct affinity, user.producer),
     .form = "the name of a topology-extractor"},
    {0}};

static bool is_close(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct affinity *affinity = parameters;
    return topology_compare(&affinity->user.labels, candidates->peer,
                            candidate_set_member(candidates, i)) <= affinity->least;
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    const struct affinity *affinity = parameters;
    if (topology_knows_peer(&affinity->user.labels, candidates)) {
        candidate_set_prefer(candidates, parameters, is_close);
    }
}

const struct plugin plugin_topology_affinity_filter = {
    .type = "topology-affinity-filter",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct affinity, PARAMETERS),
    .filter = filter};
