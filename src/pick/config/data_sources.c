/* Upstream's plugins of the data layer: `metrics-data-source` and `core-metrics-extractor` fill the
 * plan by which loads are scraped, with rules for each engine, `dcgm-data-source` and
 * `dcgm-extractor` the one of the pages about GPUs. What an extractor sets beside the load are
 * attributes, of which those count that a plugin of the pool's profiles reads. */
#include "core/base/buf.h"
#include "core/base/suggest.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/profile/profile.h"

static const char LOAD_SOURCE[] = "metrics-data-source", LOADS[] = "core-metrics-extractor",
                  GPU_SOURCE[] = "dcgm-data-source", GPUS[] = "dcgm-extractor";

/* Returns: empty if it is no text. */
static struct str text_of(const struct doc_node *node) {
    struct str text = STR("");
    struct error ignored;
    return doc_is_text(node) && doc_read_str(node, &text, &ignored) == ST_OK ? text : STR("");
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const struct pool_request_needs *needs_of(struct doc_reader *reader) {
    const struct profile *profile = pool_config_reader_of(reader)->spec->profile;
    return profile ? &profile->needs : &PROFILE_DEFAULT.needs;
}

/* The rules of a plan set the attributes that the pool's plugins read. */
static void use_attributes(struct doc_reader *reader, struct scrape_plan *plan) {
    plan->attributes = needs_of(reader)->attributes;
    plan->n_attributes = needs_of(reader)->n_attributes;
}

/* Returns: false if no plugin reads the attribute. */
static bool find_attribute(struct doc_reader *reader, struct str name, const char *producer,
                           uint32_t *index) {
    const struct pool_request_needs *needs = needs_of(reader);
    struct attribute_key key = {name, str_of(producer)};
    *index = pool_needs_find_attribute(needs, &key);
    return *index < needs->n_attributes;
}

/* ---- metric specifications ------------------------------------------------------------------- */

enum { MOST_SPEC_BYTES = 1024, MOST_SPEC_LABELS = 16 };

/* Cuts NAME=VALUE or NAME="VALUE" off the list. */
static bool read_spec_label(struct str *rest, struct pool_label *out) {
    struct str value = str_cut(rest, ',');
    out->key = str_trim(str_cut(&value, '='));
    value = str_trim(value.ptr ? value : STR(""));
    bool is_quoted = value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"';
    out->value = is_quoted ? str_make(value.ptr + 1, value.len - 2) : value;
    for (size_t i = 0; i < out->value.len; i++) {
        if (out->value.ptr[i] == '"' || (!is_quoted && (unsigned char)out->value.ptr[i] <= ' ')) {
            return false;
        }
    }
    return scrape_is_series_name(out->key, false) && (is_quoted || value.len > 0);
}

/* Of two labels with one name the last one counts. */
static void add_spec_label(struct pool_label *labels, size_t *n, const struct pool_label *label) {
    size_t i = 0;
    while (i < *n && !str_eq(labels[i].key, label->key)) {
        i++;
    }
    labels[i] = *label;
    *n += i == *n;
}

/* Returns: false if it is none: NAME, or NAME{LABEL=VALUE,LABEL="VALUE"}. */
static bool split_spec(struct str text, struct str *name, struct pool_label *labels, size_t *n) {
    const char *open = memchr(text.ptr, '{', text.len);
    struct str list = {NULL, 0};
    *name = text;
    if (open) {
        const char *end = text.ptr + text.len - 1;
        *name = str_trim(str_make(text.ptr, (size_t)(open - text.ptr)));
        list = str_trim(str_make(open + 1, (size_t)(end - open > 0 ? end - open - 1 : 0)));
        if (*end != '}' || memchr(list.ptr, '}', list.len)) {
            return false;
        }
    }
    bool fits = scrape_is_series_name(*name, true);
    for (*n = 0; fits && list.len > 0 && list.ptr;) {
        struct pool_label label;
        fits = *n < MOST_SPEC_LABELS && read_spec_label(&list, &label);
        if (fits) {
            add_spec_label(labels, n, &label);
            fits = !list.ptr || list.len > 0; /* no comma at the end */
        }
    }
    return fits;
}

/* Reads the series and the labels of a rule. An absent or empty text leaves the series empty. */
static void read_spec(struct doc_reader *reader, const struct doc_node *node,
                      struct scrape_rule *rule) {
    struct str text = {NULL, 0}, name;
    struct pool_label found[MOST_SPEC_LABELS];
    size_t n = 0;
    doc_reader_view(reader, node, &text);
    if (!doc_reader_ok(reader) || text.len == 0) {
        return;
    }
    if (text.len > MOST_SPEC_BYTES || !split_spec(str_trim(text), &name, found, &n)) {
        doc_reader_fail(reader, node,
                        "expected the name of a series, NAME or NAME{LABEL=VALUE, …} with %d "
                        "labels and %d bytes at most, got \"%.*s\"",
                        MOST_SPEC_LABELS, MOST_SPEC_BYTES, (int)(text.len < 200 ? text.len : 200),
                        text.ptr);
        return;
    }
    struct pool_label *labels = doc_reader_calloc(reader, n + 1, sizeof(*labels));
    doc_reader_dup(reader, name, &rule->series);
    for (size_t i = 0; labels && i < n; i++) {
        doc_reader_dup(reader, found[i].key, &labels[i].key);
        doc_reader_dup(reader, found[i].value, &labels[i].value);
    }
    rule->labels = (struct pool_labels){labels, labels ? n : 0};
}

/* ---- engines --------------------------------------------------------------------------------- */

static void add_rule(struct doc_reader *reader, const struct doc_node *node,
                     struct scrape_engine *engine, const struct scrape_rule *rule) {
    if (doc_reader_ok(reader) && rule->series.len > 0 &&
        !scrape_rules_add(&engine->source.rules, rule)) {
        doc_reader_fail(reader, node, "expected at most %d rules", SCRAPE_MAX_RULES);
    }
}

/* As upstream, of several series the first one of the newest counts. */
static void read_metric(struct doc_reader *reader, const struct doc_node *node, void *object,
                        enum scrape_metric into) {
    struct scrape_rule rule = {.into = into,
                               .combine = into == SCRAPE_ADAPTERS ? SCRAPE_NEWEST : SCRAPE_FIRST};
    read_spec(reader, node, &rule);
    add_rule(reader, node, object, &rule);
}

static void read_queued(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_WAITING);
}

