/* The presets of scraping rules, and lists of rules. A page may have several series of one gauge,
 * one for each model or engine: numbers of requests are summed, of caches the fullest one is
 * used. */
#include "pick/config/scrape_rules.h"

#include <inttypes.h>

#include "core/base/hash.h"
#include "core/base/num.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
enum { INTERVAL_MS = 200, TIMEOUT_S = 1, MAX_AGE_S = 2, MOST_PER_SECOND = 500 };
enum { MAX_PAGE_BYTES = 4 << 20, TRITON_METRICS_PORT = 8002 };

/* ---- presets --------------------------------------------------------------------------------- */

#define LABEL(name, text)                                                                          \
    { &(const struct pool_label){{(name), sizeof(name) - 1}, {(text), sizeof(text) - 1}}, 1 }
#define NAMED(name)                                                                                \
    { (name), sizeof(name) - 1 }

static const struct scrape_rule SLUICE[] = {
    {.into = SCRAPE_WAITING, .series = NAMED("sluice_queued_requests")},
    {.into = SCRAPE_RUNNING, .series = NAMED("sluice_running_requests")},
};

/* No rule for running requests: nv_inference_exec_count is a counter. */
static const struct scrape_rule TRITON[] = {
    {.into = SCRAPE_WAITING, .series = NAMED("nv_inference_pending_request_count")},
};

static const struct scrape_rule VLLM[] = {
    {.into = SCRAPE_WAITING, .series = NAMED("vllm:num_requests_waiting")},
    {.into = SCRAPE_RUNNING, .series = NAMED("vllm:num_requests_running")},
    {.into = SCRAPE_KV_CACHE, .combine = SCRAPE_MAX, .series = NAMED("vllm:kv_cache_usage_perc")},
    /* its name in older versions */
    {.into = SCRAPE_KV_CACHE, .combine = SCRAPE_MAX, .series = NAMED("vllm:gpu_cache_usage_perc")},
    {.into = SCRAPE_KV_BLOCK_TOKENS,
     .combine = SCRAPE_MAX,
     .series = NAMED("vllm:cache_config_info"),
     .value_label = NAMED("block_size")},
    {.into = SCRAPE_KV_BLOCKS,
     .series = NAMED("vllm:cache_config_info"),
     .value_label = NAMED("num_gpu_blocks")},
    {.into = SCRAPE_ADAPTERS, .combine = SCRAPE_NEWEST, .series = NAMED("vllm:lora_requests_info")},
};

static const struct scrape_rule SGLANG[] = {
    {.into = SCRAPE_WAITING, .series = NAMED("sglang:num_queue_reqs")},
    {.into = SCRAPE_RUNNING, .series = NAMED("sglang:num_running_reqs")},
    {.into = SCRAPE_KV_CACHE, .combine = SCRAPE_MAX, .series = NAMED("sglang:token_usage")},
    {.into = SCRAPE_KV_BLOCK_TOKENS,
     .combine = SCRAPE_MAX,
     .series = NAMED("sglang:cache_config_info"),
     .value_label = NAMED("page_size")},
    {.into = SCRAPE_KV_BLOCKS,
     .series = NAMED("sglang:cache_config_info"),
     .value_label = NAMED("num_pages")},
};

static const struct scrape_rule TENSORRT_LLM[] = {
    {.into = SCRAPE_WAITING,
     .series = NAMED("nv_trt_llm_request_metrics"),
     .labels = LABEL("request_type", "waiting")},
    {.into = SCRAPE_RUNNING,
     .series = NAMED("nv_trt_llm_request_metrics"),
     .labels = LABEL("request_type", "scheduled")},
    {.into = SCRAPE_KV_CACHE,
     .combine = SCRAPE_MAX,
     .series = NAMED("nv_trt_llm_kv_cache_block_metrics"),
     .labels = LABEL("kv_cache_block_type", "fraction")},
    {.into = SCRAPE_KV_BLOCK_TOKENS,
     .combine = SCRAPE_MAX,
     .series = NAMED("nv_trt_llm_kv_cache_block_metrics"),
     .labels = LABEL("kv_cache_block_type", "tokens_per")},
    {.into = SCRAPE_KV_BLOCKS,
     .series = NAMED("nv_trt_llm_kv_cache_block_metrics"),
     .labels = LABEL("kv_cache_block_type", "max")},
};

