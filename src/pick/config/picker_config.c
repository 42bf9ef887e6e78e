/* The upstream picker's configuration, EndpointPickerConfig: what its data sources, saturation
 * detector, flow control and feature gates mean in our settings. Plugins and the profile, which our
 * own format has too, are read by profile.c.
 *
 * A setting that means the same here is applied. One that changes nothing gets a note, which
 * `sluice pick --check` prints. One that a user would rely on and that is not supported is an
 * error. */
#include "core/base/buf.h"
#include "core/base/num.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"

static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

/* ---- values ---------------------------------------------------------------------------------- */

/* A duration as Go writes it. */
static void read_go_duration(struct doc_reader *reader, const struct doc_node *node,
                             uint64_t max_ns, uint64_t *out) {
    struct str text = {NULL, 0};
    uint64_t ns;
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (num_parse_go_duration_ns(text, &ns) && ns <= max_ns) {
        *out = ns;
    } else {
        doc_reader_fail(reader, node, "expected a time such as 200ms, 30s or 1m30s, got \"%.*s\"",
                        STR_ARG(text));
    }
}

/* Prints a path such as "flowControl.priorityBands[1].maxBytes". */
static void add_path(const struct doc_node *node, struct buf *out) {
    if (!node->parent) {
        return;
    }
    add_path(node->parent, out);
    if (node->key) {
        buf_printf(out, "%s%s", out->len > 0 ? "." : "", node->key);
    } else {
        buf_printf(out, "[%zu]", node->index);
    }
}

static void add_note(struct doc_reader *reader, const struct doc_node *node, const char *why) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct buf path;
    struct str value;
    if (!doc_reader_ok(reader)) {
        return;
    }
    buf_init(&path, pool->arena, 0);
    add_path(node, &path);
    if (doc_read_str(node, &value, NULL) == ST_OK && node->val) {
        buf_printf(&path, ": %.*s", STR_ARG(value));
    }
    reader->status = pool_spec_add_note(pool->spec, buf_str(&path), why, reader->err);
}

/* ---- references to plugins ------------------------------------------------------------------- */

static const char LOADS[] = "loads are scraped as `metrics` configures";

/* What a member of the document refers to: a declared plugin, or a type with its defaults. */
struct picker_plugin {
    const struct picker_plugin_type *type; /* NULL after an error */
    struct doc_node parameters;
};

/* Reads the name of a plugin of this kind, or its type. */
static struct picker_plugin read_ref(struct doc_reader *reader, const struct doc_node *ref,
                                     enum picker_plugin_kind kind) {
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct picker_plugin plugin = {.type = NULL};
    struct str name = {NULL, 0};
    doc_reader_view(reader, ref, &name);
    if (!doc_reader_ok(reader)) {
        return plugin;
    }
    const struct declared_plugin *declared = plugin_list_find(pool->plugins, name);
    plugin.type = declared ? declared->type : picker_plugin_type_find(name);
    if (declared) {
        plugin.parameters = declared->parameters;
    }
    if (!plugin.type || plugin.type->kind != kind) {
        struct str names = picker_plugin_types_of_kind(pool->arena, kind);
        doc_reader_fail(reader, ref, "\"%.*s\" is not one of: %.*s", STR_ARG(name), STR_ARG(names));
        plugin.type = NULL;
    } else if (plugin.type->note) {
        add_note(reader, ref, plugin.type->note);
    }
    return plugin;
}

/* ---- data sources: the plan ------------------------------------------------------------------ */

static const uint64_t MIN_INTERVAL_NS = 50000000;

static void use_preset(struct scrape_plan *plan, const char *name) {
    size_t i = 0;
    while (strcmp(SCRAPE_PRESETS[i].name, name) != 0) {
        i++;
    }
    plan->preset = str_of(SCRAPE_PRESETS[i].name);
    scrape_source_init(&plan->source, &SCRAPE_PRESETS[i]);
}

