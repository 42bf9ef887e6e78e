/* The upstream picker's configuration, EndpointPickerConfig: plugins and the scheduling profile,
 * which our own format has too, data sources, saturation detector, flow control and feature gates.
 *
 * A setting that means the same here is applied. One that changes nothing gets a note, which
 * `sluice pick --check` prints. One that a user would rely on and that is not supported is an
 * error. */
#include "pick/config/reader.h"

#include "core/base/buf.h"
#include "core/base/num.h"
#include "core/base/suggest.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/profile/profile.h"

static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

struct picker_config_reader {
    struct pool_config_reader *reader;
    const struct doc_node *node; /* the document */
    bool flow_control;           /* the gate flowControl is on */
};

/* Kinds of plugins that can't be in a profile; other members of the document refer to them. */
enum picker_plugin_kind {
    PICKER_PLUGIN_HANDLER,
    PICKER_PLUGIN_DETECTOR,
    PICKER_PLUGIN_FAIRNESS,
    PICKER_PLUGIN_ORDERING,
    PICKER_PLUGIN_LIMIT,
    PICKER_PLUGIN_DATA,
    PICKER_PLUGIN_PARSER,
    PICKER_PLUGIN_PRODUCER,
};

struct picker_plugin_type {
    const char *type;
    enum picker_plugin_kind kind;
    const char *note; /* how it differs from upstream; NULL: it does not */
};

/* An item of the document's `plugins`. Not to be moved: doc_node points to its parents. */
struct picker_plugin {
    struct doc_node list, item, parameters;
    const struct picker_plugin_type *type; /* NULL: unknown, or a plugin of profiles */
};

/* ---- values ---------------------------------------------------------------------------------- */

static enum status picker_config_read_duration(const struct doc_node *node, uint64_t max_ns,
                                               uint64_t *out, struct error *err) {
    struct str text = {NULL, 0};
    uint64_t ns;
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    if (!num_parse_go_duration_ns(text, &ns) || ns > max_ns) {
        return doc_error(node, err, "expected a time such as 200ms, 30s or 1m30s, got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = ns;
    return ST_OK;
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

static enum status picker_config_add_note(const struct picker_config_reader *self,
                                          const struct doc_node *node, const char *why,
                                          struct error *err) {
    struct buf path;
    struct str value;
    buf_init(&path, self->reader->arena, 0);
    add_path(node, &path);
    if (doc_read_str(node, &value, NULL) == ST_OK && node->val) {
        buf_printf(&path, ": %.*s", STR_ARG(value));
    }
    return pool_spec_add_note(self->reader->spec, buf_str(&path), why, err);
}

/* ---- references to plugins ------------------------------------------------------------------- */

static const char LOADS[] = "loads are scraped as `metrics` configures";

static const struct picker_plugin_type PICKER_PLUGIN_TYPES[] = {
#define PICKER_PLUGIN(type, kind, note) {(type), PICKER_PLUGIN_##kind, (note)},
#include "pick/config/picker_plugin_type.def"
#undef PICKER_PLUGIN
};

static const size_t N_PICKER_PLUGIN_TYPES =
    sizeof(PICKER_PLUGIN_TYPES) / sizeof(PICKER_PLUGIN_TYPES[0]);

static const struct picker_plugin_type *picker_plugin_type_find(struct str type) {
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (str_is(type, PICKER_PLUGIN_TYPES[i].type)) {
            return &PICKER_PLUGIN_TYPES[i];
        }
    }
    return NULL;
}

/* A plugin without a name has its type as its name. */
static bool picker_plugin_find_by_name(const struct picker_config_reader *self, struct str name,
                                       struct picker_plugin *out) {
    out->list = doc_get(self->node, "plugins");
    out->item = (struct doc_node){0};
    while (doc_is_present(&out->list) && doc_next(&out->list, &out->item)) {
        struct doc_node own = doc_get(&out->item, "name"), type = doc_get(&out->item, "type");
        struct str text = {NULL, 0}, kind = {NULL, 0};
        bool read = doc_read_str(&type, &kind, NULL) == ST_OK;
        text = kind;
        if (read && doc_read_str(&own, &text, NULL) == ST_OK && text.ptr && str_eq(text, name)) {
            out->type = picker_plugin_type_find(kind);
            out->parameters = doc_get(&out->item, "parameters");
            return true;
        }
    }
    return false;
}

/* Returns: the types of this kind, "a, b, c". */
static struct str types_of_kind(const struct picker_config_reader *self,
                                enum picker_plugin_kind kind) {
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_PICKER_PLUGIN_TYPES; i++) {
        if (PICKER_PLUGIN_TYPES[i].kind == kind) {
            buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", PICKER_PLUGIN_TYPES[i].type);
        }
    }
    return buf_str(&names);
}

static enum status picker_plugin_find_by_ref(const struct picker_config_reader *self,
                                             const struct doc_node *ref,
                                             enum picker_plugin_kind kind,
                                             struct picker_plugin *out, struct error *err) {
    struct str name = {NULL, 0};
    *out = (struct picker_plugin){.type = NULL};
    enum status st = doc_read_str(ref, &name, err);
    if (st != ST_OK) {
        return st;
    }
    if (!picker_plugin_find_by_name(self, name, out)) {
        out->type = picker_plugin_type_find(name);
    }
    if (!out->type || out->type->kind != kind) {
        struct str names = types_of_kind(self, kind);
        return doc_error(ref, err, "\"%.*s\" is not one of: %.*s", STR_ARG(name), STR_ARG(names));
    }
    return out->type->note ? picker_config_add_note(self, ref, out->type->note, err) : ST_OK;
}

/* ---- data sources: the plan ------------------------------------------------------------------ */

static const uint64_t MIN_INTERVAL_NS = 50000000;
static const char DATA_SOURCE[] = "metrics-data-source",
                  METRICS_EXTRACTOR[] = "core-metrics-extractor";

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

static enum status read_label(const struct doc_node *node, struct error *err) {
    static const char *const known[] = {"llm-d.ai/engine-type",
                                        "inference.networking.k8s.io/engine-type", NULL};
    unsigned unused;
    return pool_config_read_word(node, known, &unused, err); /* upstream accepts both */
}

static enum status read_extractor(const struct doc_node *node, struct scrape_plan *plan,
                                  struct error *err) {
    static const char *const names[] = {"engineLabelKey", "defaultEngine", "engineConfigs", NULL};
    static const char *const engines[] = {"vllm",         "sglang", "triton", "triton-tensorrt-llm",
                                          "trtllm-serve", NULL};
    static const char *const presets[] = {"vllm", "sglang", "triton", "tensorrt-llm",
                                          "trtllm-serve"};
    struct doc_node label = doc_get(node, names[0]), engine = doc_get(node, names[1]);
    struct doc_node configs = doc_get(node, names[2]);
    unsigned word = 0;
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK && doc_is_present(&configs)) {
        return doc_error(
            &configs, err,
            "not supported: use `metrics: {rules: …}` in a document of our own format");
    }
    if (st == ST_OK) {
        st = read_label(&label, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&engine, engines, &word, err);
    }
    if (st == ST_OK && engine.val) {
        use_preset(plan, presets[word]);
    }
    return st;
}

