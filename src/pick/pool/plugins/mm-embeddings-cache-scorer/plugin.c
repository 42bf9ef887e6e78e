/* Scores the share of the request's pictures, sounds and videos that an endpoint was recently
 * sent. */
#include "pick/pool/profile/plugin.h"

struct media_scorer {
    struct prefix_user user;
};

static const struct doc_member PARAMETERS[] = {
    {"producerName", MEMBER_TEXT(struct media_scorer, user.producer)}, {0}};

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    struct media_scorer *own = parameters;
    return pool_needs_use_media(needs, &own->user, err);
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct media_scorer *own = parameters;
    const struct media_matches *media = &candidates->media[own ? own->user.index : 0];
    float limit = media->n > 0 ? affinity_limit(candidates) : 0;
    for (uint32_t k = 0; k < media->n; k++) {
        uint32_t i = candidate_set_index_of(candidates, media->hits[k].member);
        if (i < candidates->n && candidates->columns->in_flight[i] < limit) {
            float share = (float)media->hits[k].n_items / (float)media->n_items;
            candidate_set_add_score(candidates, i, weight * share);
        }
    }
}

const struct plugin plugin_mm_embeddings_cache_scorer = {
    .type = "mm-embeddings-cache-scorer",
    .kind = PLUGIN_SCORER,
    .affinity_share = 1,
    PLUGIN_PARAMETERS(struct media_scorer, PARAMETERS),
    .add_needs = add_needs,
    .score = score};