/* Returns: a copy of the spec's plan, to be changed; without one, vLLM's preset, as upstream. */
static struct scrape_plan *copy_plan(struct pool_spec *spec) {
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    if (plan && spec->scrape) {
        *plan = *spec->scrape;
    } else if (plan) {
        scrape_plan_init(plan);
        use_preset(plan, "vllm");
    }
    return plan;
}

/* ---- data sources: which preset -------------------------------------------------------------- */

static void refuse_engine_configs(struct doc_reader *reader, const struct doc_node *node,
                                  void *unused) {
    (void)unused;
    if (doc_is_present(node)) {
        doc_reader_fail(reader, node,
                        "not supported: use `metrics: {rules: …}` in a document of our own format");
    }
}

static void check_label(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    static const char *const known[] = {"llm-d.ai/engine-type",
                                        "inference.networking.k8s.io/engine-type", NULL};
    unsigned word;
    (void)unused;
    doc_reader_word(reader, node, known, NULL, &word); /* upstream accepts both */
}

static void read_engine(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    static const char *const engines[] = {"vllm",         "sglang", "triton", "triton-tensorrt-llm",
                                          "trtllm-serve", NULL};
    static const char *const presets[] = {"vllm", "sglang", "triton", "tensorrt-llm",
                                          "trtllm-serve"};
    unsigned word = 0;
    doc_reader_word(reader, node, engines, NULL, &word);
    if (doc_reader_ok(reader) && node->val) {
        use_preset(plan, presets[word]);
    }
}

static const struct doc_member EXTRACTOR[] = {
    {"engineConfigs", MEMBER_CUSTOM(refuse_engine_configs)},
    {"engineLabelKey", MEMBER_CUSTOM(check_label)},
    {"defaultEngine", MEMBER_CUSTOM(read_engine)},
    {0}};

/* ---- data sources: port, path, TLS ----------------------------------------------------------- */

static void read_interval(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const uint64_t *ns = out;
    read_go_duration(reader, node, NS_PER_HOUR, out);
    if (*ns < MIN_INTERVAL_NS) {
        doc_reader_fail(reader, node, "expected 50ms or more");
    }
}

/* As upstream, certificates are not verified unless `insecureSkipVerify: false` is set. */
static void read_insecure(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct scrape_plan *plan = object;
    bool trusts = true;
    doc_reader_bool(reader, node, &trusts);
    plan->insecure_skip_verify = plan->https && trusts;
}

static void read_ca_file(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct scrape_plan *plan = object;
    struct str file = {NULL, 0};
    pool_config_read_optional_name(reader, node, &file);
    if (plan->https && file.ptr) {
        plan->ca_file = file;
    }
}

static const struct doc_member SOURCE[] = {
    {"scheme", MEMBER_CUSTOM_FIELD(struct scrape_plan, https, bool, pool_config_read_https)},
    {"path",
     MEMBER_CUSTOM_FIELD(struct scrape_plan, source.path, struct str, pool_config_read_page_path)},
    {"port", MEMBER_WHOLE(struct scrape_plan, source.port, 1, UINT16_MAX)},
    {"interval", MEMBER_CUSTOM_FIELD(struct scrape_plan, interval_ns, uint64_t, read_interval)},
    {"insecureSkipVerify", MEMBER_CUSTOM(read_insecure)},
    {"caCertPath", MEMBER_CUSTOM(read_ca_file)},
    {0}};

/* ---- data sources: all of them --------------------------------------------------------------- */

static void read_data_source(struct doc_reader *reader, const struct doc_node *parameters,
                             const struct doc_member *members) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    bool given = doc_is_present(parameters);
    if (pool->metrics_given) {
        if (given) {
            add_note(reader, parameters, "overridden by `metrics` or by flags");
        }
        return;
    }
    struct scrape_plan *plan = copy_plan(pool->spec);
    if (!plan) {
        doc_reader_no_memory(reader);
        return;
    }
    pool->spec->scrape = plan;
    if (given) {
        doc_reader_object(reader, parameters, members, plan);
    }
}