static void read_running(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_RUNNING);
}

static void read_kv_usage(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_KV_CACHE);
}

static void read_lora(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_ADAPTERS);
}

static void read_block_size(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_KV_BLOCK_TOKENS);
}

static void read_n_blocks(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    read_metric(reader, node, engine, SCRAPE_KV_BLOCKS);
}

static void read_label_name(struct doc_reader *reader, const struct doc_node *parent,
                            const char *member, const char *usual, struct str *out) {
    struct doc_node node = doc_get(parent, member);
    struct str text = {NULL, 0};
    doc_reader_view(reader, &node, &text);
    if (text.len > 0 && !scrape_is_series_name(text, false)) {
        doc_reader_fail(reader, &node, "expected the name of a label, got \"%.*s\"", STR_ARG(text));
    }
    doc_reader_dup(reader, text.len > 0 ? text : str_of(usual), out);
}

/* The sizes are the values of two labels. */
static void read_cache_info(struct doc_reader *reader, const struct doc_node *node, void *engine) {
    struct scrape_rule rule = {.into = SCRAPE_KV_BLOCK_TOKENS, .combine = SCRAPE_FIRST};
    read_spec(reader, node, &rule);
    read_label_name(reader, node->parent, "cacheBlockSizeLabelName", "block_size",
                    &rule.value_label);
    add_rule(reader, node, engine, &rule);
    rule.into = SCRAPE_KV_BLOCKS;
    read_label_name(reader, node->parent, "cacheNumBlocksLabelName", "num_gpu_blocks",
                    &rule.value_label);
    add_rule(reader, node, engine, &rule);
}

