/* When an endpoint of a pool is full: our section `saturation`, and upstream's detectors. Both fill
 * the same fields. A parameter of upstream's that has no effect here is a row without a field. */
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"

/* ---- when an endpoint is full ---------------------------------------------------------------- */

static void read_retry_after(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const uint64_t ns_per_s = (uint64_t)CONFIG_S;
    uint64_t *seconds = out, ns = *seconds * ns_per_s;
    doc_reader_duration(reader, node, (uint64_t)reader->row->min * ns_per_s,
                        (uint64_t)reader->row->max * ns_per_s, &ns);
    *seconds = (ns + ns_per_s - 1) / ns_per_s;
}

#define SPEC struct pool_spec
const struct doc_member POOL_CONFIG_SATURATION[] = {
    {"max_in_flight", MEMBER_WHOLE(SPEC, max_in_flight, 0, INT32_MAX),
     .help = "an endpoint is full with so many requests of ours; 0: no limit"},
    {"queue_depth", MEMBER_WHOLE(SPEC, queue_depth, 0, INT32_MAX),
     .help = "or with so many waiting there, as scraped; 0: no limit"},
    {"kv_cache", MEMBER_SHARE(SPEC, kv_cache, true),
     .help = "or with this share of its KV cache used, as scraped; 0: no limit"},
    {"retry_after", MEMBER_CUSTOM_NUMBER(SPEC, retry_after_s, read_retry_after), .min = 1,
     .max = 3600, .form = "a time in seconds:", .help = "`retry-after` of what is refused for it"},
    {0}};

void pool_config_read_saturation(struct doc_reader *reader, const struct doc_node *node,
                                 void *spec) {
    pool_config_reader_of(reader)->saturation_limits_given = doc_get(node, "max_in_flight").val ||
                                                             doc_get(node, "queue_depth").val ||
                                                             doc_get(node, "kv_cache").val;
    doc_reader_object(reader, node, POOL_CONFIG_SATURATION, spec);
}

/* The age after which a load is too old. */
static void read_age(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    struct scrape_plan *plan = pool_config_reader_of(reader)->scrape;
    uint64_t age_ns = 0;
    (void)spec;
    pool_config_read_go_duration(reader, node, &age_ns);
    if (node->val && plan && age_ns == 0) {
        doc_reader_fail(reader, node, "expected a time above 0");
    } else if (node->val && plan) {
        plan->max_age_ns = age_ns;
    }
}

/* Not said, an endpoint without a recent load is left out. */
static const char *const STALENESS_WORDS[] = {"ignore", "saturated", NULL};

static void read_staleness(struct doc_reader *reader, const struct doc_node *node, void *out) {
    bool *stale_is_saturated = out;
    unsigned word = 0;
    doc_reader_word(reader, node, STALENESS_WORDS, NULL, &word);
    *stale_is_saturated = word == 1;
}

const struct doc_member PICKER_UTILIZATION[] = {
    {"queueDepthThreshold", MEMBER_WHOLE(SPEC, queue_depth, 1, INT32_MAX), .preset = 5,
     .help = "requests that wait at an endpoint which is saturated"},
    {"kvCacheUtilThreshold", MEMBER_SHARE(SPEC, kv_cache, false), .preset = 0.8,
     .help = "or the share of its KV cache that is used"},
    {"headroom", MEMBER_UNUSED_NUMBER(0, INT64_MAX), .text = "expected 0 or more",
     .help = "nothing: it is for a detector that is a filter of a profile, which is refused"},
    {"stalenessPolicy",
     MEMBER_CUSTOM_FIELD(SPEC, detector.stale_is_saturated, bool, read_staleness),
     .form = "`ignore` or `saturated`",
     .help = "what an endpoint without a recent load counts as; `ignore`: nothing"},
    {"metricsStalenessThreshold", MEMBER_CUSTOM(read_age), .max = CONFIG_HOUR, .above_min = true,
     .unit = DOC_UNIT_NS, .form = "a time:", .help = "`metrics: {max_age}`"},
    {0}};