static void read_data_sources_of_type(struct doc_reader *reader, const char *type,
                                      const struct doc_member *members) {
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && strcmp(plugin->type->type, type) == 0) {
            read_data_source(reader, &plugin->parameters, members);
        }
    }
}

static const char DEFAULT_DETECTOR[] = "utilization-detector";

/* ---- saturation detector: thresholds --------------------------------------------------------- */

static void note_headroom(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    double headroom = 0;
    (void)unused;
    doc_reader_f64(reader, node, &headroom);
    if (!(headroom >= 0)) {
        doc_reader_fail(reader, node, "expected 0 or more");
    }
    if (headroom > 0) {
        add_note(reader, node, "an endpoint is full at its threshold");
    }
}

/* Reads the age after which a load is too old. */
static void read_age(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct pool_spec *spec = object;
    uint64_t age_ns = 0;
    read_go_duration(reader, node, NS_PER_HOUR, &age_ns);
    if (!node->val || !spec->scrape) {
        return;
    }
    if (age_ns == 0) {
        doc_reader_fail(reader, node, "expected a time above 0");
    }
    struct scrape_plan *plan = doc_reader_calloc(reader, 1, sizeof(*plan));
    if (plan) {
        *plan = *spec->scrape;
        plan->max_age_ns = age_ns;
        spec->scrape = plan;
    }
}

static const struct doc_member UTILIZATION[] = {
    {"queueDepthThreshold", MEMBER_WHOLE(struct pool_spec, queue_depth, 1, INT32_MAX), .preset = 5},
    {"kvCacheUtilThreshold", MEMBER_SHARE(struct pool_spec, kv_cache, false), .preset = 0.8},
    {"headroom", MEMBER_CUSTOM(note_headroom)},
    {"metricsStalenessThreshold", MEMBER_CUSTOM(read_age)},
    {0}};

/* The thresholds replace our limit of requests in flight. Without scraped loads they would never be
 * reached, so the limit stays. */
static void read_utilization(struct doc_reader *reader, const struct doc_node *said,
                             const struct doc_node *node) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    doc_reader_presets(UTILIZATION, spec);
    doc_reader_reject_unknown(reader, node, UTILIZATION, NULL);
    doc_reader_members(reader, node, UTILIZATION, spec);
    if (spec->scrape) {
        spec->max_in_flight = 0;
    } else {
        add_note(reader, said,
                 "thresholds need `metrics`: without it an endpoint is full by our own "
                 "requests in flight");
    }
}

/* Only requests are counted here. */
static void check_mode(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    static const char *const modes[] = {"requests", NULL};
    unsigned word;
    (void)unused;
    doc_reader_word(reader, node, modes, NULL, &word);
}

static void check_tokens(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    uint64_t n_tokens = 1;
    (void)unused;
    doc_reader_u64(reader, node, 1, INT64_MAX, &n_tokens);
}

static const struct doc_member CONCURRENCY[] = {
    {"maxConcurrency", MEMBER_WHOLE(struct pool_spec, max_in_flight, 1, INT32_MAX), .preset = 100},
    {"concurrencyMode", MEMBER_CUSTOM(check_mode)},
    {"maxTokenConcurrency", MEMBER_CUSTOM(check_tokens)},
    {"headroom", MEMBER_CUSTOM(note_headroom)},
    {"inFlightLoadProducerName", MEMBER_BY_CALLER},
    {0}};

static void read_concurrency(struct doc_reader *reader, const struct doc_node *node) {
    struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    doc_reader_presets(CONCURRENCY, spec);
    doc_reader_reject_unknown(reader, node, CONCURRENCY, NULL);
    doc_reader_members(reader, node, CONCURRENCY, spec);
}

/* ---- saturation detector: which one ---------------------------------------------------------- */

/* Where the detector is configured. */
struct detector {
    struct doc_node flow, said, ref;
};

