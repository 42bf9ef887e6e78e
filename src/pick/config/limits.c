/* When an endpoint of a pool is full, and which requests wait then: our sections `saturation` and
 * `flow_control`, and upstream's detectors and `flowControl`. Both fill the same fields. A
 * parameter of upstream's that has no effect here is a row without a field. */
#include "core/base/num.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Ours: "256MiB", or a number of bytes. */
static void read_bytes(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct doc_member *row = reader->row;
    struct str text = {NULL, 0};
    uint64_t n_bytes;
    if (doc_is_whole(node)) {
        doc_reader_u64(reader, node, row->min, row->max, out);
        return;
    }
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (num_parse_bytes(text, &n_bytes) && n_bytes >= (uint64_t)row->min &&
        n_bytes <= (uint64_t)row->max) {
        *(uint64_t *)out = n_bytes;
    } else {
        doc_reader_fail(reader, node, "expected a size from 64KiB to 1024GiB, got \"%.*s\"",
                        STR_ARG(text));
    }
}

/* A quantity of Kubernetes: "10Gi", "500M", "1k". */
static bool parse_quantity(struct str text, uint64_t *out) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},         {"k", 1e3},      {"M", 1e6},
                 {"G", 1e9},      {"T", 1e12},     {"Ki", 1024},
                 {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1099511627776.0}};
    double value;
    size_t n = 0;
    while (n < text.len && ((text.ptr[n] >= '0' && text.ptr[n] <= '9') || text.ptr[n] == '.')) {
        n++;
    }
    struct str unit = str_make(text.ptr + n, text.len - n);
    if (!num_parse_decimal(str_make(text.ptr, n), &value)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (str_is(unit, units[i].unit) && value * units[i].factor < 1e18) {
            value *= units[i].factor;
            *out = (uint64_t)value;
            *out += (double)*out < value;
            return true;
        }
    }
    return false;
}

/* Upstream's numbers of bytes and of requests, within the bounds of the row. A value of 0 or an
 * absent one leaves `*out` unchanged. */
static void read_quantity(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t least = (uint64_t)reader->row->min, most = (uint64_t)reader->row->max, value = 0;
    struct str text = {NULL, 0};
    double number = 0;
    if (!doc_is_present(node)) {
        return;
    }
    bool fits = doc_read_f64(node, &number, NULL) == ST_OK
                    ? number >= 0 && number < 1e18 && number == (double)(uint64_t)number
                    : doc_read_str(node, &text, NULL) == ST_OK && parse_quantity(text, &value);
    value = text.ptr || !fits ? value : (uint64_t)number;
    if (!fits || (value > 0 && (value < least || value > most))) {
        doc_reader_fail(reader, node,
                        "expected a quantity such as 500, 1k or 10Gi: 0, or %llu to %llu",
                        (unsigned long long)least, (unsigned long long)most);
    } else if (value > 0) {
        *(uint64_t *)out = value;
    }
}

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

static const char NO_HEADROOM[] = "an endpoint is full at its threshold";
const struct doc_member PICKER_UTILIZATION[] = {
    {"queueDepthThreshold", MEMBER_WHOLE(SPEC, queue_depth, 1, INT32_MAX), .preset = 5,
     .help = "`saturation: {queue_depth}`"},
    {"kvCacheUtilThreshold", MEMBER_SHARE(SPEC, kv_cache, false), .preset = 0.8,
     .help = "`saturation: {kv_cache}`"},
    {"headroom", MEMBER_UNUSED_NUMBER(0, INT64_MAX), .text = "expected 0 or more",
     .note = NO_HEADROOM},
    {"metricsStalenessThreshold", MEMBER_CUSTOM(read_age), .max = CONFIG_HOUR, .above_min = true,
     .unit = DOC_UNIT_NS, .form = "a time:", .help = "`metrics: {max_age}`"},
    {0}};

static const char *const CONCURRENCY_MODES[] = {"requests", NULL};
const struct doc_member PICKER_CONCURRENCY[] = {
    {"maxConcurrency", MEMBER_WHOLE(SPEC, max_in_flight, 1, INT32_MAX), .preset = 100,
     .help = "`saturation: {max_in_flight}`"},
    {"concurrencyMode", MEMBER_UNUSED_WORD(CONCURRENCY_MODES), .help = "requests are what counts"},
    {"maxTokenConcurrency", MEMBER_UNUSED_WHOLE(1, INT64_MAX),
     .help = "nothing: it is for another mode"},
    {"headroom", MEMBER_UNUSED_NUMBER(0, INT64_MAX), .text = "expected 0 or more",
     .note = NO_HEADROOM},
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
    } else {
        pool_config_add_note(reader, said,
                             "thresholds need `metrics`: without it an endpoint is full by our own "
                             "requests in flight");
    }
}

void picker_read_concurrency(struct doc_reader *reader, const struct doc_node *node) {
    read_detector(reader, node, PICKER_CONCURRENCY);
}

