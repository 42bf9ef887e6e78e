/* The share of the KV cache that is free. */
#include "pool/plugin.h"
#include "pool/vectors.h"

/* Whoever has not said it is taken for one like the others. */
VECTORS static void score(const void *parameters, struct choice *choice, float weight) {
    const struct choice_columns *columns = choice->columns;
    float mean = choice_mean_of_known(choice, columns->kv_cache_used, LOAD_KV_CACHE);
    mean = mean < 1 ? mean : 1; /* sums are rounded */
    (void)parameters;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        float unknown = columns->known[i] & LOAD_KV_CACHE ? 0 : mean;
        choice->score[i] += (1 - columns->kv_cache_used[i] - unknown) * weight;
    }
}

const struct plugin plugin_kv_cache_utilization_scorer = {
    .type = "kv-cache-utilization-scorer", .kind = PLUGIN_SCORER, .score = score};
