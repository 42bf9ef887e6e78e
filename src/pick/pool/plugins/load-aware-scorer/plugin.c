/* Fewer waiting requests score higher; `threshold` or more score 0. */
#include "pick/pool/profile/plugin.h"

struct limit {
    float n_waiting;
};

/* The score without waiting requests: how many more the endpoint could take is unknown. */
static const float IDLE = 0.5f;

static enum status read_parameters(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err) {
    static const char *const names[] = {"threshold", NULL};
    struct doc_node item = doc_get(node, "threshold");
    struct limit *limit = arena_calloc(arena, 1, sizeof(*limit));
    int64_t threshold = 128;
    *parameters = limit;
    if (!limit) {
        return error_no_memory(err, "a scorer");
    }
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = doc_read_i64(&item, 1, 1000000, &threshold, err);
    }
    limit->n_waiting = (float)threshold;
    return st;
}

SIMD_TARGETS static void score_range(const void *parameters, const struct candidate_set *candidates,
                                     const struct range_stats *stats, float weight,
                                     struct candidate_range range, float *out) {
    const struct limit *limit = parameters;
    const float *waiting = candidates->columns->n_waiting;
    float factor = 1 / limit->n_waiting, most = IDLE * weight;
    (void)stats;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - waiting[i] * factor;
        out[i] += (left > 0 ? left : 0) * most;
    }
}

static const struct plugin_cacheable CACHEABLE = {.score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_load_aware_scorer = {.type = "load-aware-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .load_share = 0.5f,
                                                .read_parameters = read_parameters,
                                                .score = score,
                                                .cacheable = &CACHEABLE};
