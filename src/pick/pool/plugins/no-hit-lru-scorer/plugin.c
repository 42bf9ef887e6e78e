/* Sends cold requests, whose prefix no endpoint was sent, to the endpoint that has had none for the
 * longest time. */
#include <string.h>

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

/* Sorts by age, the newest first: a radix sort, as the ages of a thousand endpoints are compared at
 * each cold request. `order` has room for 2 * n, and its first `n` are sorted in place or moved to
 * the others. Returns: the sorted ones. */
static uint32_t *sort_by_age(const uint32_t *last_requests, uint32_t newest, uint32_t oldest,
                             uint32_t *order, uint32_t n) {
    enum { MOST_BITS = 8, FEW_BITS = 4, FEW = 64 };
    uint32_t *from = order, *to = order + n, n_bits = n < FEW ? FEW_BITS : MOST_BITS;
    uint32_t n_digits = 1U << n_bits;
    for (uint32_t shift = 0; shift < 32 && (newest - oldest) >> shift > 0; shift += n_bits) {
        uint32_t ends[1 << MOST_BITS], n_before = 0;
        memset(ends, 0, n_digits * sizeof(*ends));
        for (uint32_t i = 0; i < n; i++) {
            ends[(newest - last_requests[from[i]]) >> shift & (n_digits - 1)]++;
        }
        for (uint32_t digit = 0; digit < n_digits; digit++) {
            uint32_t n_of_digit = ends[digit];
            ends[digit] = n_before;
            n_before += n_of_digit;
        }
        for (uint32_t i = 0; i < n; i++) {
            to[ends[(newest - last_requests[from[i]]) >> shift & (n_digits - 1)]++] = from[i];
        }
        uint32_t *sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* By the order alone: the newest scores 0, the oldest 1, as does each without a cold request. */
static void score_by_order(struct candidate_set *candidates, uint32_t n_remembered, float weight) {
    const uint32_t *last_requests = candidates->columns->last_cold_request;
    uint32_t newest = 0, oldest = UINT32_MAX, n = candidates->n, n_used = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t last = last_requests[i];
        candidates->order[n_used] = i;
        n_used += last != 0;
        newest = last > newest ? last : newest;
        oldest = last != 0 && last < oldest ? last : oldest;
        candidates->score[i] += last == 0 || n == 1 ? weight : 0;
    }
    if (n == 1 || n_used == 0) {
        return;
    }
    float step = weight / (float)(n - 1);
    const uint32_t *order = sort_by_age(last_requests, newest, oldest, candidates->order, n_used);
    for (uint32_t k = 0; k < n_used; k++) {
        candidates->score[order[k]] += k < n_remembered ? (float)k * step : weight;
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
