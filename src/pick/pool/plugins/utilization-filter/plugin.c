/* Removes busy endpoints while others are not busy. */
#include "pick/pool/profile/plugin.h"

struct limits {
    float n_waiting;
    float kv_cache_used;
};

static enum status read_limits(const struct doc_node *node, struct limits *out, struct error *err) {
    static const char *const names[] = {"queueDepthThreshold", "kvCacheUtilThreshold", NULL};
    struct doc_node queue = doc_get(node, "queueDepthThreshold");
    struct doc_node cache = doc_get(node, "kvCacheUtilThreshold");
    int64_t n_waiting = (int64_t)out->n_waiting;
    double used = (double)out->kv_cache_used;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = doc_read_i64(&queue, 1, UINT32_MAX, &n_waiting, err);
    }
    if (st == ST_OK) {
        st = doc_read_share(&cache, false, &used, err);
    }
    out->n_waiting = (float)n_waiting;
    out->kv_cache_used = (float)used;
    return st;
}

static enum status read_parameters(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err) {
    struct limits *limits = arena_calloc(arena, 1, sizeof(*limits));
    *parameters = limits;
    if (!limits) {
        return error_no_memory(err, "a filter");
    }
    *limits = (struct limits){.n_waiting = 5, .kv_cache_used = 0.8f};
    return read_limits(node, limits, err);
}

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
                                                 .read_parameters = read_parameters,
                                                 .filter = filter};