/* ---- the priorities of flow control ---------------------------------------------------------- */

static const char NO_WAIT[] = "requests below priority 0 do not wait: 429";
enum { DEFAULT_BAND_MAX_REQUESTS = 5000 /* upstream's */ };

static void check_band(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    (void)unused;
    if (!node->val || !doc_get(node->parent, "max_requests").val) {
        doc_reader_fail(reader, node->parent, "expected a priority and its max_requests");
    }
}

#define BAND struct flow_band_limits
static const struct doc_member OUR_BAND[] = {
    {"priority", MEMBER_WHOLE(BAND, priority, 0, INT32_MAX), .check = check_band},
    {"max_requests", MEMBER_WHOLE(BAND, max_requests, 0, POOL_CONFIG_MAX_WAITING)},
    {0}};
const struct doc_member PICKER_BAND[] = {
    {"maxRequests", MEMBER_CUSTOM_NUMBER(BAND, max_requests, read_quantity), .min = 1,
     .max = POOL_CONFIG_MAX_WAITING, .preset = DEFAULT_BAND_MAX_REQUESTS,
     .form = "a quantity: 0, or", .help = "requests of the priority that may wait"},
    {"maxBytes", MEMBER_CUSTOM(read_quantity), .min = 1, .max = INT64_C(1) << 60, .unused = true,
     .note = "bytes are limited for all priorities together", .unit = DOC_UNIT_BYTES,
     .form = "a quantity: 0, or"},
    {"fairnessPolicyRef", MEMBER_PLUGIN_REF(FAIRNESS), .form = "a plugin",
     .help = "must be a fairness policy that we have"},
    {"orderingPolicyRef", MEMBER_PLUGIN_REF(ORDERING), .form = "a plugin",
     .help = "must be an ordering policy that we have"},
    {"priority", MEMBER_WHOLE(BAND, priority, INT32_MIN, INT32_MAX), .help = "of the band"},
    {0}};
#undef BAND

/* Requests of a priority below 0 never wait, so such a band has no effect. */
static void read_bands(struct doc_reader *reader, const struct doc_node *list,
                       const struct doc_member *members, struct flow_limits *out) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > POOL_CONFIG_MAX_BANDS) {
        doc_reader_fail(reader, list, "expected at most %d priorities, got %zu",
                        POOL_CONFIG_MAX_BANDS, n);
    }
    if (n == 0) {
        return;
    }
    struct flow_band_limits *bands = doc_reader_calloc(reader, n, sizeof(*bands));
    out->bands = bands;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        struct flow_band_limits *band = &bands[out->n_bands];
        doc_reader_expect_object(reader, &item);
        doc_reader_presets(members, band);
        doc_reader_object(reader, &item, members, band);
        if (band->priority < 0) {
            pool_config_add_note(reader, &item, NO_WAIT);
            continue;
        }
        for (size_t i = 0; i < out->n_bands; i++) {
            if (bands[i].priority == band->priority) {
                doc_reader_fail(reader, &item, "the priority %lld is there twice",
                                (long long)band->priority);
            }
        }
        out->n_bands++;
    }
}

static void read_our_bands(struct doc_reader *reader, const struct doc_node *list, void *flow) {
    read_bands(reader, list, OUR_BAND, &((struct pool_flow_control *)flow)->limits);
}

static void read_picker_band(struct doc_reader *reader, const struct doc_node *node, void *band) {
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, PICKER_BAND, band);
    }
}

static void read_picker_bands(struct doc_reader *reader, const struct doc_node *list,
                              void *limits) {
    read_bands(reader, list, PICKER_BAND, limits);
}

/* ---- flow control ---------------------------------------------------------------------------- */