/* ---- data sources: port, path, TLS ----------------------------------------------------------- */

static enum status read_interval(const struct doc_node *node, uint64_t *out, struct error *err) {
    enum status st = picker_config_read_duration(node, NS_PER_HOUR, out, err);
    return st == ST_OK && *out < MIN_INTERVAL_NS ? doc_error(node, err, "expected 50ms or more")
                                                 : st;
}

/* As upstream, certificates are not verified unless `insecureSkipVerify: false` is set. */
static enum status read_source_tls(struct pool_config_reader *reader, const struct doc_node *node,
                                   struct scrape_plan *plan, struct error *err) {
    struct doc_node skip = doc_get(node, "insecureSkipVerify"), ca = doc_get(node, "caCertPath");
    struct str file = {NULL, 0};
    bool trusts = true;
    enum status st = doc_read_bool(&skip, &trusts, err);
    if (st == ST_OK && ca.val) {
        st = pool_config_read_name(reader, &ca, &file, err);
    }
    plan->insecure_skip_verify = plan->https && trusts;
    if (plan->https && file.ptr) {
        plan->ca_file = file;
    }
    return st;
}

static enum status read_source(struct pool_config_reader *reader, const struct doc_node *node,
                               struct scrape_plan *plan, struct error *err) {
    static const char *const names[] = {"scheme",     "path",     "port", "insecureSkipVerify",
                                        "caCertPath", "interval", NULL};
    static const char *const schemes[] = {"http", "https", NULL};
    struct doc_node scheme = doc_get(node, names[0]), path = doc_get(node, names[1]);
    struct doc_node port = doc_get(node, names[2]), interval = doc_get(node, "interval");
    unsigned word = 0;
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK) {
        st = pool_config_read_word(&scheme, schemes, &word, err);
    }
    plan->https = word == 1;
    if (st == ST_OK) {
        st = pool_config_read_path(reader, &path, &plan->source.path, err);
    }
    if (st == ST_OK && plan->source.path.len > POOL_CONFIG_MAX_PATH) {
        return doc_error(&path, err, "expected at most %d bytes, got %zu", POOL_CONFIG_MAX_PATH,
                         plan->source.path.len);
    }
    if (st == ST_OK) {
        st = pool_config_read_port(&port, &plan->source.port, err);
    }
    if (st == ST_OK) {
        st = read_interval(&interval, &plan->interval_ns, err);
    }
    return st == ST_OK ? read_source_tls(reader, node, plan, err) : st;
}

/* ---- data sources: all of them --------------------------------------------------------------- */

static enum status read_data_source(const struct picker_config_reader *self,
                                    const struct doc_node *parameters, bool source,
                                    struct error *err) {
    struct pool_spec *spec = self->reader->spec;
    if (self->reader->metrics_given) {
        return doc_is_present(parameters)
                   ? picker_config_add_note(self, parameters, "overridden by `metrics` or by flags",
                                            err)
                   : ST_OK;
    }
    struct scrape_plan *plan = copy_plan(spec);
    if (!plan) {
        return pool_config_no_memory(self->reader, err);
    }
    spec->scrape = plan;
    if (!doc_is_present(parameters)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(parameters, err);
    if (st != ST_OK) {
        return st;
    }
    return source ? read_source(self->reader, parameters, plan, err)
                  : read_extractor(parameters, plan, err);
}

static enum status read_data_sources_of_type(const struct picker_config_reader *self,
                                             const char *type, struct error *err) {
    struct doc_node list = doc_get(self->node, "plugins");
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        struct doc_node kind = doc_get(&item, "type"), parameters = doc_get(&item, "parameters");
        struct str text = {NULL, 0};
        st = doc_read_str(&kind, &text, err);
        if (st == ST_OK && str_is(text, type)) {
            st = read_data_source(self, &parameters, type == DATA_SOURCE, err);
        }
    }
    return st;
}

/* Sources are read after extractors: a source may change the path and port of the extractor's
 * preset. */