static const struct scrape_rule TRTLLM_SERVE[] = {
    {.into = SCRAPE_WAITING, .series = NAMED("trtllm_num_requests_waiting")},
    {.into = SCRAPE_RUNNING, .series = NAMED("trtllm_num_requests_running")},
    {.into = SCRAPE_KV_CACHE,
     .combine = SCRAPE_MAX,
     .series = NAMED("trtllm_kv_cache_utilization")},
    {.into = SCRAPE_KV_BLOCK_TOKENS,
     .combine = SCRAPE_MAX,
     .series = NAMED("trtllm_kv_cache_tokens_per_block")},
    {.into = SCRAPE_KV_BLOCKS, .series = NAMED("trtllm_kv_cache_max_blocks")},
};

#define RULES(table) (table), sizeof(table) / sizeof((table)[0])
const struct scrape_preset SCRAPE_PRESETS[N_SCRAPE_PRESETS] = {
    [SCRAPE_PRESET_SLUICE] = {"/metrics", 0, RULES(SLUICE)},
    [SCRAPE_PRESET_TRITON] = {"/metrics", TRITON_METRICS_PORT, RULES(TRITON)},
    [SCRAPE_PRESET_VLLM] = {"/metrics", 0, RULES(VLLM)},
    [SCRAPE_PRESET_SGLANG] = {"/metrics", 0, RULES(SGLANG)},
    [SCRAPE_PRESET_TENSORRT_LLM] = {"/metrics", TRITON_METRICS_PORT, RULES(TENSORRT_LLM)},
    [SCRAPE_PRESET_TRTLLM_SERVE] = {"/prometheus/metrics", 0, RULES(TRTLLM_SERVE)},
};

const char *const SCRAPE_PRESET_NAMES[N_SCRAPE_PRESETS + 1] = {
    [SCRAPE_PRESET_SLUICE] = "sluice",
    [SCRAPE_PRESET_TRITON] = "triton",
    [SCRAPE_PRESET_VLLM] = "vllm",
    [SCRAPE_PRESET_SGLANG] = "sglang",
    [SCRAPE_PRESET_TENSORRT_LLM] = "tensorrt-llm",
    [SCRAPE_PRESET_TRTLLM_SERVE] = "trtllm-serve",
};
const char *const SCRAPE_METRIC_NAMES[N_SCRAPE_METRICS + 1] = {
    "waiting", "running", "kv_cache", "kv_block_tokens", "kv_blocks", "adapters", NULL};
const char *const SCRAPE_COMBINE_NAMES[] = {"sum", "max", "newest", "first", NULL};

/* Upstream's names for model servers, and those of presets that it has none for. */
static const struct {
    const char *name;
    enum scrape_preset_index preset;
} ENGINES[] = {
    {"vllm", SCRAPE_PRESET_VLLM},
    {"sglang", SCRAPE_PRESET_SGLANG},
    {"trtllm-serve", SCRAPE_PRESET_TRTLLM_SERVE},
    {"triton-tensorrt-llm", SCRAPE_PRESET_TENSORRT_LLM},
    {"tensorrt-llm", SCRAPE_PRESET_TENSORRT_LLM},
    {"triton", SCRAPE_PRESET_TRITON},
    {"sluice", SCRAPE_PRESET_SLUICE},
};
enum { N_ENGINES = sizeof(ENGINES) / sizeof(ENGINES[0]) };

/* ---- rules ----------------------------------------------------------------------------------- */

bool scrape_is_series_name(struct str name, bool colon) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i], folded = (char)(c | 0x20);
        bool letter = (folded >= 'a' && folded <= 'z') || c == '_' || (colon && c == ':');
        if (!letter && (i == 0 || c < '0' || c > '9')) {
            return false;
        }
    }
    return name.len > 0;
}

static void add_series(struct scrape_rules *rules, struct str name) {
    for (size_t i = 0; i < rules->n_series; i++) {
        if (str_eq(rules->series[i], name)) {
            return;
        }
    }
    rules->series[rules->n_series++] = name;
}

bool scrape_rules_add(struct scrape_rules *rules, const struct scrape_rule *rule) {
    if (rules->n == SCRAPE_MAX_RULES) {
        return false;
    }
    rules->items[rules->n++] = *rule;
    add_series(rules, rule->series);
    return true;
}

