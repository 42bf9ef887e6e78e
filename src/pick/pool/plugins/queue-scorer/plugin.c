/* Fewer waiting requests score higher. */
#include "pick/pool/profile/plugin.h"

static void collect_stats(const void *parameters, const struct candidate_set *candidates,
                          struct candidate_range range, struct range_stats *out) {
    (void)parameters;
    range_stats_of_column(candidates->columns->n_waiting, range, out);
}

static void score_range(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out) {
    (void)parameters;
    score_range_lower_is_better(candidates->columns->n_waiting, stats, weight, range, out);
}

static const struct plugin_cacheable CACHEABLE = {.collect_stats = collect_stats,
                                                  .score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_queue_scorer = {.type = "queue-scorer",
                                           .kind = PLUGIN_SCORER,
                                           .load_share = 1,
                                           .score = score,
                                           .cacheable = &CACHEABLE};