static enum status picker_config_read_data_sources(const struct picker_config_reader *self,
                                                   struct error *err) {
    enum status st = read_data_sources_of_type(self, METRICS_EXTRACTOR, err);
    return st == ST_OK ? read_data_sources_of_type(self, DATA_SOURCE, err) : st;
}

static const char DEFAULT_DETECTOR[] = "utilization-detector";
enum { DEFAULT_QUEUE_DEPTH = 5, DEFAULT_MAX_CONCURRENCY = 100 };
static const double DEFAULT_KV_CACHE = 0.8;

/* ---- saturation detector: thresholds --------------------------------------------------------- */

static enum status read_headroom(const struct picker_config_reader *self,
                                 const struct doc_node *node, struct error *err) {
    double headroom = 0;
    enum status st = doc_read_f64(node, &headroom, err);
    if (st == ST_OK && !(headroom >= 0)) {
        return doc_error(node, err, "expected 0 or more");
    }
    return st == ST_OK && headroom > 0
               ? picker_config_add_note(self, node, "an endpoint is full at its threshold", err)
               : st;
}

/* Reads the age after which a load is too old. */
static enum status read_age(const struct picker_config_reader *self, const struct doc_node *node,
                            struct error *err) {
    struct pool_spec *spec = self->reader->spec;
    uint64_t age_ns = 0;
    enum status st = picker_config_read_duration(node, NS_PER_HOUR, &age_ns, err);
    if (st != ST_OK || !node->val || !spec->scrape) {
        return st;
    }
    if (age_ns == 0) {
        return doc_error(node, err, "expected a time above 0");
    }
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    if (!plan) {
        return pool_config_no_memory(self->reader, err);
    }
    *plan = *spec->scrape;
    plan->max_age_ns = age_ns;
    spec->scrape = plan;
    return ST_OK;
}

/* The thresholds replace our limit of requests in flight. Without scraped loads they would never be
 * reached, so the limit stays. */
static enum status read_utilization(const struct picker_config_reader *self,
                                    const struct doc_node *said, const struct doc_node *node,
                                    struct error *err) {
    static const char *const names[] = {"queueDepthThreshold", "kvCacheUtilThreshold",
                                        "metricsStalenessThreshold", "headroom", NULL};
    struct pool_spec *spec = self->reader->spec;
    struct doc_node depth = doc_get(node, names[0]), used = doc_get(node, names[1]);
    struct doc_node age = doc_get(node, names[2]), headroom = doc_get(node, names[3]);
    spec->queue_depth = DEFAULT_QUEUE_DEPTH;
    spec->kv_cache = DEFAULT_KV_CACHE;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&depth, 1, INT32_MAX, &spec->queue_depth, err);
    }
    if (st == ST_OK) {
        st = doc_read_share(&used, false, &spec->kv_cache, err);
    }
    if (st == ST_OK) {
        st = read_headroom(self, &headroom, err);
    }
    if (st == ST_OK) {
        st = read_age(self, &age, err);
    }
    if (st != ST_OK || spec->scrape) {
        spec->max_in_flight = 0;
        return st;
    }
    return picker_config_add_note(
        self, said,
        "thresholds need `metrics`: without it an endpoint is full by our own "
        "requests in flight",
        err);
}

static enum status read_concurrency(const struct picker_config_reader *self,
                                    const struct doc_node *node, struct error *err) {
    static const char *const names[] = {"maxConcurrency",           "headroom",
                                        "concurrencyMode",          "maxTokenConcurrency",
                                        "inFlightLoadProducerName", NULL};
    static const char *const modes[] = {"requests", NULL};
    struct doc_node most = doc_get(node, names[0]), headroom = doc_get(node, names[1]);
    struct doc_node mode = doc_get(node, names[2]), tokens = doc_get(node, names[3]);
    unsigned word;
    uint64_t unused = 1;
    self->reader->spec->max_in_flight = DEFAULT_MAX_CONCURRENCY;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st =
            pool_config_read_unsigned(&most, 1, INT32_MAX, &self->reader->spec->max_in_flight, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&mode, modes, &word, err); /* only requests are counted here */
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&tokens, 1, INT64_MAX, &unused, err);
    }
    return st == ST_OK ? read_headroom(self, &headroom, err) : st;
}

/* ---- saturation detector: which one ---------------------------------------------------------- */

/* Where the detector is configured. */
struct detector {
    struct doc_node flow, said, ref;
    struct picker_plugin plugin;
};

/* `flowControl.saturationDetector` has precedence over `saturationDetector`. */
static void find_detector(const struct picker_config_reader *self, struct detector *out) {
    out->flow = doc_get(self->node, "flowControl");
    out->said = doc_get(&out->flow, "saturationDetector");
    if (!doc_is_present(&out->said)) {
        out->said = doc_get(self->node, "saturationDetector");
    }
    out->ref = doc_get(&out->said, "pluginRef");
}

static bool has_thresholds(const struct detector *detector) {
    struct doc_node member = {0};
    return !doc_is_present(&detector->ref) && doc_next_member(&detector->said, &member);
}

static enum status read_detector_ref(const struct picker_config_reader *self,
                                     struct detector *detector, struct error *err) {
    static const char *const names[] = {"pluginRef", NULL};
    enum status st = doc_reject_unknown(&detector->said, names, err);
    if (st == ST_OK) {
        st = picker_plugin_find_by_ref(self, &detector->ref, PICKER_PLUGIN_DETECTOR,
                                       &detector->plugin, err);
    }
    if (st != ST_OK) {
        return st;
    }
    return strcmp(detector->plugin.type->type, DEFAULT_DETECTOR) == 0
               ? read_utilization(self, &detector->ref, &detector->plugin.parameters, err)
               : read_concurrency(self, &detector->plugin.parameters, err);
}

