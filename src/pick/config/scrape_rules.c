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
const char *const SCRAPE_COMBINE_NAMES[] = {"sum", "max", "newest", NULL};

/* ---- rules ----------------------------------------------------------------------------------- */

static void add_series(struct scrape_rules *rules, struct str name) {
    for (size_t i = 0; i < rules->n_series; i++) {
        if (str_eq(rules->series[i], name)) {
            return;
        }
    }
    rules->series[rules->n_series++] = name;
}

static bool add_rule(struct scrape_rules *rules, const struct scrape_rule *rule) {
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
        add_rule(&source->rules, &preset->rules[i]);
    }
}

bool scrape_rules_replace(struct scrape_rules *rules, const struct scrape_rule *rule) {
    struct scrape_rules kept = {.n = 0};
    for (size_t i = 0; i < rules->n; i++) {
        if (rules->items[i].into != rule->into) {
            add_rule(&kept, &rules->items[i]);
        }
    }
    *rules = kept;
    return add_rule(rules, rule);
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

/* Returns: the index of the preset that upstream's engine label names; N_SCRAPE_PRESETS if there is
 * none that we know. */
static size_t engine_of(struct pool_labels labels) {
    static const char *const keys[] = {"llm-d.ai/engine-type",
                                       "inference.networking.k8s.io/engine-type"};
    const struct pool_label *label = pool_labels_find(labels, str_of(keys[0]));
    label = label ? label : pool_labels_find(labels, str_of(keys[1]));
    struct str name = label ? label->value : STR("");
    return preset_number(str_is(name, "triton-tensorrt-llm") ? STR("tensorrt-llm") : name);
}

bool scrape_engine_is_known(struct pool_labels labels) {
    return engine_of(labels) < N_SCRAPE_PRESETS;
}

/* Returns: NULL if the endpoint's label names no preset. */
static const struct scrape_source *source_of(const struct scrape_plan *plan,
                                             const struct pool_spec_endpoint *endpoint) {
    struct str preset = label_of(endpoint, plan->preset_label);
    size_t i = preset.ptr        ? preset_number(preset)
               : plan->by_engine ? engine_of(endpoint->labels)
                                 : N_SCRAPE_PRESETS;
    if (i < N_SCRAPE_PRESETS) {
        return &plan->presets[i];
    }
    return preset.ptr ? NULL : &plan->source;
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
    out->port = (uint16_t)port;
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
    hash = hash_text(str_make((const char *)&rule->factor, sizeof(rule->factor)), hash);
    for (size_t i = 0; i < rule->labels.n; i++) {
        const struct pool_label *label = &rule->labels.items[i];
        hash = hash_text(label->value, hash_text(label->key, hash));
    }
    return hash_number(rule->labels.n, hash);
}

uint64_t scrape_request_hash(const struct scrape_plan *plan, const struct scrape_request *request) {
    const struct scrape_source *source = request->source;
    uint64_t hash = hash_text(source->path, request->port);
    hash = hash_text(request->token_file, hash_text(plan->token_file, hash));
    hash = hash_text(plan->ca_file, hash);
    hash = hash_number((uint64_t)plan->https << 1 | plan->insecure_skip_verify, hash);
    hash = hash_number(plan->max_page_bytes, hash_number(plan->timeout_ns, hash));
    for (size_t i = 0; i < source->rules.n; i++) {
        hash = hash_rule(&source->rules.items[i], hash);
    }
    return hash;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_rule(const struct scrape_rule *rule, struct buf *out) {
    buf_printf(out, "  %-16s  %.*s", SCRAPE_METRIC_NAMES[rule->into], STR_ARG(rule->series));
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
    buf_add_char(out, '\n');
}

static void print_labels(const struct scrape_plan *plan, struct buf *out) {
    if (plan->preset_label.len > 0) {
        buf_printf(out, "  of an endpoint with the label %.*s: by that preset\n",
                   STR_ARG(plan->preset_label));
    }
    if (plan->by_engine) {
        buf_printf(out, "  of an endpoint with the label llm-d.ai/engine-type: by that engine\n");
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
    if (plan->token_file.len > 0) {
        buf_printf(out, "  with the token in %.*s\n", STR_ARG(plan->token_file));
    }
}

void scrape_plan_print(const struct scrape_plan *plan, struct buf *out) {
    buf_printf(out, "%-12s", "loads");
    if (!plan) {
        buf_printf(out, "not asked for: what counts are our own requests in flight\n");
        return;
    }
    buf_printf(out, "GET %s%.*s", plan->https ? "https " : "", STR_ARG(plan->source.path));
    if (plan->source.port > 0) {
        buf_printf(out, " at port %u", plan->source.port);
    }
    buf_printf(out,
               ", every %g s, in %g s, up to %zu bytes; at most %" PRIu32
               " a second; counts for %g s\n",
               (double)plan->interval_ns / 1e9, (double)plan->timeout_ns / 1e9,
               plan->max_page_bytes, plan->most_per_second, (double)plan->max_age_ns / 1e9);
    print_labels(plan, out);
    for (size_t i = 0; i < plan->source.rules.n; i++) {
        print_rule(&plan->source.rules.items[i], out);
    }
}
