/* How the loads of endpoints are scraped: our section `metrics`, and upstream's plugins
 * `metrics-data-source` and `core-metrics-extractor`. Both fill a struct scrape_plan. */
#include "pick/config/dns_plan.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"

/* ---- rules ----------------------------------------------------------------------------------- */

/* Prometheus, "Data model": the name of a series may contain a colon, that of a label may not. */
static bool is_series_name(struct str name, bool colon) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i], folded = (char)(c | 0x20);
        bool letter = (folded >= 'a' && folded <= 'z') || c == '_' || (colon && c == ':');
        if (!letter && (i == 0 || c < '0' || c > '9')) {
            return false;
        }
    }
    return name.len > 0;
}

static void read_series(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_name(reader, node, out);
    if (!is_series_name(*name, true)) {
        doc_reader_fail(reader, node,
                        "expected a name of letters, digits and _ and :, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void read_value_label(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !is_series_name(*name, false)) {
        doc_reader_fail(reader, node, "expected a name of letters, digits and _, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void read_factor(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_f64(reader, node, out);
}

static const struct doc_member RULE[] = {
    {"series", MEMBER_CUSTOM_FIELD(struct scrape_rule, series, struct str, read_series)},
    {"labels",
     MEMBER_CUSTOM_FIELD(struct scrape_rule, labels, struct pool_labels, pool_config_read_labels)},
    {"combine", MEMBER_WORD(struct scrape_rule, combine, SCRAPE_COMBINE_NAMES)},
    {"value_label",
     MEMBER_CUSTOM_FIELD(struct scrape_rule, value_label, struct str, read_value_label)},
    {"rate", MEMBER_BOOL(struct scrape_rule, rate)},
    {"factor", MEMBER_CUSTOM_FIELD(struct scrape_rule, factor, double, read_factor)},
    {0}};

static void check_rule(struct doc_reader *reader, const struct doc_node *node,
                       const struct scrape_rule *rule) {
    bool plain = rule->combine == SCRAPE_NEWEST && !rule->rate && rule->value_label.len == 0;
    if (rule->into == SCRAPE_ADAPTERS && (!plain || rule->factor != 0)) {
        doc_reader_fail(reader, node,
                        "expected only `series` and `labels`: adapters are the labels of the "
                        "newest series");
    }
    if (rule->rate && rule->combine == SCRAPE_NEWEST) {
        doc_reader_fail(reader, node, "expected `combine: sum` or `max` beside `rate`");
    }
}

/* A rule is the name of a series, or an object. */
static void read_rule(struct doc_reader *reader, const struct doc_node *node,
                      struct scrape_rules *rules, enum scrape_metric into) {
    static const enum scrape_combine usual[N_SCRAPE_METRICS] = {
        [SCRAPE_KV_CACHE] = SCRAPE_MAX,
        [SCRAPE_KV_BLOCK_TOKENS] = SCRAPE_MAX,
        [SCRAPE_ADAPTERS] = SCRAPE_NEWEST,
    };
    struct scrape_rule rule = {.into = into, .combine = usual[into]};
    if (doc_is_text(node)) {
        read_series(reader, node, &rule.series);
    } else {
        doc_reader_object(reader, node, RULE, &rule);
        check_rule(reader, node, &rule);
    }
    if (doc_reader_ok(reader) && !scrape_rules_replace(rules, &rule)) {
        doc_reader_fail(reader, node, "expected at most %d rules", SCRAPE_MAX_RULES);
    }
}

static void read_rules(struct doc_reader *reader, const struct doc_node *node, void *out) {
    if (!doc_is_present(node)) {
        return;
    }
    doc_reader_expect_object(reader, node);
    if (doc_reader_ok(reader)) {
        reader->status = doc_reject_unknown(node, SCRAPE_METRIC_NAMES, reader->err);
    }
    for (unsigned i = 0; doc_reader_ok(reader) && i < N_SCRAPE_METRICS; i++) {
        struct doc_node rule = doc_get(node, SCRAPE_METRIC_NAMES[i]);
        if (rule.val) {
            read_rule(reader, &rule, out, (enum scrape_metric)i);
        }
    }
}

/* ---- source and endpoints -------------------------------------------------------------------- */

enum { PRESET_LIST_BYTES = 200 };

static void use_preset(struct scrape_plan *plan, unsigned preset) {
    plan->preset = str_of(SCRAPE_PRESET_NAMES[preset]);
    scrape_source_init(&plan->source, &SCRAPE_PRESETS[preset]);
}

static void read_preset(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    unsigned preset = N_SCRAPE_PRESETS;
    doc_reader_word(reader, node, SCRAPE_PRESET_NAMES, NULL, &preset);
    if (preset < N_SCRAPE_PRESETS) {
        use_preset(plan, preset);
    }
}

static void read_https(struct doc_reader *reader, const struct doc_node *node, void *out) {
    static const char *const schemes[] = {"http", "https", NULL};
    unsigned word = 0;
    doc_reader_word(reader, node, schemes, NULL, &word);
    *(bool *)out = word == 1;
}

static void check_tls(struct doc_reader *reader, const struct doc_node *ca, void *object) {
    struct doc_node skip = doc_get(ca->parent, "insecure_skip_verify");
    const struct scrape_plan *plan = object;
    if (!plan->https && (ca->val || plan->insecure_skip_verify)) {
        doc_reader_fail(reader, ca->val ? ca : &skip, "expected `scheme: https` with it");
    }
}

static void check_source(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct scrape_plan *plan = object;
    if (plan->source.rules.n == 0 && !doc_get(node->parent, "preset_label").val) {
        char presets[PRESET_LIST_BYTES];
        doc_words_print(presets, sizeof(presets), SCRAPE_PRESET_NAMES, " or ");
        doc_reader_fail(reader, node->parent, "expected `preset` (%s) or `rules`", presets);
    }
}

static void check_endpoint(struct doc_reader *reader, const struct doc_node *node,
                           const struct scrape_plan *plan, const struct pool_spec_endpoint *wanted,
                           const char *text) {
    struct scrape_request place;
    if (!scrape_plan_resolve(plan, wanted, &place)) {
        char presets[PRESET_LIST_BYTES];
        doc_words_print(presets, sizeof(presets), SCRAPE_PRESET_NAMES, ", ");
        doc_reader_fail(reader, node,
                        "the endpoint %s can't be scraped: expected a label with a preset's "
                        "name (%s) or `preset` here, and a port from 1 to 65535",
                        text, presets);
    }
}

/* Rejects labels of endpoints that name no preset or no port. */
static void check_endpoints(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct scrape_plan *plan = object;
    if (doc_get(node->parent, "preset_label").val) {
        scrape_plan_make_presets(plan, reader->arena);
    }
    for (size_t i = 0; doc_reader_ok(reader) && i < spec->n_endpoints; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        endpoint_address_print(&spec->endpoints[i].address, text);
        check_endpoint(reader, node->parent, plan, &spec->endpoints[i], text);
    }
    for (size_t i = 0; spec->dns && doc_reader_ok(reader) && i < spec->dns->n_names; i++) {
        const struct dns_plan_name *name = &spec->dns->names[i];
        struct pool_spec_endpoint wanted = {.labels = name->labels, .address.port = 1};
        check_endpoint(reader, node->parent, plan, &wanted, name->name.ptr);
    }
}

/* ---- our section ----------------------------------------------------------------------------- */

#define PLAN struct scrape_plan
const struct doc_member POOL_CONFIG_METRICS[] = {
    {"preset", MEMBER_CUSTOM(read_preset), .form = "the name of one",
     .help = "rules, path and port for a kind of model server"},
    {"rules", MEMBER_CUSTOM_FIELD(PLAN, source.rules, struct scrape_rules, read_rules),
     .form = "an object of rules", .help = "in place of the preset's"},
    {"path", MEMBER_CUSTOM_FIELD(PLAN, source.path, struct str, pool_config_read_page_path),
     .form = "a path of up to 1024 bytes", .help = "of the page; the preset's, or `/metrics`"},
    {"port", MEMBER_WHOLE(PLAN, source.port, 1, UINT16_MAX),
     .help = "of the page; the preset's, or the endpoint's own"},
    {"scheme", MEMBER_CUSTOM_FIELD(PLAN, https, bool, read_https), .form = "`http` or `https`",
     .help = "of the page; `http`"},
    {"insecure_skip_verify", MEMBER_BOOL(PLAN, insecure_skip_verify),
     .help = "with https: certificates are not verified"},
    {"ca_file", MEMBER_CUSTOM_FIELD(PLAN, ca_file, struct str, pool_config_read_optional_name),
     .check = check_tls, .form = "a file", .help = "with https: the CAs to trust; the system's"},
    {"token_file",
     MEMBER_CUSTOM_FIELD(PLAN, token_file, struct str, pool_config_read_optional_name),
     .form = "a file", .help = "with the token that is sent"},
    {"interval", MEMBER_DURATION(PLAN, interval_ns, 50 * CONFIG_MS, CONFIG_HOUR),
     .help = "time between two scrapes of an endpoint"},
    {"timeout", MEMBER_DURATION(PLAN, timeout_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "a scrape that takes longer has failed"},
    {"max_age", MEMBER_DURATION(PLAN, max_age_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "how long a load counts"},
    {"most_per_second", MEMBER_WHOLE(PLAN, most_per_second, 1, 100000),
     .help = "scrapes of all endpoints and pools together"},
    {"max_page_bytes", MEMBER_WHOLE(PLAN, max_page_bytes, 1, 64 << 20), .check = check_source,
     .help = "a larger page is not used"},
    {"token_file_label",
     MEMBER_CUSTOM_FIELD(PLAN, token_file_label, struct str, pool_config_read_optional_name),
     .form = "a label", .help = "of an endpoint, with its token file"},
    {"preset_label",
     MEMBER_CUSTOM_FIELD(PLAN, preset_label, struct str, pool_config_read_optional_name),
     .form = "a label", .help = "of an endpoint, with its preset"},
    {"port_label",
     MEMBER_CUSTOM_FIELD(PLAN, port_label, struct str, pool_config_read_optional_name),
     .check = check_endpoints, .form = "a label", .help = "of an endpoint, with its port"},
    {0}};
#undef PLAN

/* Sets the spec's plan to a new one. Returns: NULL after an error. */
static struct scrape_plan *new_plan(struct doc_reader *reader) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct scrape_plan *plan = doc_reader_calloc(reader, 1, sizeof(*plan));
    if (plan) {
        scrape_plan_init(plan);
        pool->spec->scrape = pool->scrape = plan;
    }
    return plan;
}

void pool_config_read_metrics(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    struct scrape_plan *plan = doc_is_present(node) ? new_plan(reader) : NULL;
    (void)spec;
    if (plan) {
        pool_config_reader_of(reader)->metrics_given = true;
        doc_reader_object(reader, node, POOL_CONFIG_METRICS, plan);
    }
}

/* ---- upstream's plugins ---------------------------------------------------------------------- */

static const char *const ENGINE_LABELS[] = {
    "llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type", NULL}; /* both are read */

static void read_engine(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    static const char *const engines[] = {"vllm",         "sglang", "triton", "triton-tensorrt-llm",
                                          "trtllm-serve", NULL};
    static const enum scrape_preset_index presets[] = {
        SCRAPE_PRESET_VLLM, SCRAPE_PRESET_SGLANG, SCRAPE_PRESET_TRITON, SCRAPE_PRESET_TENSORRT_LLM,
        SCRAPE_PRESET_TRTLLM_SERVE};
    unsigned word = 0;
    doc_reader_word(reader, node, engines, NULL, &word);
    if (doc_reader_ok(reader) && node->val) {
        use_preset(plan, presets[word]);
    }
}

const struct doc_member PICKER_EXTRACTOR[] = {
    {"engineConfigs",
     MEMBER_REFUSED("not supported: use `metrics: {rules: …}` in a document of our own format")},
    {"engineLabelKey", MEMBER_UNUSED_WORD(ENGINE_LABELS), .help = "nothing: both are read"},
    {"defaultEngine", MEMBER_CUSTOM(read_engine),
     .form = "`vllm`, `sglang`, `triton`, `triton-tensorrt-llm` or `trtllm-serve`",
     .help = "`metrics: {preset}`; `vllm`"},
    {0}};

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

#define PLAN struct scrape_plan
const struct doc_member PICKER_SOURCE[] = {
    {"scheme", MEMBER_CUSTOM_FIELD(PLAN, https, bool, read_https), .form = "`http` or `https`",
     .help = "`metrics: {scheme}`"},
    {"path", MEMBER_CUSTOM_FIELD(PLAN, source.path, struct str, pool_config_read_page_path),
     .form = "a path of up to 1024 bytes", .help = "`metrics: {path}`"},
    {"port", MEMBER_WHOLE(PLAN, source.port, 1, UINT16_MAX), .help = "`metrics: {port}`"},
    {"interval", MEMBER_CUSTOM_NUMBER(PLAN, interval_ns, pool_config_read_go_duration),
     .min = 50 * CONFIG_MS, .max = CONFIG_HOUR, .text = "expected 50ms or more",
     .form = "a time:", .unit = DOC_UNIT_NS, .help = "`metrics: {interval}`"},
    {"insecureSkipVerify", MEMBER_CUSTOM(read_insecure), .form = "`true` or `false`",
     .help = "`metrics: {insecure_skip_verify}`; true where it is left out"},
    {"caCertPath", MEMBER_CUSTOM(read_ca_file), .form = "a file", .help = "`metrics: {ca_file}`"},
    {0}};
#undef PLAN

/* Without a plan of ours it begins as vLLM's preset, as upstream. */
static void read_plugin(struct doc_reader *reader, const struct doc_node *parameters,
                        const struct doc_member *members) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    const struct scrape_plan *before = pool->scrape;
    bool given = doc_is_present(parameters);
    if (pool->metrics_given) {
        if (given) {
            pool_config_add_note(reader, parameters, "overridden by `metrics` or by flags");
        }
        return;
    }
    struct scrape_plan *plan = pool->scrape ? pool->scrape : new_plan(reader);
    if (plan && plan != before) {
        use_preset(plan, SCRAPE_PRESET_VLLM);
    }
    if (plan && given) {
        doc_reader_object(reader, parameters, members, plan);
    }
}

static void read_plugins_of_type(struct doc_reader *reader, const char *type,
                                 const struct doc_member *members) {
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && strcmp(plugin->type->type, type) == 0) {
            read_plugin(reader, &plugin->parameters, members);
        }
    }
}

/* Sources are read after extractors: a source may change the path and port of the extractor's
 * preset. */
void picker_read_data_sources(struct doc_reader *reader) {
    read_plugins_of_type(reader, "core-metrics-extractor", PICKER_EXTRACTOR);
    read_plugins_of_type(reader, "metrics-data-source", PICKER_SOURCE);
}