/* Upstream always has a detector. Here it applies if the document mentions one, or has flow control
 * on. */
static enum status picker_config_read_saturation_detector(const struct picker_config_reader *self,
                                                          struct error *err) {
    struct detector detector = {.flow = {0}};
    find_detector(self, &detector);
    bool said = doc_is_present(&detector.said);
    bool declared = picker_plugin_find_by_name(self, str_of(DEFAULT_DETECTOR), &detector.plugin);
    if (!said && !declared && (!self->flow_control || self->reader->saturation_limits_given)) {
        return ST_OK;
    }
    const struct doc_node *where = said ? &detector.said : &detector.plugin.item;
    if (self->reader->saturation_limits_given) {
        return doc_error(where, err, "the file has `saturation` already");
    }
    enum status st = said ? doc_expect_object(&detector.said, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    if (has_thresholds(&detector)) {
        return read_utilization(self, &detector.said, &detector.said, err);
    }
    return doc_is_present(&detector.ref)
               ? read_detector_ref(self, &detector, err)
               : read_utilization(self, &detector.said, &detector.plugin.parameters, err);
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
static enum status read_quantity(const struct doc_node *node, uint64_t least, uint64_t most,
                                 uint64_t *out, struct error *err) {
    struct str text = {NULL, 0};
    double number = 0;
    uint64_t value = 0;
    if (!doc_is_present(node)) {
        return ST_OK;
    }
    bool fits = doc_read_f64(node, &number, NULL) == ST_OK
                    ? number >= 0 && number < 1e18 && number == (double)(uint64_t)number
                    : doc_read_str(node, &text, NULL) == ST_OK && parse_quantity(text, &value);
    value = text.ptr || !fits ? value : (uint64_t)number;
    if (!fits || (value > 0 && (value < least || value > most))) {
        return doc_error(node, err,
                         "expected a quantity such as 500, 1k or 10Gi: 0, or %llu to %llu",
                         (unsigned long long)least, (unsigned long long)most);
    }
    *out = value > 0 ? value : *out;
    return ST_OK;
}

/* A TTL of 0 means no limit upstream; here it is one hour. */
static enum status read_ttl(const struct picker_config_reader *self, const struct doc_node *node,
                            uint64_t *out, struct error *err) {
    uint64_t ns = *out;
    enum status st = picker_config_read_duration(node, UINT64_MAX, &ns, err);
    if (st == ST_OK && (ns == 0 || ns > NS_PER_HOUR)) {
        ns = NS_PER_HOUR;
        st = picker_config_add_note(self, node, "a request waits for an hour at most", err);
    }
    *out = ns;
    return st;
}

/* ---- flow control: policies ------------------------------------------------------------------ */

static enum status check_policy(const struct picker_config_reader *self, const struct doc_node *ref,
                                enum picker_plugin_kind kind, struct error *err) {
    struct picker_plugin plugin;
    return doc_is_present(ref) ? picker_plugin_find_by_ref(self, ref, kind, &plugin, err) : ST_OK;
}

static enum status check_usage_limit(const struct picker_config_reader *self,
                                     const struct doc_node *ref, struct error *err) {
    struct picker_plugin plugin;
    double threshold = 1;
    if (!doc_is_present(ref)) {
        return ST_OK;
    }
    enum status st = picker_plugin_find_by_ref(self, ref, PICKER_PLUGIN_LIMIT, &plugin, err);
    if (st != ST_OK) {
        return st;
    }
    struct doc_node share = doc_get(&plugin.parameters, "threshold");
    st = doc_read_f64(&share, &threshold, err);
    return st == ST_OK && threshold != 1
               ? doc_error(&share, err,
                           "expected 1: an endpoint's whole capacity is for all requests")
               : st;
}

/* ---- flow control: bands --------------------------------------------------------------------- */

static const char *const BAND_NAMES[] = {"priority",          "maxBytes",          "maxRequests",
                                         "fairnessPolicyRef", "orderingPolicyRef", NULL};

/* `most`: receives the limit of the band's requests. */
static enum status read_band(const struct picker_config_reader *self, const struct doc_node *node,
                             uint64_t *most, struct error *err) {
    struct doc_node bytes = doc_get(node, "maxBytes"), requests = doc_get(node, "maxRequests");
    struct doc_node fair = doc_get(node, "fairnessPolicyRef");
    struct doc_node order = doc_get(node, "orderingPolicyRef");
    uint64_t n_bytes = 0;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, BAND_NAMES, err);
    }
    if (st == ST_OK) {
        st = read_quantity(&requests, 1, POOL_CONFIG_MAX_WAITING, most, err);
    }
    if (st == ST_OK) {
        st = read_quantity(&bytes, 1, UINT64_C(1) << 60, &n_bytes, err);
    }
    if (st == ST_OK && n_bytes > 0) {
        st = picker_config_add_note(self, &bytes, "bytes are limited for all priorities together",
                                    err);
    }
    if (st == ST_OK) {
        st = check_policy(self, &fair, PICKER_PLUGIN_FAIRNESS, err);
    }
    return st == ST_OK ? check_policy(self, &order, PICKER_PLUGIN_ORDERING, err) : st;
}

