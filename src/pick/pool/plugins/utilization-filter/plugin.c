/* Removes busy endpoints while others are not busy. */
#include "pick/pool/profile/plugin.h"

struct limits {
    float n_waiting;
    float kv_cache_used;
};

static const struct doc_member PARAMETERS[] = {
    {"queueDepthThreshold", MEMBER_WHOLE(struct limits, n_waiting, 1, UINT32_MAX), .preset = 5},
    {"kvCacheUtilThreshold", MEMBER_SHARE(struct limits, kv_cache_used, false), .preset = 0.8},
    {0}};

/* A value that is not reported counts as below its limit. */
static bool is_below_limits(const void *parameters, const struct candidate_set *candidates,
                            uint32_t i) {
    const struct limits *limits = parameters;
    const struct candidate_columns *columns = candidates->columns;
    return !((columns->known[i] & LOAD_WAITING) && columns->n_waiting[i] >= limits->n_waiting) &&
           !((columns->known[i] & LOAD_KV_CACHE) &&
             columns->kv_cache_used[i] >= limits->kv_cache_used);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (is_below_limits(parameters, candidates, i)) {
            candidate_set_filter(candidates, parameters, is_below_limits);
            return;
        }
    }
}

const struct plugin plugin_utilization_filter = {.type = "utilization-filter",
                                                 .kind = PLUGIN_FILTER,
                                                 PLUGIN_PARAMETERS(struct limits, PARAMETERS),
                                                 .filter = filter};