static const struct doc_member CUSTOM[] = {
    {"attributeKey", MEMBER_BY_CALLER}, {"metricSpec", MEMBER_BY_CALLER}, {0}};

static bool has_custom_before(const struct doc_node *list, const struct doc_node *item,
                              struct str name) {
    for (struct doc_node other = {0}; doc_next(list, &other) && other.val != item->val;) {
        struct doc_node key = doc_get(&other, "attributeKey");
        if (str_eq(text_of(&key), name)) {
            return true;
        }
    }
    return false;
}

/* An attribute that no plugin reads is checked, and not scraped. */
static void read_custom(struct doc_reader *reader, const struct doc_node *list, void *engine) {
    for (struct doc_node item = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &item);) {
        struct doc_node key = doc_get(&item, "attributeKey"), spec = doc_get(&item, "metricSpec");
        struct scrape_rule rule = {.into = SCRAPE_ATTRIBUTE, .combine = SCRAPE_FIRST};
        struct str name = {NULL, 0};
        doc_reader_expect_object(reader, &item);
        doc_reader_object(reader, &item, CUSTOM, NULL);
        pool_config_read_name(reader, &key, &name);
        read_spec(reader, &spec, &rule);
        if (doc_reader_ok(reader) && rule.series.len == 0) {
            doc_reader_fail(reader, &spec, "expected the name of a series, got none");
        }
        if (doc_reader_ok(reader) && has_custom_before(list, &item, name)) {
            doc_reader_fail(reader, &key, "the attribute \"%.*s\" is there twice", STR_ARG(name));
        }
        if (find_attribute(reader, name, LOADS, &rule.attribute)) {
            add_rule(reader, &item, engine, &rule);
        }
    }
}

static void read_engine_name(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_name(reader, node, out);
    if (doc_reader_ok(reader) && str_is(*name, "default")) {
        doc_reader_fail(reader, node, "\"default\" is what endpoints without an engine have");
    }
}

#define ENGINE struct scrape_engine
#define SPEC .form = "`NAME` or `NAME{LABEL=VALUE, …}`"
/* A size that is a series of its own has precedence over a label of another one. */
const struct doc_member PICKER_ENGINE[] = {
    {"name", MEMBER_CUSTOM_FIELD(ENGINE, name, struct str, read_engine_name), .form = "a name",
     .help = "as the label of endpoints has it"},
    {"queuedRequestsSpec", MEMBER_CUSTOM(read_queued), SPEC, .help = "requests that wait"},
    {"runningRequestsSpec", MEMBER_CUSTOM(read_running), SPEC, .help = "requests that run"},
    {"kvUsageSpec", MEMBER_CUSTOM(read_kv_usage), SPEC, .help = "the used share of the KV cache"},
    {"loraSpec", MEMBER_CUSTOM(read_lora), SPEC,
     .help = "LoRA adapters, in the labels of the series with the highest value"},
    {"cacheBlockSizeSpec", MEMBER_CUSTOM(read_block_size), SPEC,
     .help = "tokens of a block of the KV cache"},
    {"cacheNumBlocksSpec", MEMBER_CUSTOM(read_n_blocks), SPEC, .help = "blocks of the KV cache"},
    {"cacheInfoSpec", MEMBER_CUSTOM(read_cache_info), SPEC,
     .help = "a series with both numbers as labels"},
    {"cacheBlockSizeLabelName", MEMBER_BY_CALLER, .form = "a name",
     .help = "its label; `block_size`"},
    {"cacheNumBlocksLabelName", MEMBER_BY_CALLER, .form = "a name",
     .help = "its label; `num_gpu_blocks`"},
    {"customMetrics", MEMBER_CUSTOM(read_custom), .form = "a list of `{attributeKey, metricSpec}`",
     .help = "attributes of the endpoint, of which those count that a plugin reads"},
    {0}};
#undef SPEC
#undef ENGINE

/* ---- core-metrics-extractor ------------------------------------------------------------------ */

struct extractor {
    struct str label, default_engine;
    struct scrape_engine *engines;
    size_t n;
};

enum { MOST_ENGINES = 64 };

