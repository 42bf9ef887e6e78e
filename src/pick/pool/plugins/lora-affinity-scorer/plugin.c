/* Prefers endpoints that have loaded the model's LoRA adapter. */
#include "pick/pool/profile/plugin.h"

enum { ADAPTER_BLOCK = 32 }; /* candidates per bit mask */

static const float SCORE_WAITING = 0.6f, SCORE_FREE_SLOT = 0.8f;

static uint32_t load_u32(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* The index among the first `n` adapters, or `n`. */
static uint32_t adapter_index(const struct load_adapters *adapters, uint32_t n, uint32_t hash) {
    for (uint32_t i = 0; i < n; i++) {
        if (load_u32(&adapters->hashes[i]) == hash) {
            return i;
        }
    }
    return n;
}

/* The score by the summary alone. */
static float approximate_score(uint32_t adapters) {
    return adapters & LOAD_ADAPTER_FREE_SLOT ? SCORE_FREE_SLOT : 0;
}

/* The score without the adapter. */
SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const uint32_t *adapters = candidates->columns->adapters;
    float worth = candidates->model.ptr ? SCORE_FREE_SLOT * weight : 0;
    (void)parameters;
    (void)stats;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        out[i] += adapters[i] & LOAD_ADAPTER_FREE_SLOT ? worth : 0;
    }
}

/* Corrects the score where the endpoint has the adapter itself, and not another one with the same
 * bit. With `limit` requests in flight or more it scores 0. */
static void adjust_score(struct candidate_set *candidates, uint32_t i, uint32_t hash, float limit,
                         float weight) {
    uint32_t member = candidates->columns->member[i];
    const struct load_adapters *adapters = &candidates->snapshot->adapters[member];
    uint32_t n_running = load_u32(&adapters->n_running),
             n = n_running + load_u32(&adapters->n_waiting);
    n = n < LOAD_MAX_ADAPTERS ? n : LOAD_MAX_ADAPTERS; /* n and the hashes may be of different
                                                          reports */
    uint32_t pos = adapter_index(adapters, n, hash);
    if (pos < n) {
        float free_slot = approximate_score(candidates->columns->adapters[i]);
        float number = pos < n_running ? 1 : free_slot > SCORE_WAITING ? free_slot : SCORE_WAITING;
        number = candidates->columns->in_flight[i] < limit ? number : 0;
        candidate_set_add_score(
            candidates, i, (number - approximate_score(candidates->columns->adapters[i])) * weight);
    }
}

/* A bit for each of the next 32 candidates that may have the adapter. */
SIMD_TARGETS static uint32_t find_adapter_bits(const uint32_t *adapters, uint32_t bit) {
    static const uint32_t powers[ADAPTER_BLOCK] = {
#define FOUR_POWERS(i)                                                                             \
    UINT32_C(1) << (i), UINT32_C(2) << (i), UINT32_C(4) << (i), UINT32_C(8) << (i)
        FOUR_POWERS(0),  FOUR_POWERS(4),  FOUR_POWERS(8), FOUR_POWERS(12), FOUR_POWERS(16),
        FOUR_POWERS(20), FOUR_POWERS(24), FOUR_POWERS(28)
#undef FOUR_POWERS
    };
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (uint32_t i = 0; i < ADAPTER_BLOCK; i++) {
        found |= adapters[i] & bit ? powers[i] : 0;
    }
    return found;
}

/* Most candidates do not have it; they are skipped in groups of 32. */
static void adjust_scores(const void *parameters, struct candidate_set *candidates, float weight) {
    const uint32_t *adapters = candidates->columns->adapters;
    uint32_t hash = load_adapter_hash(candidates->model), bit = load_adapter_bit(hash);
    bool any = candidates->model.ptr && (candidates->adapters & bit);
    uint32_t n = any ? candidates->n : 0, n_whole = n - n % ADAPTER_BLOCK;
    float limit = n > 0 ? affinity_limit(candidates) : 0;
    (void)parameters;
    for (uint32_t i = 0; i < n_whole; i += ADAPTER_BLOCK) {
        uint32_t found = find_adapter_bits(adapters + i, bit);
        for (; found != 0; found &= found - 1) {
            adjust_score(candidates, i + (uint32_t)__builtin_ctz(found), hash, limit, weight);
        }
    }
    for (uint32_t i = n_whole; i < n; i++) {
        if (adapters[i] & bit) {
            adjust_score(candidates, i, hash, limit, weight);
        }
    }
}

static const struct plugin_cacheable CACHEABLE = {
    .depends_on_model = true, .score_range = score_range, .adjust_scores = adjust_scores};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
    adjust_scores(parameters, candidates, weight);
}

const struct plugin plugin_lora_affinity_scorer = {.type = "lora-affinity-scorer",
                                                   .kind = PLUGIN_SCORER,
                                                   .affinity_share = 1,
                                                   .add_needs = plugin_needs_body,
                                                   .score = score,
                                                   .cacheable = &CACHEABLE};