/* Requests of a priority below 0 never wait, so such a band is not stored. */
static enum status add_band(const struct picker_config_reader *self, const struct doc_node *node,
                            struct flow_band_limits *bands, size_t *n, struct error *err) {
    struct flow_band_limits band = {.max_requests = DEFAULT_BAND_MAX_REQUESTS};
    struct doc_node priority = doc_get(node, "priority");
    enum status st = read_band(self, node, &band.max_requests, err);
    if (st == ST_OK) {
        st = doc_read_i64(&priority, INT32_MIN, INT32_MAX, &band.priority, err);
    }
    if (st == ST_OK && band.priority < 0) {
        return picker_config_add_note(self, node, "requests below priority 0 do not wait: 429",
                                      err);
    }
    for (size_t i = 0; st == ST_OK && i < *n; i++) {
        if (bands[i].priority == band.priority) {
            return doc_error(node, err, "the priority %lld is there twice",
                             (long long)band.priority);
        }
    }
    if (st == ST_OK) {
        bands[(*n)++] = band;
    }
    return st;
}

static enum status read_bands(const struct picker_config_reader *self, const struct doc_node *list,
                              struct flow_limits *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n == 0) {
        return ST_OK;
    }
    if (n > POOL_CONFIG_MAX_BANDS) {
        return doc_error(list, err, "expected at most %d priorities, got %zu",
                         POOL_CONFIG_MAX_BANDS, n);
    }
    struct flow_band_limits *bands = arena_calloc(self->reader->spec->arena, n, sizeof(*bands));
    enum status st = ST_OK;
    if (!bands) {
        return pool_config_no_memory(self->reader, err);
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(list, &item);) {
        st = add_band(self, &item, bands, &out->n_bands, err);
    }
    out->bands = bands;
    return st;
}

static enum status read_default_bands(const struct picker_config_reader *self,
                                      const struct doc_node *node, struct flow_limits *out,
                                      struct error *err) {
    struct doc_node usual = doc_get(node, "defaultPriorityBand");
    struct doc_node negative = doc_get(node, "defaultNegativePriorityBand");
    uint64_t unused = 0;
    enum status st = doc_is_present(&usual)
                         ? read_band(self, &usual, &out->default_band_max_requests, err)
                         : ST_OK;
    if (st != ST_OK || !doc_is_present(&negative)) {
        return st;
    }
    st = read_band(self, &negative, &unused, err);
    return st == ST_OK ? picker_config_add_note(self, &negative,
                                                "requests below priority 0 do not wait: 429", err)
                       : st;
}

/* ---- flow control: the section --------------------------------------------------------------- */

static enum status read_flow_limits(const struct picker_config_reader *self,
                                    const struct doc_node *node, struct pool_flow_control *flow,
                                    struct error *err) {
    struct doc_node bytes = doc_get(node, "maxBytes"), requests = doc_get(node, "maxRequests");
    struct doc_node ttl = doc_get(node, "defaultRequestTTL");
    struct doc_node bands = doc_get(node, "priorityBands");
    enum status st = read_quantity(&bytes, POOL_CONFIG_MIN_BYTES, POOL_CONFIG_MAX_BYTES,
                                   &flow->limits.max_bytes, err);
    if (st == ST_OK) {
        st = read_quantity(&requests, 1, POOL_CONFIG_MAX_WAITING, &flow->limits.max_requests, err);
    }
    if (st == ST_OK) {
        st = read_ttl(self, &ttl, &flow->max_wait_ns, err);
    }
    if (st == ST_OK) {
        st = read_default_bands(self, node, &flow->limits, err);
    }
    return st == ST_OK ? read_bands(self, &bands, &flow->limits, err) : st;
}

/* Rejects settings that are not supported and would be relied on. */
static enum status refuse_setting(const struct doc_node *node, struct error *err) {
    struct doc_node wait = doc_get(node, "noEndpointRequestTTL");
    struct doc_node eviction = doc_get(node, "enableEviction");
    bool evict = false;
    if (doc_is_present(&wait)) {
        return doc_error(&wait, err,
                         "not supported: requests do not wait when no endpoint is ready");
    }
    enum status st = doc_read_bool(&eviction, &evict, err);
    return st == ST_OK && evict
               ? doc_error(&eviction, err, "not supported: running requests are not evicted")
               : st;
}

static enum status read_flow_section(const struct picker_config_reader *self,
                                     const struct doc_node *node, struct error *err) {
    static const char *const names[] = {"maxBytes",
                                        "maxRequests",
                                        "defaultRequestTTL",
                                        "noEndpointRequestTTL",
                                        "defaultPriorityBand",
                                        "defaultNegativePriorityBand",
                                        "priorityBands",
                                        "usageLimitPolicyPluginRef",
                                        "saturationDetector",
                                        "enableEviction",
                                        NULL};
    struct pool_flow_control unused = {.max_wait_ns = DEFAULT_TTL_NS};
    struct pool_flow_control *flow =
        self->flow_control ? &self->reader->spec->flow_control : &unused;
    struct doc_node usage = doc_get(node, "usageLimitPolicyPluginRef");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = refuse_setting(node, err);
    }
    if (st == ST_OK) {
        st = check_usage_limit(self, &usage, err);
    }
    return st == ST_OK ? read_flow_limits(self, node, flow, err) : st;
}

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

