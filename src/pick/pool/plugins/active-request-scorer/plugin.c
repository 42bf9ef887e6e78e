/* Fewer of this picker's own requests in flight score higher: 0 scores 1, the maximum 0. */
#include "pick/pool/profile/plugin.h"

static void collect_stats(const void *parameters, const struct candidate_set *candidates,
                          struct candidate_range range, struct range_stats *out) {
    (void)parameters;
    range_stats_of_column(candidates->columns->in_flight, range, out);
}

static void score_range(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out) {
    (void)parameters;
    score_range_below_max(candidates->columns->in_flight, stats, weight, range, out);
}

static const struct plugin_cacheable CACHEABLE = {.collect_stats = collect_stats,
                                                  .score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_active_request_scorer = {.type = "active-request-scorer",
                                                    .kind = PLUGIN_SCORER,
                                                    .load_share = 1,
                                                    .score = score,
                                                    .cacheable = &CACHEABLE};