static void read_engines(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct extractor *extractor = object;
    if (!doc_is_present(list)) {
        return;
    }
    if (doc_count(list) > MOST_ENGINES) {
        doc_reader_fail(reader, list, "expected at most %d engines, got %zu", MOST_ENGINES,
                        doc_count(list));
    }
    extractor->engines = doc_reader_list(reader, list, sizeof(struct scrape_engine), &extractor->n);
    size_t n = 0;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item); n++) {
        struct scrape_engine *engine = &extractor->engines[n];
        engine->source.path = STR("/metrics");
        doc_reader_expect_object(reader, &item);
        doc_reader_object(reader, &item, PICKER_ENGINE, engine);
        for (size_t i = 0; doc_reader_ok(reader) && i < n; i++) {
            if (str_eq(extractor->engines[i].name, engine->name)) {
                doc_reader_fail(reader, &item, "the engine \"%.*s\" is there twice",
                                STR_ARG(engine->name));
            }
        }
    }
}

const struct doc_member PICKER_EXTRACTOR[] = {
    {"engineConfigs", MEMBER_CUSTOM(read_engines), .form = "a list of engines",
     .help = "beside those that are known, or in place of them"},
    {"engineLabelKey", MEMBER_TEXT(struct extractor, label), .form = "the key of a label",
     .help = "of endpoints, with the name of their engine; `llm-d.ai/engine-type`"},
    {"defaultEngine", MEMBER_TEXT(struct extractor, default_engine),
     .form = "`vllm`, `sglang`, `triton`, `triton-tensorrt-llm`, `trtllm-serve` or one of "
             "`engineConfigs`",
     .help = "of endpoints whose engine is unknown; `vllm`"},
    {0}};

static void fail_unknown_engine(struct doc_reader *reader, const struct doc_node *parameters,
                                const struct scrape_plan *plan, struct str name) {
    struct doc_node node = doc_get(parameters, "defaultEngine");
    struct buf names;
    buf_init(&names, reader->arena, 0);
    for (size_t i = 0; i < plan->n_engines; i++) {
        buf_printf(&names, "%s%.*s", i > 0 ? ", " : "", STR_ARG(plan->engines[i].name));
    }
    struct str text = buf_str(&names);
    doc_reader_fail(reader, &node, "no engine is called \"%.*s\"; there are %.*s", STR_ARG(name),
                    STR_ARG(text));
}

static void apply_extractor(struct doc_reader *reader, const struct doc_node *parameters,
                            struct scrape_plan *plan) {
    struct extractor extractor = {.n = 0};
    if (doc_is_present(parameters)) {
        doc_reader_object(reader, parameters, PICKER_EXTRACTOR, &extractor);
    }
    if (!doc_reader_ok(reader)) {
        return;
    }
    struct str name = extractor.default_engine.len > 0 ? extractor.default_engine : STR("vllm");
    scrape_plan_make_engines(plan, extractor.engines, extractor.n, reader->arena);
    const struct scrape_engine *engine = scrape_plan_find_engine(plan, name);
    if (!engine) {
        fail_unknown_engine(reader, parameters, plan, name);
        return;
    }
    plan->engine_label = extractor.label;
    plan->preset = engine->name;
    plan->source = engine->source;
}

/* ---- sources --------------------------------------------------------------------------------- */

/* As upstream, certificates are not verified unless `insecureSkipVerify: false` is set. */
static void read_insecure(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct scrape_plan *plan = object;
    bool trusts = true;
    doc_reader_bool(reader, node, &trusts);
    plan->insecure_skip_verify = plan->https && trusts;
}

/* Files have an effect with https alone. An empty name is none. */
static void read_file(struct doc_reader *reader, const struct doc_node *node,
                      const struct scrape_plan *plan, struct str *out) {
    struct str file = {NULL, 0}, text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (text.len > 0) {
        pool_config_read_optional_name(reader, node, &file);
    }
    if (plan->https && file.ptr) {
        *out = file;
    }
}

static void read_ca_file(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    read_file(reader, node, plan, &((struct scrape_plan *)plan)->ca_file);
}

