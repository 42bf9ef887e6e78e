/* Sends cold requests, whose prefix no endpoint was sent, to the endpoint that has had none for the
 * longest time. */
#include "pick/pool/profile/plugin.h"

static enum status add_needs(const void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    (void)parameters;
    (void)err;
    needs->prompt = needs->body = needs->cold_requests = true;
    return ST_OK;
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
    (void)parameters;
    if (candidates->prefix->n > 0) {
        return;
    }
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

const struct plugin plugin_no_hit_lru_scorer = {
    .type = "no-hit-lru-scorer", .kind = PLUGIN_SCORER, .add_needs = add_needs, .score = score};
