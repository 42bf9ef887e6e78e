/* Fewer of this picker's own requests in flight score higher: up to the idle threshold 1, the
 * maximum
 * 0. */
#include "pick/pool/profile/plugin.h"

struct active_requests {
    struct str producer;
    float idle;     /* so many requests or fewer score 1 */
    float max_busy; /* more score less than this */
};

static const struct doc_member PARAMETERS[] = {
    {"idleThreshold", MEMBER_WHOLE(struct active_requests, idle, 0, 1000000)},
    {"maxBusyScore", MEMBER_NUMBER(struct active_requests, max_busy, 0, 1), .preset = 1},
    {"inFlightLoadProducerName", MEMBER_TEXT(struct active_requests, producer)},
    {"requestTimeout", MEMBER_IGNORED("upstream ignores it, too")},
    {0}};

/* With the defaults, or without parameters. */
bool active_request_scorer_is_plain(const void *parameters) {
    const struct active_requests *own = parameters;
    return !own || (!(own->idle > 0) && own->max_busy >= 1);
}

static void collect_stats(const void *parameters, const struct candidate_set *candidates,
                          struct candidate_range range, struct range_stats *out) {
    (void)parameters;
    range_stats_of_column(candidates->columns->in_flight, range, out);
}

SIMD_TARGETS static void score_busy_range(const struct active_requests *own, const float *in_flight,
                                          float max, float weight, struct candidate_range range,
                                          float *out) {
    float factor = max > 0 ? own->max_busy / max : 0, idle = own->idle;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float busy = (max - in_flight[i]) * factor;
        out[i] += (in_flight[i] <= idle ? 1 : busy) * weight;
    }
}

static void score_range(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out) {
    if (active_request_scorer_is_plain(parameters)) {
        score_range_below_max(candidates->columns->in_flight, stats, weight, range, out);
    } else {
        score_busy_range(parameters, candidates->columns->in_flight, stats->max, weight, range,
                         out);
    }
}

static const struct plugin_cacheable CACHEABLE = {.collect_stats = collect_stats,
                                                  .score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_active_request_scorer = {
    .type = "active-request-scorer",
    .kind = PLUGIN_SCORER,
    .load_share = 1,
    PLUGIN_PARAMETERS(struct active_requests, PARAMETERS),
    .score = score,
    .cacheable = &CACHEABLE};