static void read_cert_file(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    read_file(reader, node, plan, &((struct scrape_plan *)plan)->cert_file);
}

static void read_key_file(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    read_file(reader, node, plan, &((struct scrape_plan *)plan)->key_file);
}

static void check_pair(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct doc_node cert = doc_get(node->parent, "clientCertPath");
    struct doc_node key = doc_get(node->parent, "clientKeyPath");
    const struct scrape_plan *plan = object;
    if (plan->https && (plan->cert_file.len > 0) != (plan->key_file.len > 0)) {
        doc_reader_fail(reader, cert.val ? &cert : &key,
                        "expected clientCertPath and clientKeyPath, got one of them");
    }
}

#define PLAN struct scrape_plan
#define SCHEME                                                                                     \
    {                                                                                              \
        "scheme", MEMBER_CUSTOM_FIELD(PLAN, https, bool, pool_config_read_https),                  \
            .form = "`http` or `https`", .help = "`metrics: {scheme}`"                             \
    }
#define PAGE_PATH                                                                                  \
    {                                                                                              \
        "path", MEMBER_CUSTOM_FIELD(PLAN, source.path, struct str, pool_config_read_page_path),    \
            .form = "a path of up to 1024 bytes", .help = "`metrics: {path}`"                      \
    }
#define INTERVAL                                                                                   \
    {                                                                                              \
        "interval", MEMBER_CUSTOM_NUMBER(PLAN, interval_ns, doc_reader_go_duration),               \
            .min = 50 * CONFIG_MS, .max = CONFIG_HOUR, .text = "expected 50ms or more",            \
            .form = "a time:", .unit = DOC_UNIT_NS, .help = "`metrics: {interval}`"                \
    }
#define INSECURE                                                                                   \
    {                                                                                              \
        "insecureSkipVerify", MEMBER_CUSTOM(read_insecure),                                        \
            .form = "`true` or `false`",                                                           \
            .help = "`metrics: {insecure_skip_verify}`; true where it is left out"                 \
    }

const struct doc_member PICKER_SOURCE[] = {
    SCHEME,
    PAGE_PATH,
    {"port", MEMBER_WHOLE(PLAN, source.port, 1, UINT16_MAX), .help = "`metrics: {port}`"},
    INTERVAL,
    INSECURE,
    {"caCertPath", MEMBER_CUSTOM(read_ca_file), .form = "a file", .help = "`metrics: {ca_file}`"},
    {"clientCertPath", MEMBER_CUSTOM(read_cert_file), .form = "a file",
     .help = "with https: the client certificate"},
    {"clientKeyPath", MEMBER_CUSTOM(read_key_file), .check = check_pair, .form = "a file",
     .help = "and its key"},
    {0}};

const struct doc_member PICKER_GPU_SOURCE[] = {
    SCHEME,
    PAGE_PATH,
    {"port", MEMBER_WHOLE(PLAN, source.port, 1, UINT16_MAX), .help = "of DCGM exporters; 9400"},
    INTERVAL,
    INSECURE,
    {"useNodeAddress", MEMBER_BOOL(PLAN, at_node),
     .help = "the page is at the host of the pod, where a cluster says which that is"},
    {0}};
#undef INSECURE
#undef INTERVAL
#undef PAGE_PATH
#undef SCHEME
#undef PLAN

/* A page that is given is that of all engines. Without a port it is at the endpoint's own, as
 * upstream: a page of Triton's that upstream reads is there, and not at Triton's port for it. */
static void apply_source(struct doc_reader *reader, const struct doc_node *parameters,
                         struct scrape_plan *plan) {
    if (!doc_is_present(parameters)) {
        return;
    }
    struct doc_node path = doc_get(parameters, "path");
    plan->source.port = 0;
    doc_reader_object(reader, parameters, PICKER_SOURCE, plan);
    for (size_t i = 0; i < plan->n_engines; i++) {
        struct scrape_source *source = &plan->engines[i].source;
        source->path = doc_is_present(&path) ? plan->source.path : source->path;
        source->port = plan->source.port;
    }
}

/* ---- which belong together ------------------------------------------------------------------- */

