/* The share of the KV cache that is free. */
#include "pool/plugin.h"

/* Whoever has not said it is taken for one like the others. */
static float usual(const struct choice *choice) {
    float sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < choice->n; i++) {
        if (choice->candidates[i].known & LOAD_KV_CACHE) {
            sum += choice->candidates[i].kv_cache_used;
            n++;
        }
    }
    float mean = n > 0 ? sum / (float)n : 0;
    return mean < 1 ? mean : 1; /* sums are rounded */
}

static void score(const void *parameters, struct choice *choice, float weight) {
    float mean = usual(choice);
    (void)parameters;
    for (uint32_t i = 0; i < choice->n; i++) {
        struct candidate *candidate = &choice->candidates[i];
        bool known = candidate->known & LOAD_KV_CACHE;
        candidate->score += (1 - (known ? candidate->kv_cache_used : mean)) * weight;
    }
}

const struct plugin plugin_kv_cache_utilization_scorer = {
    .type = "kv-cache-utilization-scorer", .kind = PLUGIN_SCORER, .score = score};