/* `flowControl.saturationDetector` has precedence over `saturationDetector`. */
static void find_detector(const struct doc_node *document, struct detector *out) {
    out->flow = doc_get(document, "flowControl");
    out->said = doc_get(&out->flow, "saturationDetector");
    if (!doc_is_present(&out->said)) {
        out->said = doc_get(document, "saturationDetector");
    }
    out->ref = doc_get(&out->said, "pluginRef");
}

static bool has_thresholds(const struct detector *detector) {
    struct doc_node member = {0};
    return !doc_is_present(&detector->ref) && doc_next_member(&detector->said, &member);
}

static void read_detector_ref(struct doc_reader *reader, const struct detector *detector) {
    static const struct doc_member members[] = {{"pluginRef", MEMBER_BY_CALLER}, {0}};
    doc_reader_reject_unknown(reader, &detector->said, members, NULL);
    struct picker_plugin plugin = read_ref(reader, &detector->ref, PICKER_PLUGIN_DETECTOR);
    if (plugin.type && strcmp(plugin.type->type, DEFAULT_DETECTOR) == 0) {
        read_utilization(reader, &detector->ref, &plugin.parameters);
    } else if (plugin.type) {
        read_concurrency(reader, &plugin.parameters);
    }
}

/* Upstream always has a detector. Here it applies if the document mentions one, or has flow control
 * on. */
static void read_saturation_detector(struct doc_reader *reader, const struct doc_node *document) {
    static const struct doc_node nothing = {0};
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    const struct declared_plugin *declared =
        plugin_list_find(pool->plugins, str_of(DEFAULT_DETECTOR));
    struct detector detector = {.flow = {0}};
    find_detector(document, &detector);
    bool said = doc_is_present(&detector.said);
    if (!said && !declared && (!pool->flow_control_gate || pool->saturation_limits_given)) {
        return;
    }
    if (pool->saturation_limits_given) {
        doc_reader_fail(reader, declared && !said ? &declared->item : &detector.said,
                        "the file has `saturation` already");
    }
    if (said) {
        doc_reader_expect_object(reader, &detector.said);
    }
    if (!doc_reader_ok(reader)) {
        return;
    }
    if (has_thresholds(&detector)) {
        read_utilization(reader, &detector.said, &detector.said);
    } else if (doc_is_present(&detector.ref)) {
        read_detector_ref(reader, &detector);
    } else {
        read_utilization(reader, &detector.said, declared ? &declared->parameters : &nothing);
    }
}

static const uint64_t DEFAULT_TTL_NS = UINT64_C(60000000000);
enum { DEFAULT_BAND_MAX_REQUESTS = 5000 };

/* ---- flow control: values -------------------------------------------------------------------- */

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

/* A value of 0 or an absent one leaves `*out` unchanged. */
static void read_quantity(struct doc_reader *reader, const struct doc_node *node, uint64_t least,
                          uint64_t most, uint64_t *out) {
    struct str text = {NULL, 0};
    double number = 0;
    uint64_t value = 0;
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
        *out = value;
    }
}

static void read_bytes(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_quantity(reader, node, POOL_CONFIG_MIN_BYTES, POOL_CONFIG_MAX_BYTES, out);
}

static void read_requests(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_quantity(reader, node, 1, POOL_CONFIG_MAX_WAITING, out);
}

/* A TTL of 0 means no limit upstream; here it is one hour. */
static void read_ttl(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t *ns = out;
    read_go_duration(reader, node, UINT64_MAX, ns);
    if (*ns == 0 || *ns > NS_PER_HOUR) {
        *ns = NS_PER_HOUR;
        add_note(reader, node, "a request waits for an hour at most");
    }
}

/* ---- flow control: policies ------------------------------------------------------------------ */

static void check_policy(struct doc_reader *reader, const struct doc_node *ref,
                         enum picker_plugin_kind kind) {
    if (doc_is_present(ref)) {
        (void)read_ref(reader, ref, kind);
    }
}

static void check_fairness(struct doc_reader *reader, const struct doc_node *ref, void *unused) {
    (void)unused;
    check_policy(reader, ref, PICKER_PLUGIN_FAIRNESS);
}

