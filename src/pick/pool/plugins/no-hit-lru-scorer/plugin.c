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

/* The number of cold requests since its last one; an endpoint without one is the oldest. */
static inline float age_of(uint32_t last_request, uint32_t newest) {
    return last_request == 0 ? INFINITY : (float)(newest - last_request);
}

/* Shell's: the ages are of endpoints in any order, mostly few. */
static void sort_ages(float *ages, uint32_t n) {
    static const uint32_t gaps[] = {3937, 1636, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof(gaps) / sizeof(*gaps); g++) {
        for (uint32_t gap = gaps[g], i = gap; i < n; i++) {
            float age = ages[i];
            uint32_t at = i;
            for (; at >= gap && ages[at - gap] > age; at -= gap) {
                ages[at] = ages[at - gap];
            }
            ages[at] = age;
        }
    }
}

static uint32_t count_below(const float *ages, uint32_t n, float age) {
    uint32_t from = 0;
    while (from < n) {
        uint32_t middle = from + (n - from) / 2;
        from = ages[middle] < age ? middle + 1 : from;
        n = ages[middle] < age ? n : middle;
    }
    return from;
}

/* By the order alone: the newest scores 0, the oldest 1, as does each without a cold request. */
static void score_by_order(struct candidate_set *candidates, uint32_t n_remembered, float weight) {
    const uint32_t *last_requests = candidates->columns->last_cold_request;
    uint32_t newest = 0, n = candidates->n;
    for (uint32_t i = 0; i < n; i++) {
        newest = last_requests[i] > newest ? last_requests[i] : newest;
    }
    for (uint32_t i = 0; i < n; i++) {
        candidates->scratch[i] = age_of(last_requests[i], newest);
    }
    sort_ages(candidates->scratch, n);
    float step = n > 1 ? weight / (float)(n - 1) : 0;
    for (uint32_t i = 0; i < n; i++) {
        float age = age_of(last_requests[i], newest);
        uint32_t n_newer = n > 1 ? count_below(candidates->scratch, n, age) : 0;
        bool is_remembered = n > 1 && age < INFINITY && n_newer < n_remembered;
        candidates->score[i] += is_remembered ? (float)n_newer * step : weight;
    }
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct cold_scorer *own = parameters;
    if (candidates->prefixes[own ? own->user.index : 0].n > 0) {
        score_range_constant(weight / 2, (struct candidate_range){0, candidates->n},
                             candidates->score);
    } else {
        score_by_order(candidates, own && own->most > 0 ? own->most : MOST_REMEMBERED, weight);
    }
    candidate_set_mark_all_modified(candidates);
}

const struct plugin plugin_no_hit_lru_scorer = {.type = "no-hit-lru-scorer",
                                                .kind = PLUGIN_SCORER,
                                                PLUGIN_PARAMETERS(struct cold_scorer, PARAMETERS),
                                                .add_needs = add_needs,
                                                .score = score};
