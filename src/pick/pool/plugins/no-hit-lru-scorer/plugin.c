/* Sends cold requests, whose prefix no endpoint was sent, to the endpoint that has had none for the
 * longest time. */
#include "pick/pool/profile/plugin.h"

enum { MOST_REMEMBERED = 1024 };

struct cold_scorer {
    struct prefix_user user;
    uint32_t most; /* endpoints that are remembered; 0: MOST_REMEMBERED */
};

static const struct doc_member PARAMETERS[] = {
    {"prefixMatchInfoProducerName", MEMBER_TEXT(struct cold_scorer, user.producer)},
    {"lruSize", MEMBER_WHOLE(struct cold_scorer, most, 0, INT32_MAX), .preset = MOST_REMEMBERED},
    {"prefixPluginType", MEMBER_IGNORED("upstream has never used it")},
    {"prefixPluginName", MEMBER_IGNORED("upstream has never used it")},
    {0}};

/* The record of cold requests is one for all. */
static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    struct cold_scorer none = {.most = 0};
    struct cold_scorer *own = parameters ? parameters : &none;
    enum status st = pool_needs_use_prefix(needs, &own->user, err);
    if (st == ST_OK && needs->cold_requests && needs->cold_prefix != own->user.index) {
        return error_set(err, ST_BAD_CONFIG,
                         "the profile has two no-hit-lru-scorers with different producers");
    }
    needs->cold_prefix = own->user.index;
    needs->cold_requests = true;
    return st;
}

/* The number of cold requests since its last one, at most `most`; an endpoint without one counts as
 * the oldest. */
static inline uint32_t age_of(uint32_t last_request, uint32_t newest, uint32_t most) {
    return last_request == 0 || newest - last_request > most ? most : newest - last_request;
}

/* The oldest scores 1, the newest 0. */
SIMD_TARGETS static void score(const void *parameters, struct candidate_set *candidates,
                               float weight) {
    const uint32_t *last_requests = candidates->columns->last_cold_request;
    uint32_t newest = 0, first = UINT32_MAX, most = candidates->n;
    const struct cold_scorer *own = parameters;
    uint32_t n_remembered = own && own->most > 0 ? own->most : MOST_REMEMBERED;
    if (candidates->prefixes[own ? own->user.index : 0].n > 0) {
        score_range_constant(weight / 2, (struct candidate_range){0, candidates->n},
                             candidates->score);
        candidate_set_mark_all_modified(candidates);
        return;
    }
    most = n_remembered < most ? n_remembered : most;
#pragma omp simd reduction(max : newest) reduction(min : first)
    for (uint32_t i = 0; i < candidates->n; i++) {
        newest = last_requests[i] > newest ? last_requests[i] : newest;
        first = last_requests[i] < first ? last_requests[i] : first;
    }
    uint32_t oldest = age_of(first, newest, most);
    bool differ = newest != first && oldest > 0;
    float factor = differ ? weight / (float)oldest : 0, all = differ ? 0 : weight;
#pragma omp simd
    for (uint32_t i = 0; i < candidates->n; i++) {
        candidates->score[i] +=
            (float)(int32_t)age_of(last_requests[i], newest, most) * factor + all;
    }
    candidate_set_mark_all_modified(candidates);
}

const struct plugin plugin_no_hit_lru_scorer = {.type = "no-hit-lru-scorer",
                                                .kind = PLUGIN_SCORER,
                                                PLUGIN_PARAMETERS(struct cold_scorer, PARAMETERS),
                                                .add_needs = add_needs,
                                                .score = score};