static void check_ordering(struct doc_reader *reader, const struct doc_node *ref, void *unused) {
    (void)unused;
    check_policy(reader, ref, PICKER_PLUGIN_ORDERING);
}

static void check_usage_limit(struct doc_reader *reader, const struct doc_node *ref, void *unused) {
    struct picker_plugin plugin = {.type = NULL};
    double threshold = 1;
    (void)unused;
    if (doc_is_present(ref)) {
        plugin = read_ref(reader, ref, PICKER_PLUGIN_LIMIT);
    }
    struct doc_node share = doc_get(&plugin.parameters, "threshold");
    doc_reader_f64(reader, &share, &threshold);
    if (threshold != 1) {
        doc_reader_fail(reader, &share,
                        "expected 1: an endpoint's whole capacity is for all requests");
    }
}

/* ---- flow control: bands --------------------------------------------------------------------- */

static const char NO_WAIT[] = "requests below priority 0 do not wait: 429";

static void note_band_bytes(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    uint64_t n_bytes = 0;
    (void)unused;
    read_quantity(reader, node, 1, UINT64_C(1) << 60, &n_bytes);
    if (n_bytes > 0) {
        add_note(reader, node, "bytes are limited for all priorities together");
    }
}

static const struct doc_member BAND[] = {
    {"priority", MEMBER_BY_CALLER},
    {"maxRequests",
     MEMBER_CUSTOM_FIELD(struct flow_band_limits, max_requests, uint64_t, read_requests)},
    {"maxBytes", MEMBER_CUSTOM(note_band_bytes)},
    {"fairnessPolicyRef", MEMBER_CUSTOM(check_fairness)},
    {"orderingPolicyRef", MEMBER_CUSTOM(check_ordering)},
    {0}};

/* Requests of a priority below 0 never wait, so such a band has no effect. */
static bool read_band(struct doc_reader *reader, const struct doc_node *node,
                      struct flow_band_limits *out) {
    struct doc_node priority = doc_get(node, "priority");
    *out = (struct flow_band_limits){.max_requests = DEFAULT_BAND_MAX_REQUESTS};
    doc_reader_object(reader, node, BAND, out);
    doc_reader_i64(reader, &priority, INT32_MIN, INT32_MAX, &out->priority);
    if (out->priority < 0) {
        add_note(reader, node, NO_WAIT);
    }
    return out->priority >= 0;
}

static void read_bands(struct doc_reader *reader, const struct doc_node *list, void *flow) {
    if (doc_is_present(list) && doc_count(list) > 0) {
        pool_config_read_bands(reader, list, read_band, flow);
    }
}

static void read_default_band(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct flow_band_limits band = {.max_requests = *(uint64_t *)out};
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, BAND, &band);
        *(uint64_t *)out = band.max_requests;
    }
}

static void note_negative_band(struct doc_reader *reader, const struct doc_node *node,
                               void *unused) {
    struct flow_band_limits band = {.max_requests = 0};
    (void)unused;
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, BAND, &band);
        add_note(reader, node, NO_WAIT);
    }
}

/* ---- flow control: the section --------------------------------------------------------------- */

static void refuse_endpoint_wait(struct doc_reader *reader, const struct doc_node *node,
                                 void *unused) {
    (void)unused;
    if (doc_is_present(node)) {
        doc_reader_fail(reader, node,
                        "not supported: requests do not wait when no endpoint is ready");
    }
}

static void refuse_eviction(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    bool evict = false;
    (void)unused;
    doc_reader_bool(reader, node, &evict);
    if (evict) {
        doc_reader_fail(reader, node, "not supported: running requests are not evicted");
    }
}

#define LIMIT(field, function)                                                                     \
    MEMBER_CUSTOM_FIELD(struct pool_flow_control, field, uint64_t, function)