/* Returns: empty if the reference is to no plugin of the data layer. One that is not declared has
 * its defaults. */
static const char *type_of_ref(struct doc_reader *reader, const struct doc_node *item,
                               const struct declared_plugin **declared) {
    struct doc_node ref = doc_get(item, "pluginRef");
    struct str name = text_of(&ref);
    *declared = plugin_list_find(pool_config_reader_of(reader)->plugins, name);
    const struct picker_plugin_type *type =
        *declared ? (*declared)->type : picker_plugin_type_find(name);
    return type && type->kind == PICKER_PLUGIN_DATA ? type->type : "";
}

/* Returns: false, and adds a note, if no plugin reads what the rule sets. */
static bool make_gpu_rule(struct doc_reader *reader, const struct doc_node *item,
                          struct scrape_rule *out) {
    *out = (struct scrape_rule){.into = SCRAPE_ATTRIBUTE,
                                .combine = SCRAPE_MAX,
                                .series = STR("DCGM_FI_DEV_GPU_UTIL"),
                                .of_pod = true,
                                .divisor = 100};
    bool is_read = find_attribute(reader, STR("GPUUtilization"), GPUS, &out->attribute);
    if (!is_read) {
        pool_config_add_note(reader, item, "no plugin reads GPUUtilization of dcgm-extractor");
    }
    return is_read;
}

/* The pages of DCGM exporters are scraped if a plugin reads what they say. */
static void apply_gpu_source(struct doc_reader *reader, const struct doc_node *item,
                             const struct declared_plugin *declared) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct scrape_rule rule;
    struct scrape_plan *plan = doc_reader_calloc(reader, 1, sizeof(*plan));
    if (!plan) {
        return;
    }
    scrape_plan_init(plan);
    use_attributes(reader, plan);
    plan->source.port = 9400;
    if (declared && doc_is_present(&declared->parameters)) {
        doc_reader_object(reader, &declared->parameters, PICKER_GPU_SOURCE, plan);
    }
    if (!make_gpu_rule(reader, item, &rule)) {
        return;
    }
    if (pool->spec->scrape_gpus) {
        doc_reader_fail(reader, item, "expected one source of dcgm-extractor, got two");
    } else if (doc_reader_ok(reader)) {
        (void)scrape_rules_add(&plan->source.rules, &rule);
        pool->spec->scrape_gpus = plan;
    }
}

/* A page with the loads may have the GPUs, too. */
static void add_gpu_rule(struct doc_reader *reader, const struct doc_node *item) {
    struct scrape_plan *plan = pool_config_reader_of(reader)->scrape;
    struct scrape_rule rule;
    if (!plan) {
        return; /* an error before, or a reference that is reported */
    }
    use_attributes(reader, plan);
    if (!make_gpu_rule(reader, item, &rule)) {
        return;
    }
    bool fits = scrape_rules_add(&plan->source.rules, &rule);
    for (size_t i = 0; i < plan->n_engines && fits; i++) {
        fits = scrape_rules_add(&plan->engines[i].source.rules, &rule);
    }
    if (!fits) {
        doc_reader_fail(reader, item, "expected at most %d rules", SCRAPE_MAX_RULES);
    }
}

static void apply_extractor_ref(struct doc_reader *reader, const struct doc_node *source,
                                const struct doc_node *item) {
    const struct declared_plugin *declared, *unused;
    const char *source_type = type_of_ref(reader, source, &declared);
    const char *type = type_of_ref(reader, item, &unused);
    bool is_gpu_source = strcmp(source_type, GPU_SOURCE) == 0;
    if (is_gpu_source && strcmp(type, LOADS) == 0) {
        doc_reader_fail(reader, item,
                        "not supported: loads are scraped from the pages of a metrics-data-source");
    } else if (strcmp(type, GPUS) == 0 && is_gpu_source) {
        apply_gpu_source(reader, source, declared);
    } else if (strcmp(type, GPUS) == 0) {
        add_gpu_rule(reader, item);
    } else if (type[0] != '\0' && strcmp(type, LOADS) != 0) {
        doc_reader_fail(reader, item, "\"%s\" is no extractor", type);
    }
}

