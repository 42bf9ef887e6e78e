/* Prefers endpoints that are close to the endpoint of an earlier stage. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/topology.h"

/* By the bandwidth between them: one host has a fast interconnect, each further level another
 * switch. Upstream's numbers. */
static const float SCORES[N_TOPOLOGY_LEVELS + 1] = {1, 0.2f, 0.05f, 0.02f, 0};

static const struct doc_member PARAMETERS[] = {{"topologyProducerName",
                                                MEMBER_TEXT(struct topology_user, producer),
                                                .form = "the name of a topology-extractor"},
                                               {0}};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct topology_user *user = parameters;
    if (!topology_knows_peer(&user->labels, candidates)) {
        return;
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        enum topology_level level =
            topology_compare(&user->labels, candidates->peer, candidate_set_member(candidates, i));
        candidate_set_add_score(candidates, i, weight * SCORES[level]);
    }
}

const struct plugin plugin_topology_affinity_scorer = {
    .type = "topology-affinity-scorer",
    .kind = PLUGIN_SCORER,
    PLUGIN_PARAMETERS(struct topology_user, PARAMETERS),
    .score = score};