#define ADMITTER struct pool_admitter
const struct doc_member PICKER_ADMITTER[] = {
    {"queueDepthThreshold", MEMBER_NUMBER(ADMITTER, queue_depth, 0, INT32_MAX), .above_min = true,
     .preset = 5, .text = "expected more than 0", .help = "requests that wait at an endpoint"},
    {"kvCacheUtilThreshold", MEMBER_NUMBER(ADMITTER, kv_cache, 0, INT32_MAX), .above_min = true,
     .preset = 0.8, .text = "expected more than 0", .help = "share of its KV cache that is used"},
    {"power", MEMBER_NUMBER(ADMITTER, power, 0, INT32_MAX), .above_min = true, .preset = 5,
     .text = "expected more than 0",
     .help = "a request of a priority below 0 is refused with the probability k * load^power"},
    {"k", MEMBER_NUMBER(ADMITTER, k, 0, INT32_MAX), .above_min = true, .preset = 300,
     .text = "expected more than 0", .help = "as `power` says"},
    {0}};
#undef ADMITTER

void picker_read_admitter(struct doc_reader *reader, const struct doc_node *document) {
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    (void)document;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && plugin->type->parameters == PICKER_ADMITTER && plugin->settings) {
            spec->admitter = *(const struct pool_admitter *)plugin->settings;
            spec->admitter.on = true;
        }
    }
}

static const char *const CONCURRENCY_MODES[] = {"requests", "tokens", "hybrid", NULL};

static void read_mode(struct doc_reader *reader, const struct doc_node *node, void *out) {
    static const enum detector_kind kinds[] = {DETECTOR_REQUESTS, DETECTOR_TOKENS, DETECTOR_HYBRID};
    enum detector_kind *kind = out;
    unsigned word = 0;
    doc_reader_word(reader, node, CONCURRENCY_MODES, NULL, &word);
    *kind = kinds[word];
}

const struct doc_member PICKER_CONCURRENCY[] = {
    {"maxConcurrency", MEMBER_WHOLE(SPEC, max_in_flight, 1, INT32_MAX), .preset = 100,
     .help = "requests in flight of each endpoint with which the pool is saturated"},
    {"concurrencyMode", MEMBER_CUSTOM_FIELD(SPEC, detector.kind, enum detector_kind, read_mode),
     .form = "`requests`, `tokens` or `hybrid`",
     .help = "what counts: requests, their tokens, or at each endpoint that of the two which is "
             "nearer to its limit; `requests`"},
    {"maxTokenConcurrency", MEMBER_WHOLE(SPEC, detector.max_tokens, 1, INT64_C(1) << 40),
     .preset = 1000000, .help = "tokens in flight, likewise"},
    {"headroom", MEMBER_UNUSED_NUMBER(0, INT64_MAX), .text = "expected 0 or more",
     .help = "nothing: it is for a detector that is a filter of a profile, which is refused"},
    {"inFlightLoadProducerName", MEMBER_BY_CALLER, .form = "anything",
     .help = "nothing: there is one count"},
    {0}};
#undef SPEC

static void read_detector(struct doc_reader *reader, const struct doc_node *node,
                          const struct doc_member *members) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    doc_reader_presets(members, spec);
    doc_reader_reject_unknown(reader, node, members, NULL);
    doc_reader_members(reader, node, members, spec);
}

/* The thresholds replace our limit of requests in flight. Without scraped loads they would never be
 * reached, so the limit stays. */
void picker_read_utilization(struct doc_reader *reader, const struct doc_node *said,
                             const struct doc_node *node) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    read_detector(reader, node, PICKER_UTILIZATION);
    if (spec->scrape) {
        spec->max_in_flight = 0;
        spec->detector.kind = DETECTOR_LOADS;
    } else {
        pool_config_add_note(reader, said,
                             "thresholds need `metrics`: without it an endpoint is full by our own "
                             "requests in flight");
    }
}

void picker_read_concurrency(struct doc_reader *reader, const struct doc_node *node) {
    read_detector(reader, node, PICKER_CONCURRENCY);
}