void scrape_source_init(struct scrape_source *source, const struct scrape_preset *preset) {
    *source = (struct scrape_source){.path = str_of(preset->path), .port = preset->port};
    for (size_t i = 0; i < preset->n_rules; i++) {
        scrape_rules_add(&source->rules, &preset->rules[i]);
    }
}

bool scrape_rules_replace(struct scrape_rules *rules, const struct scrape_rule *rule) {
    struct scrape_rules kept = {.n = 0};
    for (size_t i = 0; i < rules->n; i++) {
        if (rules->items[i].into != rule->into) {
            scrape_rules_add(&kept, &rules->items[i]);
        }
    }
    *rules = kept;
    return scrape_rules_add(rules, rule);
}

void scrape_plan_init(struct scrape_plan *plan) {
    *plan = (struct scrape_plan){
        .source.path = STR("/metrics"),
        .interval_ns = INTERVAL_MS * NS_PER_MS,
        .timeout_ns = TIMEOUT_S * NS_PER_S,
        .max_age_ns = MAX_AGE_S * NS_PER_S,
        .most_per_second = MOST_PER_SECOND,
        .max_page_bytes = MAX_PAGE_BYTES,
    };
}

void scrape_plan_make_presets(struct scrape_plan *plan, struct arena *arena) {
    if (plan->presets) {
        return;
    }
    plan->presets = arena_calloc(arena, N_SCRAPE_PRESETS, sizeof(struct scrape_source));
    for (size_t i = 0; i < N_SCRAPE_PRESETS; i++) {
        scrape_source_init(&plan->presets[i], &SCRAPE_PRESETS[i]);
    }
}

void scrape_plan_use_preset(struct scrape_plan *plan, enum scrape_preset_index preset) {
    plan->preset = str_of(SCRAPE_PRESET_NAMES[preset]);
    scrape_source_init(&plan->source, &SCRAPE_PRESETS[preset]);
}

struct scrape_engine *scrape_plan_find_engine(const struct scrape_plan *plan, struct str name) {
    for (size_t i = 0; i < plan->n_engines; i++) {
        if (str_eq(plan->engines[i].name, name)) {
            return &plan->engines[i];
        }
    }
    return NULL;
}