#define FLOW struct pool_flow_control
const struct doc_member POOL_CONFIG_FLOW_CONTROL[] = {
    {"max_requests", MEMBER_WHOLE(FLOW, limits.max_requests, 1, POOL_CONFIG_MAX_WAITING),
     .help = "requests that may wait"},
    {"max_bytes", MEMBER_CUSTOM_NUMBER(FLOW, limits.max_bytes, read_bytes),
     .min = POOL_CONFIG_MIN_BYTES, .max = POOL_CONFIG_MAX_BYTES, .unit = DOC_UNIT_BYTES,
     .help = "their buffered bodies together"},
    {"max_wait", MEMBER_DURATION(FLOW, max_wait_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "time after which a waiting request is refused"},
    {"bands", MEMBER_CUSTOM(read_our_bands), .form = "up to 64 of `{priority, max_requests}`",
     .help = "limits of some priorities"},
    {0}};
#undef FLOW

void pool_config_read_flow_control(struct doc_reader *reader, const struct doc_node *node,
                                   void *object) {
    struct pool_flow_control *flow = object;
    pool_config_reader_of(reader)->flow_control_given = node->val != NULL;
    flow->on = flow->on || node->val;
    doc_reader_object(reader, node, POOL_CONFIG_FLOW_CONTROL, flow);
}

/* A TTL of 0 means no limit upstream; here it is one hour. */
static void read_ttl(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t *ns = out;
    pool_config_read_go_duration(reader, node, ns);
    if (*ns == 0 || *ns > (uint64_t)CONFIG_HOUR) {
        *ns = (uint64_t)CONFIG_HOUR;
        pool_config_add_note(reader, node, "a request waits for an hour at most");
    }
}

/* Upstream's section. */
#define DEFAULT_TTL_NS (60 * CONFIG_S)
struct picker_flow {
    struct pool_flow_control ours;
    struct flow_band_limits default_band, negative_band;
};

#define FLOW struct picker_flow
const struct doc_member PICKER_FLOW_CONTROL[] = {
    {"noEndpointRequestTTL",
     MEMBER_REFUSED("not supported: requests do not wait when no endpoint is ready")},
    {"enableEviction", MEMBER_REFUSED_TRUE("not supported: running requests are not evicted")},
    {"usageLimitPolicyPluginRef", MEMBER_CUSTOM(picker_check_usage_limit), .form = "a plugin",
     .help = "must be a `static-usage-limit-policy` of the whole capacity"},
    {"maxBytes", MEMBER_CUSTOM_NUMBER(FLOW, ours.limits.max_bytes, read_quantity),
     .min = POOL_CONFIG_MIN_BYTES, .max = POOL_CONFIG_MAX_BYTES, .unit = DOC_UNIT_BYTES,
     .form = "a quantity: 0, or", .help = "`flow_control: {max_bytes}`"},
    {"maxRequests", MEMBER_CUSTOM_NUMBER(FLOW, ours.limits.max_requests, read_quantity), .min = 1,
     .max = POOL_CONFIG_MAX_WAITING, .form = "a quantity: 0, or",
     .help = "`flow_control: {max_requests}`"},
    {"defaultRequestTTL", MEMBER_CUSTOM_NUMBER(FLOW, ours.max_wait_ns, read_ttl), .max = INT64_MAX,
     .preset = DEFAULT_TTL_NS, .form = "a time:", .unit = DOC_UNIT_NS,
     .help = "`flow_control: {max_wait}`; 0 and more than an hour are an hour"},
    {"defaultPriorityBand",
     MEMBER_CUSTOM_FIELD(FLOW, default_band, struct flow_band_limits, read_picker_band),
     .form = "a band", .help = "limit of each priority without a band"},
    {"defaultNegativePriorityBand",
     MEMBER_CUSTOM_FIELD(FLOW, negative_band, struct flow_band_limits, read_picker_band),
     .note = NO_WAIT, .form = "a band"},
    {"priorityBands", MEMBER_CUSTOM_FIELD(FLOW, ours.limits, struct flow_limits, read_picker_bands),
     .form = "up to 64 bands", .help = "`flow_control: {bands}`"},
    {"saturationDetector", MEMBER_BY_CALLER, .form = "`{pluginRef}`",
     .help = "as the member of the document"},
    {0}};
#undef FLOW

/* Returns: the section has members other than the detector. */
static bool has_flow_limits(const struct doc_node *node) {
    struct doc_node member = {0};
    while (doc_next_member(node, &member)) {
        if (strcmp(member.key, "saturationDetector") != 0) {
            return true;
        }
    }
    return false;
}

void picker_read_flow_control(struct doc_reader *reader, const struct doc_node *document) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct picker_flow flow = {.ours.max_wait_ns = (uint64_t)DEFAULT_TTL_NS};
    struct doc_node node = doc_get(document, "flowControl");
    bool limits = doc_is_present(&node) && has_flow_limits(&node);
    if (limits && pool->flow_control_gate && pool->flow_control_given) {
        doc_reader_fail(reader, &node, "the file has `flow_control` already");
    }
    if (pool->flow_control_gate) {
        flow.ours = pool->spec->flow_control;
    }
    if (pool->flow_control_gate && !pool->flow_control_given) {
        flow.ours.on = true;
        flow.ours.max_wait_ns = (uint64_t)DEFAULT_TTL_NS;
        flow.ours.limits.default_band_max_requests = DEFAULT_BAND_MAX_REQUESTS;
    }
    flow.default_band.max_requests = flow.ours.limits.default_band_max_requests;
    if (doc_is_present(&node)) {
        doc_reader_object(reader, &node, PICKER_FLOW_CONTROL, &flow);
    }
    if (pool->flow_control_gate) {
        flow.ours.limits.default_band_max_requests = flow.default_band.max_requests;
        pool->spec->flow_control = flow.ours;
    }
    if (limits && !pool->flow_control_gate) {
        pool_config_add_note(reader, &node, "it needs `featureGates: [flowControl]`");
    }
}