static enum status picker_config_read_flow_control(const struct picker_config_reader *self,
                                                   struct error *err) {
    struct doc_node node = doc_get(self->node, "flowControl");
    struct pool_flow_control *flow = &self->reader->spec->flow_control;
    bool said = doc_is_present(&node);
    if (said && self->flow_control && self->reader->flow_control_given && has_flow_limits(&node)) {
        return doc_error(&node, err, "the file has `flow_control` already");
    }
    if (self->flow_control && !self->reader->flow_control_given) {
        flow->on = true;
        flow->max_wait_ns = DEFAULT_TTL_NS;
        flow->limits.default_band_max_requests = DEFAULT_BAND_MAX_REQUESTS;
    }
    enum status st = said ? read_flow_section(self, &node, err) : ST_OK;
    return st == ST_OK && said && !self->flow_control && has_flow_limits(&node)
               ? picker_config_add_note(self, &node, "it needs `featureGates: [flowControl]`", err)
               : st;
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

static enum status unknown_gate(const struct picker_config_reader *self,
                                const struct doc_node *node, struct str name, struct error *err) {
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_GATES; i++) {
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", GATES[i].name);
    }
    struct str text = buf_str(&names);
    return doc_error(node, err, "no feature gate is called \"%.*s\"; there are %.*s", STR_ARG(name),
                     STR_ARG(text));
}

/* "NAME", "NAME=true", "NAME=false" */
static enum status read_gate(struct picker_config_reader *self, const struct doc_node *node,
                             struct error *err) {
    struct str rest = {NULL, 0};
    size_t i = 0;
    enum status st = doc_read_str(node, &rest, err);
    if (st != ST_OK) {
        return st;
    }
    struct str name = str_cut(&rest, '=');
    while (i < N_GATES && !str_is(name, GATES[i].name)) {
        i++;
    }
    if (i == N_GATES) {
        return unknown_gate(self, node, name, err);
    }
    if (rest.ptr && !str_is(rest, "true") && !str_is(rest, "false")) {
        return doc_error(node, err, "expected %s=true or %s=false, got \"%.*s\"", GATES[i].name,
                         GATES[i].name, STR_ARG(rest));
    }
    if (!GATES[i].note) {
        self->flow_control = !rest.ptr || str_is(rest, "true");
    }
    return GATES[i].note ? picker_config_add_note(self, node, GATES[i].note, err) : ST_OK;
}

static enum status read_gates(struct picker_config_reader *self, struct error *err) {
    struct doc_node gates = doc_get(self->node, "featureGates");
    enum status st = ST_OK;
    for (struct doc_node item = {0};
         doc_is_present(&gates) && st == ST_OK && doc_next(&gates, &item);) {
        st = read_gate(self, &item, err);
    }
    return st;
}

/* ---- load sources and parsers ---------------------------------------------------------------- */

/* Checks that the references in a list can be resolved. */
static enum status check_refs(const struct picker_config_reader *self, const struct doc_node *list,
                              enum picker_plugin_kind kind, struct error *err) {
    static const char *const names[] = {"pluginRef", "extractors", NULL};
    enum status st = ST_OK;
    for (struct doc_node item = {0};
         doc_is_present(list) && st == ST_OK && doc_next(list, &item);) {
        struct doc_node ref = doc_get(&item, "pluginRef"), more = doc_get(&item, "extractors");
        struct picker_plugin plugin;
        st = doc_expect_object(&item, err);
        if (st == ST_OK) {
            st = doc_reject_unknown(&item, names, err);
        }
        if (st == ST_OK) {
            st = picker_plugin_find_by_ref(self, &ref, kind, &plugin, err);
        }
        for (struct doc_node one = {0};
             doc_is_present(&more) && st == ST_OK && doc_next(&more, &one);) {
            struct doc_node other = doc_get(&one, "pluginRef");
            st = picker_plugin_find_by_ref(self, &other, kind, &plugin, err);
        }
    }
    return st;
}

static enum status read_data(const struct picker_config_reader *self, const char *name,
                             struct error *err) {
    static const char *const names[] = {"sources", "injectDefaults", NULL};
    struct doc_node data = doc_get(self->node, name), sources = doc_get(&data, "sources");
    if (!doc_is_present(&data)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(&data, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(&data, names, err);
    }
    if (st == ST_OK && (!doc_is_present(&sources) || doc_count(&sources) == 0)) {
        st = picker_config_add_note(self, &data, LOADS, err);
    }
    return st == ST_OK ? check_refs(self, &sources, PICKER_PLUGIN_DATA, err) : st;
}

static enum status read_parsers(const struct picker_config_reader *self, struct error *err) {
    static const char *const names[] = {"parsers", NULL};
    struct doc_node one = doc_get(self->node, "parser");
    struct doc_node handler = doc_get(self->node, "requestHandler");
    struct doc_node list = doc_get(&handler, "parsers");
    enum status st = doc_is_present(&handler) ? doc_expect_object(&handler, err) : ST_OK;
    if (st == ST_OK && doc_is_present(&handler)) {
        st = doc_reject_unknown(&handler, names, err);
    }
    if (st == ST_OK) {
        st = check_refs(self, &one, PICKER_PLUGIN_PARSER, err);
    }
    return st == ST_OK ? check_refs(self, &list, PICKER_PLUGIN_PARSER, err) : st;
}

/* Adds a note for the parameters of producers, which are ignored. */
static enum status note_producers(const struct picker_config_reader *self, struct error *err) {
    struct doc_node list = doc_get(self->node, "plugins");
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        struct doc_node type = doc_get(&item, "type"), parameters = doc_get(&item, "parameters");
        struct str text = {NULL, 0};
        st = doc_read_str(&type, &text, err);
        const struct picker_plugin_type *known_type =
            st == ST_OK ? picker_plugin_type_find(text) : NULL;
        if (known_type && known_type->kind == PICKER_PLUGIN_PRODUCER &&
            doc_is_present(&parameters)) {
            st = picker_config_add_note(self, &parameters,
                                        "configured by the scorer's own parameters", err);
        }
    }
    return st;
}

/* ---- the document ---------------------------------------------------------------------------- */