static const struct doc_member FLOW_CONTROL[] = {
    {"noEndpointRequestTTL", MEMBER_CUSTOM(refuse_endpoint_wait)},
    {"enableEviction", MEMBER_CUSTOM(refuse_eviction)},
    {"usageLimitPolicyPluginRef", MEMBER_CUSTOM(check_usage_limit)},
    {"maxBytes", LIMIT(limits.max_bytes, read_bytes)},
    {"maxRequests", LIMIT(limits.max_requests, read_requests)},
    {"defaultRequestTTL", LIMIT(max_wait_ns, read_ttl)},
    {"defaultPriorityBand", LIMIT(limits.default_band_max_requests, read_default_band)},
    {"defaultNegativePriorityBand", MEMBER_CUSTOM(note_negative_band)},
    {"priorityBands", MEMBER_CUSTOM(read_bands)},
    {"saturationDetector", MEMBER_BY_CALLER},
    {0}};
#undef LIMIT

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

/* Without the gate the section is checked, and has no effect. */
static void read_flow_control(struct doc_reader *reader, const struct doc_node *document) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct doc_node node = doc_get(document, "flowControl");
    struct pool_flow_control unused = {.max_wait_ns = DEFAULT_TTL_NS}, *flow = &unused;
    bool limits = doc_is_present(&node) && has_flow_limits(&node);
    if (limits && pool->flow_control_gate && pool->flow_control_given) {
        doc_reader_fail(reader, &node, "the file has `flow_control` already");
    }
    if (pool->flow_control_gate) {
        flow = &pool->spec->flow_control;
    }
    if (pool->flow_control_gate && !pool->flow_control_given) {
        flow->on = true;
        flow->max_wait_ns = DEFAULT_TTL_NS;
        flow->limits.default_band_max_requests = DEFAULT_BAND_MAX_REQUESTS;
    }
    if (doc_is_present(&node)) {
        doc_reader_object(reader, &node, FLOW_CONTROL, flow);
    }
    if (limits && !pool->flow_control_gate) {
        add_note(reader, &node, "it needs `featureGates: [flowControl]`");
    }
}

/* ---- feature gates --------------------------------------------------------------------------- */

static const struct {
    const char *name, *note;
} GATES[] = {
    {"flowControl", NULL},
    {"dataLayer", "loads are scraped without it"},
    {"enableLegacyMetrics", "loads are scraped without it"},
    {"prepareDataPlugins", "scorers get a request's data without it"},
    {"haPopulateNonLeaderDatastore", "every replica always has the pool"},
};

enum { N_GATES = sizeof(GATES) / sizeof(GATES[0]) };

/* "NAME", "NAME=true", "NAME=false" */
static void read_gate(struct doc_reader *reader, const struct doc_node *node) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct str rest = {NULL, 0};
    struct buf names;
    size_t i = 0;
    doc_reader_view(reader, node, &rest);
    if (!doc_reader_ok(reader)) {
        return;
    }
    struct str name = str_cut(&rest, '=');
    buf_init(&names, pool->arena, 0);
    for (; i < N_GATES && !str_is(name, GATES[i].name); i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", GATES[i].name);
    }
    if (i == N_GATES) {
        struct str text = buf_str(&names);
        doc_reader_fail(reader, node, "no feature gate is called \"%.*s\"; there are %.*s",
                        STR_ARG(name), STR_ARG(text));
        return;
    }
    if (rest.ptr && !str_is(rest, "true") && !str_is(rest, "false")) {
        doc_reader_fail(reader, node, "expected %s=true or %s=false, got \"%.*s\"", GATES[i].name,
                        GATES[i].name, STR_ARG(rest));
    } else if (GATES[i].note) {
        add_note(reader, node, GATES[i].note);
    } else {
        pool->flow_control_gate = !rest.ptr || str_is(rest, "true");
    }
}

/* ---- load sources and parsers ---------------------------------------------------------------- */

