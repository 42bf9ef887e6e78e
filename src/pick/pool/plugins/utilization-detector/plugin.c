/* Removes endpoints at which requests wait, or whose KV cache is full, and those without a recent
 * load report; where none is left all stay. As the configuration's saturation detector it is read
 * by pick/config/limits.c. */
#include "pick/pool/profile/detector.h"

#include "pick/pool/profile/plugin.h"

#define SETTINGS struct utilization_settings

/* The first one is the default. */
static const char *const STALENESS_WORDS[] = {"ignore", "saturated", NULL};

static void read_staleness(struct doc_reader *reader, const struct doc_node *node, void *out) {
    bool *stale_is_saturated = out;
    unsigned word = 0;
    doc_reader_word(reader, node, STALENESS_WORDS, NULL, &word);
    *stale_is_saturated = word == 1;
}

static const struct doc_member PARAMETERS[] = {
    {"queueDepthThreshold", MEMBER_WHOLE(SETTINGS, queue_depth, 1, INT32_MAX), .preset = 5,
     .help = "requests that wait at an endpoint which is saturated"},
    {"kvCacheUtilThreshold", MEMBER_SHARE(SETTINGS, kv_cache, false), .preset = 0.8,
     .help = "or the share of its KV cache that is used"},
    {"headroom", MEMBER_NUMBER(SETTINGS, headroom, 0, INT64_MAX), .text = "expected 0 or more",
     .help = "as a filter of a profile: the part by which its limits are above the thresholds"},
    {"stalenessPolicy", MEMBER_CUSTOM_FIELD(SETTINGS, stale_is_saturated, bool, read_staleness),
     .form = "`ignore` or `saturated`",
     .help = "what an endpoint without a recent load counts as; `ignore`: nothing. A filter "
             "removes it"},
    {"metricsStalenessThreshold",
     MEMBER_CUSTOM_NUMBER(SETTINGS, max_age_ns, doc_reader_go_duration),
     .max = INT64_C(3600000000000), .above_min = true, .unit = DOC_UNIT_NS,
     .form = "a time:", .text = "expected a time above 0", .help = "`metrics: {max_age}`"},
    {0}};
#undef SETTINGS

/* The columns are floats, and so are the limits: 0.9 is not below 0.9. A value that is not reported
 * counts as 0. */
static bool is_below_limits(const void *parameters, const struct candidate_set *candidates,
                            uint32_t i) {
    const struct utilization_settings *settings = parameters;
    const struct candidate_columns *columns = candidates->columns;
    bool knows_waiting = (columns->known[i] & LOAD_WAITING) != 0;
    bool knows_cache = (columns->known[i] & LOAD_KV_CACHE) != 0;
    double factor = 1 + settings->headroom;
    float waiting = knows_waiting ? columns->n_waiting[i] : 0;
    float cache = knows_cache ? columns->kv_cache_used[i] : 0;
    return (knows_waiting || knows_cache) &&
           waiting < (float)((double)settings->queue_depth * factor) &&
           cache < (float)(settings->kv_cache * factor);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_prefer(candidates, parameters, is_below_limits);
}

const struct plugin plugin_utilization_detector = {
    .type = "utilization-detector",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct utilization_settings, PARAMETERS),
    .filter = filter};