void scrape_plan_make_engines(struct scrape_plan *plan, const struct scrape_engine *given, size_t n,
                              struct arena *arena) {
    plan->engines = arena_calloc(arena, n + N_ENGINES, sizeof(struct scrape_engine));
    plan->n_engines = n;
    for (size_t i = 0; i < n; i++) {
        plan->engines[i] = given[i];
    }
    for (size_t i = 0; i < N_ENGINES; i++) {
        if (!scrape_plan_find_engine(plan, str_of(ENGINES[i].name))) {
            struct scrape_engine *engine = &plan->engines[plan->n_engines++];
            engine->name = str_of(ENGINES[i].name);
            engine->is_preset = true;
            scrape_source_init(&engine->source, &SCRAPE_PRESETS[ENGINES[i].preset]);
        }
    }
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* Returns: ptr NULL if the endpoint has no such label, or the plan names none. */
static struct str label_of(const struct pool_spec_endpoint *endpoint, struct str key) {
    for (size_t i = 0; key.len > 0 && i < endpoint->labels.n; i++) {
        if (str_eq(endpoint->labels.items[i].key, key)) {
            return endpoint->labels.items[i].value;
        }
    }
    return str_make(NULL, 0);
}

/* Returns: N_SCRAPE_PRESETS if there is no preset of this name. */
static size_t preset_number(struct str name) {
    size_t i = 0;
    while (i < N_SCRAPE_PRESETS && !str_is(name, SCRAPE_PRESET_NAMES[i])) {
        i++;
    }
    return i;
}

/* Upstream's labels that name an endpoint's engine, the older one last. */
static const char *const ENGINE_LABELS[] = {"llm-d.ai/engine-type",
                                            "inference.networking.k8s.io/engine-type"};

/* Returns: empty if the endpoint names no engine. As upstream, another label than its own one
 * replaces the newer one alone. */
static struct str engine_of(struct pool_labels labels, struct str key) {
    struct str keys[] = {key.len > 0 ? key : str_of(ENGINE_LABELS[0]), str_of(ENGINE_LABELS[1])};
    for (size_t i = 0; i < 2; i++) {
        const struct pool_label *label = pool_labels_find(labels, keys[i]);
        if (label && label->value.len > 0) {
            return label->value;
        }
    }
    return STR("");
}

bool scrape_engine_is_known(struct pool_labels labels) {
    struct str name = engine_of(labels, STR(""));
    for (size_t i = 0; i < N_ENGINES; i++) {
        if (str_is(name, ENGINES[i].name)) {
            return true;
        }
    }
    return false;
}

/* An engine that is unknown is the default one. Returns: NULL if the endpoint's label names no
 * preset. */
static const struct scrape_source *source_of(const struct scrape_plan *plan,
                                             const struct pool_spec_endpoint *endpoint) {
    struct str preset = label_of(endpoint, plan->preset_label);
    if (preset.ptr) {
        size_t i = preset_number(preset);
        return i < N_SCRAPE_PRESETS ? &plan->presets[i] : NULL;
    }
    const struct scrape_engine *engine =
        plan->n_engines > 0
            ? scrape_plan_find_engine(plan, engine_of(endpoint->labels, plan->engine_label))
            : NULL;
    return engine ? &engine->source : &plan->source;
}

bool scrape_plan_resolve(const struct scrape_plan *plan, const struct pool_spec_endpoint *endpoint,
                         struct scrape_request *out) {
    struct str port_text = label_of(endpoint, plan->port_label);
    uint64_t port;
    out->source = source_of(plan, endpoint);
    if (!out->source || out->source->rules.n == 0) {
        return false;
    }
    port = out->source->port > 0 ? out->source->port : endpoint->address.port;
    if (port_text.ptr && (!num_parse_u64(port_text, &port) || port < 1 || port > UINT16_MAX)) {
        return false;
    }
    out->host = plan->at_node && endpoint->node.family > 0 ? endpoint->node : endpoint->address;
    out->host.port = (uint16_t)port;
    out->pod = endpoint->name.pod;
    out->token_file = label_of(endpoint, plan->token_file_label);
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static uint64_t hash_number(uint64_t number, uint64_t seed) {
    return hash_text(str_make((const char *)&number, sizeof(number)), seed);
}

static uint64_t hash_rule(const struct scrape_rule *rule, uint64_t hash) {
    hash =
        hash_number((uint64_t)rule->into << 32 | (uint64_t)rule->combine << 8 | rule->rate, hash);
    hash = hash_text(rule->value_label, hash_text(rule->series, hash));
    hash = hash_number((uint64_t)rule->attribute << 1 | rule->of_pod, hash);
    hash = hash_text(str_make((const char *)&rule->factor, sizeof(rule->factor)), hash);
    hash = hash_text(str_make((const char *)&rule->divisor, sizeof(rule->divisor)), hash);
    for (size_t i = 0; i < rule->labels.n; i++) {
        const struct pool_label *label = &rule->labels.items[i];
        hash = hash_text(label->value, hash_text(label->key, hash));
    }
    return hash_number(rule->labels.n, hash);
}

uint64_t scrape_request_hash(const struct scrape_plan *plan, const struct scrape_request *request) {
    const struct scrape_source *source = request->source;
    uint64_t hash = hash_text(source->path, endpoint_address_hash(&request->host));
    hash = hash_text(request->pod, hash_number(request->host.port, hash));
    for (uint32_t i = 0; i < plan->n_attributes; i++) {
        hash = hash_text(plan->attributes[i].producer, hash_text(plan->attributes[i].name, hash));
    }
    hash = hash_text(request->token_file, hash_text(plan->token_file, hash));
    hash = hash_text(plan->key_file, hash_text(plan->cert_file, hash_text(plan->ca_file, hash)));
    hash = hash_number((uint64_t)plan->https << 1 | plan->insecure_skip_verify, hash);
    hash = hash_number(plan->max_page_bytes, hash_number(plan->timeout_ns, hash));
    for (size_t i = 0; i < source->rules.n; i++) {
        hash = hash_rule(&source->rules.items[i], hash);
    }
    return hash;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_rule(const struct scrape_plan *plan, const struct scrape_rule *rule,
                       struct buf *out) {
    struct str into = rule->into == SCRAPE_ATTRIBUTE ? plan->attributes[rule->attribute].name
                                                     : str_of(SCRAPE_METRIC_NAMES[rule->into]);
    buf_printf(out, "  %-16.*s  %.*s", STR_ARG(into), STR_ARG(rule->series));
    for (size_t i = 0; i < rule->labels.n; i++) {
        const struct pool_label *label = &rule->labels.items[i];
        buf_printf(out, "%s%.*s=\"%.*s\"%s", i == 0 ? "{" : ",", STR_ARG(label->key),
                   STR_ARG(label->value), i + 1 == rule->labels.n ? "}" : "");
    }
    if (rule->value_label.len > 0) {
        buf_printf(out, ", its label %.*s", STR_ARG(rule->value_label));
    }
    buf_printf(out, ", %s%s", SCRAPE_COMBINE_NAMES[rule->combine],
               rule->rate ? ", growth in a second" : "");
    if (rule->factor != 0) {
        buf_printf(out, ", times %g", rule->factor);
    }
    if (rule->divisor != 0) {
        buf_printf(out, ", divided by %g", rule->divisor);
    }
    if (rule->of_pod) {
        buf_printf(out, ", of the endpoint's pod");
    }
    buf_add_char(out, '\n');
}

static void print_source(const struct scrape_source *source, bool https, struct buf *out) {
    buf_printf(out, "GET %s%.*s", https ? "https " : "", STR_ARG(source->path));
    if (source->port > 0) {
        buf_printf(out, " at port %u", source->port);
    }
}

static void print_engines(const struct scrape_plan *plan, struct buf *out) {
    for (size_t i = 0; i < plan->n_engines; i++) {
        const struct scrape_engine *engine = &plan->engines[i];
        if (!engine->is_preset) {
            buf_printf(out, "  engine %.*s: ", STR_ARG(engine->name));
            print_source(&engine->source, plan->https, out);
            buf_add_char(out, '\n');
            for (size_t k = 0; k < engine->source.rules.n; k++) {
                print_rule(plan, &engine->source.rules.items[k], out);
            }
        }
    }
}

static void print_labels(const struct scrape_plan *plan, struct buf *out) {
    if (plan->preset_label.len > 0) {
        buf_printf(out, "  of an endpoint with the label %.*s: by that preset\n",
                   STR_ARG(plan->preset_label));
    }
    if (plan->n_engines > 0) {
        struct str label =
            plan->engine_label.len > 0 ? plan->engine_label : str_of(ENGINE_LABELS[0]);
        buf_printf(out, "  of an endpoint with the label %.*s: by that engine\n", STR_ARG(label));
    }
    if (plan->token_file_label.len > 0) {
        buf_printf(out, "  of an endpoint with the label %.*s: with the token in that file\n",
                   STR_ARG(plan->token_file_label));
    }
    if (plan->port_label.len > 0) {
        buf_printf(out, "  of an endpoint with the label %.*s: at that port\n",
                   STR_ARG(plan->port_label));
    }
    if (plan->insecure_skip_verify) {
        buf_printf(out, "  certificates are not verified\n");
    } else if (plan->ca_file.len > 0) {
        buf_printf(out, "  certificates are verified by %.*s\n", STR_ARG(plan->ca_file));
    }
    if (plan->cert_file.len > 0) {
        buf_printf(out, "  with the certificate %.*s\n", STR_ARG(plan->cert_file));
    }
    if (plan->token_file.len > 0) {
        buf_printf(out, "  with the token in %.*s\n", STR_ARG(plan->token_file));
    }
}

void scrape_plan_print(const char *title, const struct scrape_plan *plan, struct buf *out) {
    buf_printf(out, "%-12s", title);
    if (!plan) {
        buf_printf(out, "not asked for: what counts are our own requests in flight\n");
        return;
    }
    print_source(&plan->source, plan->https, out);
    buf_printf(out,
               ", every %g s, in %g s, up to %zu bytes; at most %" PRIu32
               " a second; counts for %g s\n",
               (double)plan->interval_ns / 1e9, (double)plan->timeout_ns / 1e9,
               plan->max_page_bytes, plan->most_per_second, (double)plan->max_age_ns / 1e9);
    print_labels(plan, out);
    for (size_t i = 0; i < plan->source.rules.n; i++) {
        print_rule(plan, &plan->source.rules.items[i], out);
    }
    print_engines(plan, out);
}
