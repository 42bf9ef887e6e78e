/* Scores the free share of the KV cache. */
#include "pick/pool/profile/plugin.h"

static inline bool is_exact(uint32_t known) {
    return (known & (LOAD_KV_CACHE | LOAD_KV_CACHE_LEAST)) == LOAD_KV_CACHE;
}

/* Sum and number of the exact shares; `min` is 0 where some endpoint has none. */
SIMD_TARGETS static void collect_stats(const void *parameters,
                                       const struct candidate_set *candidates,
                                       struct candidate_range range, struct range_stats *out) {
    const float *used = candidates->columns->kv_cache_used;
    const uint32_t *known = candidates->columns->known;
    float sum = 0, n = 0;
    (void)parameters;
#pragma omp simd reduction(+ : sum, n)
    for (size_t i = range.from; i < range.to; i++) {
        sum += is_exact(known[i]) ? used[i] : 0;
        n += is_exact(known[i]) ? 1 : 0;
    }
    *out = (struct range_stats){
        .sum = sum, .n = (uint32_t)n, .min = (uint32_t)n == range.to - range.from};
}

/* The mean is only needed for endpoints whose share is not exact. */
static void normalize(struct range_stats *stats) {
    float mean = stats->n > 0 ? stats->sum / (float)stats->n : 0;
    bool matters = stats->min <= 0;
    *stats = (struct range_stats){.sum = !matters   ? 0
                                         : mean < 1 ? mean
                                                    : 1}; /* rounding may exceed 1 */
}

/* An endpoint without a report counts as the mean of the others, one that reports a lower bound as
 * that at least. */
SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const float *used = candidates->columns->kv_cache_used;
    const uint32_t *known = candidates->columns->known;
    float mean = stats->sum;
    (void)parameters;
    if (mean <= 0) { /* as where all shares are exact */
#pragma omp simd
        for (size_t i = range.from; i < range.to; i++) {
            out[i] += (1 - used[i]) * weight;
        }
        return;
    }
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float least = is_exact(known[i]) ? 0 : mean;
        out[i] += (1 - (used[i] > least ? used[i] : least)) * weight;
    }
}

static const struct plugin_cacheable CACHEABLE = {
    .collect_stats = collect_stats, .normalize = normalize, .score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_kv_cache_utilization_scorer = {.type = "kv-cache-utilization-scorer",
                                                          .kind = PLUGIN_SCORER,
                                                          .load_share = 1,
                                                          .score = score,
                                                          .cacheable = &CACHEABLE};