enum status pool_config_read_picker_config(struct pool_config_reader *reader,
                                           const struct doc_node *node, struct error *err) {
    struct picker_config_reader self = {.reader = reader, .node = node};
    enum status st = read_gates(&self, err);
    if (st == ST_OK) {
        st = picker_config_read_data_sources(&self, err);
    }
    if (st == ST_OK) {
        st = picker_config_read_saturation_detector(&self, err);
    }
    if (st == ST_OK) {
        st = picker_config_read_flow_control(&self, err);
    }
    if (st == ST_OK) {
        st = note_producers(&self, err);
    }
    if (st == ST_OK) {
        st = read_data(&self, "data", err);
    }
    if (st == ST_OK) {
        st = read_data(&self, "dataLayer", err);
    }
    return st == ST_OK ? read_parsers(&self, err) : st;
}

enum { MOST_PLUGINS = 64, MOST_WEIGHT = 1000000 };

/* For the conformance tests of gateways: enables the protocol's `served_header`. */
static const char VERIFIER[] = "destination-endpoint-served-verifier";

struct declared {
    struct str name;
    const struct plugin *plugin;  /* NULL: it can't be in a profile */
    enum picker_plugin_kind kind; /* if `plugin` is NULL */
    void *parameters;
};

struct profile_reader {
    struct pool_config_reader *reader;
    bool upstream; /* the document is an EndpointPickerConfig */
    struct declared plugins[MOST_PLUGINS];
    size_t n_plugins;
    struct profile *profile;
    struct profile_step *filters, *scorers;
};

/* ---- plugins of a profile -------------------------------------------------------------------- */

/* Suggests the type that was probably meant, or else lists the types of the kind that the name ends
 * with. */
static enum status unknown_type(const struct profile_reader *self, const struct doc_node *node,
                                struct str type, struct error *err) {
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    struct buf names;
    buf_init(&names, self->reader->arena, 0);
    for (size_t i = 0; i < N_PLUGINS; i++) {
        suggest_consider(&suggestion, type, str_of(PLUGINS[i]->type));
        if (str_ends_with(type, str_of(plugin_kind_name(PLUGINS[i]->kind)))) {
            buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", PLUGINS[i]->type);
        }
    }
    for (size_t i = 0; self->upstream && i < N_PICKER_PLUGIN_TYPES; i++) {
        suggest_consider(&suggestion, type, str_of(PICKER_PLUGIN_TYPES[i].type));
    }
    if (!suggestion.best.ptr && names.len > 0) {
        struct str text = buf_str(&names);
        return doc_error(node, err, "no plugin is called \"%.*s\"; there are %.*s", STR_ARG(type),
                         STR_ARG(text));
    }
    return doc_error(node, err, "no plugin is called \"%.*s\"%s", STR_ARG(type),
                     suggestion.best.ptr ? suggest_hint(&suggestion, hint)
                                         : "; their names end in -filter, -scorer or -picker");
}

static const struct declared *find_declared(const struct profile_reader *self, struct str name) {
    for (size_t i = 0; i < self->n_plugins; i++) {
        if (str_eq(self->plugins[i].name, name)) {
            return &self->plugins[i];
        }
    }
    return NULL;
}

static enum status read_plugin(struct profile_reader *self, const struct doc_node *node,
                               struct error *err) {
    static const char *const names[] = {"name", "type", "parameters", NULL};
    struct pool_config_reader *reader = self->reader;
    struct declared *plugin = &self->plugins[self->n_plugins];
    struct doc_node type = doc_get(node, "type"), name = doc_get(node, "name");
    struct doc_node parameters = doc_get(node, "parameters");
    struct str text = {NULL, 0};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &type, &text, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, doc_is_present(&name) ? &name : &type, &plugin->name,
                                   err);
    }
    if (st != ST_OK) {
        return st;
    }
    if (find_declared(self, plugin->name)) {
        return doc_error(node, err, "the plugin \"%.*s\" is there twice", STR_ARG(plugin->name));
    }
    const struct picker_plugin_type *known_type = picker_plugin_type_find(text);
    plugin->plugin = plugin_find(text);
    reader->spec->protocol.send_served_header |= str_is(text, VERIFIER);
    if (!plugin->plugin &&
        !(known_type && (self->upstream || known_type->kind == PICKER_PLUGIN_HANDLER))) {
        return unknown_type(self, &type, text, err);
    }
    plugin->kind = known_type ? known_type->kind : PICKER_PLUGIN_HANDLER;
    self->n_plugins++;
    return plugin->plugin ? plugin_read_parameters(plugin->plugin, &parameters, reader->spec->arena,
                                                   &plugin->parameters, err)
                          : ST_OK;
}

static enum status read_plugins(struct profile_reader *self, const struct doc_node *list,
                                struct error *err) {
    enum status st = ST_OK;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n == 0 || n > MOST_PLUGINS) {
        return doc_error(list, err, "expected 1 to %d plugins, got %zu", MOST_PLUGINS, n);
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(list, &item);) {
        st = read_plugin(self, &item, err);
    }
    return st;
}

/* ---- the profile ----------------------------------------------------------------------------- */