/* The references are checked elsewhere. */
static void apply_sources(struct doc_reader *reader, const struct doc_node *sources) {
    for (struct doc_node source = {0};
         doc_is_present(sources) && doc_reader_next(reader, sources, &source);) {
        struct doc_node extractors = doc_get(&source, "extractors");
        for (struct doc_node item = {0};
             doc_is_present(&extractors) && doc_reader_next(reader, &extractors, &item);) {
            apply_extractor_ref(reader, &source, &item);
        }
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Without a plan of ours it begins as vLLM's preset, as upstream. */
static void apply_plugin(struct doc_reader *reader, const struct doc_node *parameters,
                         void (*apply)(struct doc_reader *reader, const struct doc_node *parameters,
                                       struct scrape_plan *plan)) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    const struct scrape_plan *before = pool->scrape;
    if (pool->metrics_given) {
        if (doc_is_present(parameters)) {
            pool_config_add_note(reader, parameters, "overridden by `metrics` or by flags");
        }
        return;
    }
    struct scrape_plan *plan = pool->scrape ? pool->scrape : pool_config_new_scrape_plan(reader);
    if (plan && plan != before) {
        scrape_plan_use_preset(plan, SCRAPE_PRESET_VLLM);
        scrape_plan_make_engines(plan, NULL, 0, reader->arena);
        use_attributes(reader, plan);
    }
    if (plan) {
        apply(reader, parameters, plan);
    }
}

static void apply_plugins_of_type(struct doc_reader *reader, const char *type,
                                  void (*apply)(struct doc_reader *reader,
                                                const struct doc_node *parameters,
                                                struct scrape_plan *plan)) {
    const struct plugin_list *plugins = pool_config_reader_of(reader)->plugins;
    bool found = false;
    for (size_t i = 0; i < plugins->n; i++) {
        const struct declared_plugin *plugin = &plugins->items[i];
        if (plugin->type && strcmp(plugin->type->type, type) == 0) {
            enum status before = doc_reader_begin_part(reader);
            if (found) {
                doc_reader_fail(reader, &plugin->item, "expected one \"%s\", got two", type);
            }
            found = true;
            apply_plugin(reader, &plugin->parameters, apply);
            doc_reader_end_part(reader, before);
        }
    }
}

/* Attributes that no rule sets: what reads them finds no value. */
static void note_unset(struct doc_reader *reader) {
    const struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    const struct pool_request_needs *needs = needs_of(reader);
    uint32_t set = 0;
    for (size_t k = 0; spec->scrape && k <= spec->scrape->n_engines; k++) {
        const struct scrape_source *source =
            k == 0 ? &spec->scrape->source : &spec->scrape->engines[k - 1].source;
        for (size_t i = 0; i < source->rules.n; i++) {
            const struct scrape_rule *rule = &source->rules.items[i];
            set |= rule->into == SCRAPE_ATTRIBUTE ? UINT32_C(1) << rule->attribute : 0;
        }
    }
    if (spec->scrape_gpus) {
        set |= UINT32_C(1) << spec->scrape_gpus->source.rules.items[0].attribute;
    }
    for (uint32_t i = 0; i < needs->n_attributes; i++) {
        if (!(set >> i & 1)) {
            const struct attribute_key *key = &needs->attributes[i];
            struct str setting = arena_printf(reader->arena, "attribute %.*s of \"%.*s\"",
                                              STR_ARG(key->name), STR_ARG(key->producer));
            pool_spec_add_note(pool_config_reader_of(reader)->spec, setting,
                               "nothing sets it: every endpoint lacks it");
        }
    }
}

/* Sources are read after extractors: a source may change the path and port of the engines. */
void picker_read_data_sources(struct doc_reader *reader, const struct doc_node *sources) {
    apply_plugins_of_type(reader, LOADS, apply_extractor);
    apply_plugins_of_type(reader, LOAD_SOURCE, apply_source);
    apply_sources(reader, sources);
    if (doc_reader_ok(reader)) {
        note_unset(reader);
    }
}
