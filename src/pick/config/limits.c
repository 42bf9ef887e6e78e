/* When an endpoint of a pool is full: our section `saturation`, and upstream's detectors. Both fill
 * the same fields. */
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/profile/plugin.h"

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

/* ---- saturation detectors -------------------------------------------------------------------- */

/* Of several ages the shortest counts: a pool has one. */
static void limit_load_age(struct doc_reader *reader, uint64_t age_ns) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct scrape_plan *plan = pool->scrape;
    if (plan && age_ns > 0 && (!pool->load_age_given || age_ns < plan->max_age_ns)) {
        plan->max_age_ns = age_ns;
        pool->load_age_given = true;
    }
}

/* The thresholds replace our limit of requests in flight. Without scraped loads they would never be
 * reached, so the limit stays. `settings` NULL: the defaults. */
void picker_set_utilization(struct doc_reader *reader, const struct doc_node *said,
                            const struct utilization_settings *settings) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct utilization_settings defaults = {0};
    doc_reader_presets(plugin_utilization_detector.parameters, &defaults);
    settings = settings ? settings : &defaults;
    spec->queue_depth = settings->queue_depth;
    spec->kv_cache = settings->kv_cache;
    spec->detector.stale_is_saturated = settings->stale_is_saturated;
    limit_load_age(reader, settings->max_age_ns);
    if (spec->scrape) {
        spec->max_in_flight = 0;
        spec->detector.kind = DETECTOR_LOADS;
    } else {
        pool_config_add_note(reader, said,
                             "thresholds need `metrics`: without it an endpoint is full by our own "
                             "requests in flight");
    }
}

void picker_read_utilization(struct doc_reader *reader, const struct doc_node *node) {
    const struct doc_member *members = plugin_utilization_detector.parameters;
    struct utilization_settings settings = {0};
    doc_reader_presets(members, &settings);
    doc_reader_reject_unknown(reader, node, members, NULL);
    doc_reader_members(reader, node, members, &settings);
    picker_set_utilization(reader, node, &settings);
}

void picker_set_concurrency(struct doc_reader *reader,
                            const struct concurrency_settings *settings) {
    static const enum detector_kind kinds[] = {[CONCURRENCY_REQUESTS] = DETECTOR_REQUESTS,
                                               [CONCURRENCY_TOKENS] = DETECTOR_TOKENS,
                                               [CONCURRENCY_HYBRID] = DETECTOR_HYBRID};
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct concurrency_settings defaults = {0};
    doc_reader_presets(plugin_concurrency_detector.parameters, &defaults);
    settings = settings ? settings : &defaults;
    spec->max_in_flight = settings->max_requests;
    spec->detector.max_tokens = settings->max_tokens;
    spec->detector.kind = kinds[settings->mode];
}

void picker_check_detectors(struct doc_reader *reader, const struct plugin_list *plugins) {
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *declared = &plugins->items[i];
        const struct utilization_settings *settings = declared->settings;
        if (declared->plugin != &plugin_utilization_detector || !declared->is_step || !settings) {
            continue;
        }
        limit_load_age(reader, settings->max_age_ns);
        if (!pool->spec->scrape) {
            pool_config_add_note(reader, &declared->item,
                                 "keeps all endpoints: it needs `metrics`");
        }
    }
}