/* Checks that the references in a list can be resolved. */
static void check_refs(struct doc_reader *reader, const struct doc_node *list,
                       enum picker_plugin_kind kind) {
    static const struct doc_member members[] = {
        {"pluginRef", MEMBER_BY_CALLER}, {"extractors", MEMBER_BY_CALLER}, {0}};
    for (struct doc_node item = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &item);) {
        struct doc_node ref = doc_get(&item, "pluginRef"), more = doc_get(&item, "extractors");
        doc_reader_object(reader, &item, members, NULL);
        (void)read_ref(reader, &ref, kind);
        for (struct doc_node one = {0};
             doc_is_present(&more) && doc_reader_next(reader, &more, &one);) {
            struct doc_node other = doc_get(&one, "pluginRef");
            (void)read_ref(reader, &other, kind);
        }
    }
}

static void read_data(struct doc_reader *reader, const struct doc_node *data) {
    static const struct doc_member members[] = {
        {"sources", MEMBER_BY_CALLER}, {"injectDefaults", MEMBER_BY_CALLER}, {0}};
    struct doc_node sources = doc_get(data, "sources");
    if (!doc_is_present(data)) {
        return;
    }
    doc_reader_object(reader, data, members, NULL);
    if (!doc_is_present(&sources) || doc_count(&sources) == 0) {
        add_note(reader, data, LOADS);
    }
    check_refs(reader, &sources, PICKER_PLUGIN_DATA);
}

static void read_parsers(struct doc_reader *reader, const struct doc_node *document) {
    static const struct doc_member members[] = {{"parsers", MEMBER_BY_CALLER}, {0}};
    struct doc_node one = doc_get(document, "parser");
    struct doc_node handler = doc_get(document, "requestHandler");
    struct doc_node list = doc_get(&handler, "parsers");
    if (doc_is_present(&handler)) {
        doc_reader_object(reader, &handler, members, NULL);
    }
    check_refs(reader, &one, PICKER_PLUGIN_PARSER);
    check_refs(reader, &list, PICKER_PLUGIN_PARSER);
}

/* Adds a note for the parameters of producers, which are ignored. */
static void note_producers(struct doc_reader *reader) {
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && plugin->type->kind == PICKER_PLUGIN_PRODUCER &&
            doc_is_present(&plugin->parameters)) {
            add_note(reader, &plugin->parameters, "configured by the scorer's own parameters");
        }
    }
}

/* ---- the document ---------------------------------------------------------------------------- */

const struct doc_member POOL_CONFIG_PICKER[] = {
    {"plugins", MEMBER_BY_CALLER},        {"schedulingProfiles", MEMBER_BY_CALLER},
    {"featureGates", MEMBER_BY_CALLER},   {"saturationDetector", MEMBER_BY_CALLER},
    {"flowControl", MEMBER_BY_CALLER},    {"data", MEMBER_BY_CALLER},
    {"dataLayer", MEMBER_BY_CALLER},      {"parser", MEMBER_BY_CALLER},
    {"requestHandler", MEMBER_BY_CALLER}, {0}};

/* Data sources are read after extractors: a source may change the path and port of the extractor's
 * preset. */
void pool_config_read_picker_config(struct pool_config_reader *reader,
                                    const struct doc_node *node) {
    struct doc_reader *doc = &reader->doc;
    struct doc_node gates = doc_get(node, "featureGates"), gate = {0};
    struct doc_node data = doc_get(node, "data"), layer = doc_get(node, "dataLayer");
    reader->plugins = arena_calloc(reader->arena, 1, sizeof(*reader->plugins));
    if (!reader->plugins) {
        doc_reader_no_memory(doc);
        return;
    }
    pool_config_read_profile(doc, node, true, reader->plugins);
    while (doc_is_present(&gates) && doc_reader_next(doc, &gates, &gate)) {
        read_gate(doc, &gate);
    }
    read_data_sources_of_type(doc, "core-metrics-extractor", EXTRACTOR);
    read_data_sources_of_type(doc, "metrics-data-source", SOURCE);
    read_saturation_detector(doc, node);
    read_flow_control(doc, node);
    note_producers(doc);
    read_data(doc, &data);
    read_data(doc, &layer);
    read_parsers(doc, node);
}