/* Steps are in the order of the file. */
static enum status add_step(struct profile_reader *self, const struct declared *declared,
                            float weight, const struct doc_node *node, struct error *err) {
    struct profile *profile = self->profile;
    struct profile_step step = {declared->plugin, declared->parameters, weight, declared->name};
    if (!step.plugin) {
        return declared->kind != PICKER_PLUGIN_HANDLER
                   ? doc_error(node, err, "\"%.*s\" has no place in a profile",
                               STR_ARG(declared->name))
                   : ST_OK;
    }
    switch (step.plugin->kind) {
    case PLUGIN_FILTER:
        self->filters[profile->n_filters++] = step;
        break;
    case PLUGIN_SCORER:
        self->scorers[profile->n_scorers++] = step;
        break;
    case PLUGIN_PICKER:
        if (profile->picker.plugin) {
            return doc_error(node, err, "expected one picker, got \"%.*s\" and \"%.*s\"",
                             STR_ARG(profile->picker.name), STR_ARG(step.name));
        }
        profile->picker = step;
        break;
    }
    return ST_OK;
}

static enum status read_weight(const struct doc_node *node, const struct declared *declared,
                               float *out, struct error *err) {
    double weight = 1;
    enum status st = doc_read_f64(node, &weight, err);
    if (st == ST_OK && !(weight >= 0 && weight <= MOST_WEIGHT)) {
        st = doc_error(node, err, "expected a weight from 0 to %d", MOST_WEIGHT);
    }
    if (st == ST_OK && node->val && declared->plugin && declared->plugin->kind != PLUGIN_SCORER) {
        st = doc_error(node, err, "\"%.*s\" is a %s; only scorers have weights",
                       STR_ARG(declared->name), plugin_kind_name(declared->plugin->kind));
    }
    *out = (float)weight;
    return st;
}

static enum status read_plugin_ref(struct profile_reader *self, const struct doc_node *node,
                                   struct error *err) {
    static const char *const names[] = {"pluginRef", "weight", NULL};
    struct doc_node ref = doc_get(node, "pluginRef"), weight_node = doc_get(node, "weight");
    struct str name = {NULL, 0};
    float weight;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(self->reader, &ref, &name, err);
    }
    if (st != ST_OK) {
        return st;
    }
    const struct declared *declared = find_declared(self, name);
    if (!declared) {
        struct suggestion suggestion = {0};
        char hint[SUGGEST_HINT_BYTES];
        for (size_t i = 0; i < self->n_plugins; i++) {
            suggest_consider(&suggestion, name, self->plugins[i].name);
        }
        return doc_error(&ref, err, "no plugin above has the name \"%.*s\"%s", STR_ARG(name),
                         suggest_hint(&suggestion, hint));
    }
    st = read_weight(&weight_node, declared, &weight, err);
    return st == ST_OK ? add_step(self, declared, weight, node, err) : st;
}

/* Without `schedulingProfiles` all plugins make up the profile. */
static enum status add_all_plugins(struct profile_reader *self, const struct doc_node *node,
                                   struct error *err) {
    enum status st = ST_OK;
    self->profile->name = STR("default");
    for (size_t i = 0; i < self->n_plugins && st == ST_OK; i++) {
        if (self->plugins[i].plugin) {
            st = add_step(self, &self->plugins[i], 1, node, err);
        }
    }
    return st;
}

static enum status read_plugin_refs(struct profile_reader *self, const struct doc_node *node,
                                    struct error *err) {
    static const char *const names[] = {"name", "plugins", NULL};
    struct doc_node name = doc_get(node, "name"), list = doc_get(node, "plugins");
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(self->reader, &name, &self->profile->name, err);
    }
    if (st == ST_OK && (n == 0 || n > MOST_PLUGINS)) {
        st = doc_error(&list, err, "expected 1 to %d plugins, got %zu", MOST_PLUGINS, n);
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        st = read_plugin_ref(self, &item, err);
    }
    return st;
}

static enum status alloc_profile(struct profile_reader *self, struct error *err) {
    struct arena *arena = self->reader->spec->arena;
    self->profile = arena_calloc(arena, 1, sizeof(*self->profile));
    self->filters = arena_calloc(arena, MOST_PLUGINS, sizeof(*self->filters));
    self->scorers = arena_calloc(arena, MOST_PLUGINS, sizeof(*self->scorers));
    if (!self->profile || !self->filters || !self->scorers) {
        return pool_config_no_memory(self->reader, err);
    }
    self->profile->filters = self->filters;
    self->profile->scorers = self->scorers;
    return ST_OK;
}

enum status pool_config_read_profile(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) {
    struct profile_reader self = {.reader = reader, .upstream = pool_config_is_kube_object(node)};
    struct doc_node plugins = doc_get(node, "plugins");
    struct doc_node profiles = doc_get(node, "schedulingProfiles");
    size_t n = doc_is_present(&profiles) ? doc_count(&profiles) : 0;
    if (reader->spec->profile) {
        return doc_error(node, err, "the file has a profile already");
    }
    if (n > 1) {
        return doc_error(&profiles, err, "expected one profile, got %zu", n);
    }
    enum status st = alloc_profile(&self, err);
    if (st == ST_OK) {
        st = read_plugins(&self, &plugins, err);
    }
    struct doc_node item = {0};
    if (st == ST_OK) {
        st = n > 0 && doc_next(&profiles, &item) ? read_plugin_refs(&self, &item, err)
                                                 : add_all_plugins(&self, node, err);
    }
    if (!self.profile || st != ST_OK) {
        return st;
    }
    if (!self.profile->picker.plugin) {
        self.profile->picker = PROFILE_DEFAULT.picker;
    }
    struct error why = {.status = ST_OK};
    st = profile_collect_needs(self.profile, &why);
    if (st != ST_OK) {
        st = doc_error(node, err, "%s", why.text);
    }
    reader->spec->profile = st == ST_OK ? self.profile : NULL;
    const char *note = st == ST_OK ? profile_load_note(self.profile) : NULL;
    return note ? pool_spec_add_note(reader->spec, STR("profile"), note, err) : st;
}
