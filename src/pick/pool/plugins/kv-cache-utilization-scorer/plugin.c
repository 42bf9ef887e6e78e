/* The share of the KV cache that is free. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/vectors.h"

/* What is used, of how many that have said it; `least` is 0 where somebody has not. */
VECTORS static void gauge(const void *parameters, const struct choice *choice,
                          struct choice_range range, struct choice_facts *out) {
    const float *used = choice->columns->kv_cache_used;
    const uint32_t *known = choice->columns->known;
    float sum = 0, n = 0;
    (void)parameters;
#pragma omp simd reduction(+ : sum, n)
    for (size_t i = range.from; i < range.to; i++) {
        sum += used[i];
        n += known[i] & LOAD_KV_CACHE ? 1 : 0;
    }
    *out = (struct choice_facts){
        .sum = sum, .n = (uint32_t)n, .least = (uint32_t)n == range.to - range.from};
}

/* What others have said matters only for those who have not. */
static void settle(struct choice_facts *facts) {
    float mean = facts->n > 0 ? facts->sum / (float)facts->n : 0;
    bool matters = facts->least <= 0;
    *facts = (struct choice_facts){.sum = !matters   ? 0
                                          : mean < 1 ? mean
                                                     : 1}; /* sums are rounded */
}

/* Whoever has not said it is taken for one like the others. */
VECTORS static void rate(const void *parameters, const struct choice *choice,
                         const struct choice_facts *facts, float weight, struct choice_range range,
                         float *out) {
    const float *used = choice->columns->kv_cache_used;
    const uint32_t *known = choice->columns->known;
    float mean = facts->sum;
    (void)parameters;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float unknown = known[i] & LOAD_KV_CACHE ? 0 : mean;
        out[i] += (1 - used[i] - unknown) * weight;
    }
}

static const struct plugin_standing STANDING = {.gauge = gauge, .settle = settle, .rate = rate};

static void score(const void *parameters, struct choice *choice, float weight) {
    plugin_score_standing(&STANDING, parameters, choice, weight);
}

const struct plugin plugin_kv_cache_utilization_scorer = {.type = "kv-cache-utilization-scorer",
                                                          .kind = PLUGIN_SCORER,
                                                          .score = score,
                                                          .standing = &STANDING};
