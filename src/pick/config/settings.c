/* The sections of one pool. Here are those that are settings: readiness checks (`health`), names of
 * the protocol with the proxy (`protocol`), limits (`saturation`, `flow_control`,
 * `outlier_detection`) and how loads are scraped (`metrics`). */
#include "pick/config/reader.h"

#include "codec/http1/cookie.h"
#include "core/base/num.h"
#include "pick/config/dns_plan.h"
#include "pick/config/scrape_rules.h"

static const uint64_t NS_PER_S = 1000000000;
#define MS INT64_C(1000000)
#define HOUR INT64_C(3600000000000)

/* ---- health ---------------------------------------------------------------------------------- */

/* A text, which may be empty. */
static void read_service(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (text.ptr && memchr(text.ptr, '\0', text.len)) {
        doc_reader_fail(reader, node, "a NUL character can't be in this text");
    }
    if (text.ptr) {
        doc_reader_dup(reader, text, out);
    }
}

/* Reads `tcp`. There must be exactly one of `http`, `grpc` and `tcp`. */
static void read_kind(struct doc_reader *reader, const struct doc_node *tcp, void *object) {
    struct doc_node http = doc_get(tcp->parent, "http"), grpc = doc_get(tcp->parent, "grpc");
    struct pool_health *health = object;
    bool by_tcp = false;
    doc_reader_bool(reader, tcp, &by_tcp);
    if ((http.val != NULL) + (grpc.val != NULL) + by_tcp != 1) {
        doc_reader_fail(reader, tcp->parent,
                        "expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`");
    }
    health->kind = http.val ? POOL_HEALTH_HTTP : grpc.val ? POOL_HEALTH_GRPC : POOL_HEALTH_TCP;
}

static const struct doc_member HEALTH[] = {
    {"http", MEMBER_CUSTOM_FIELD(struct pool_health, path, struct str, pool_config_read_path)},
    {"grpc", MEMBER_CUSTOM_FIELD(struct pool_health, service, struct str, read_service)},
    {"tcp", MEMBER_CUSTOM(read_kind)},
    {"port", MEMBER_WHOLE(struct pool_health, port, 1, UINT16_MAX)},
    {"interval", MEMBER_DURATION(struct pool_health, interval_ns, 10 * MS, HOUR), .preset = 1e9},
    {"timeout", MEMBER_DURATION(struct pool_health, timeout_ns, MS, HOUR), .preset = 1e9},
    {"healthy", MEMBER_WHOLE(struct pool_health, n_healthy, 1, 100), .preset = 1},
    {"unhealthy", MEMBER_WHOLE(struct pool_health, n_unhealthy, 1, 100), .preset = 2},
    {0}};

static void read_health(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct pool_spec *spec = object;
    if (doc_is_present(node)) {
        spec->health = (struct pool_health){.kind = POOL_HEALTH_NONE};
        doc_reader_presets(HEALTH, &spec->health);
        doc_reader_object(reader, node, HEALTH, &spec->health);
    }
}

/* ---- protocol -------------------------------------------------------------------------------- */

/* RFC 9110, 5.6.2: a token, in lower case. */
static bool is_header(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) {
            return false;
        }
    }
    return name.len > 0;
}

void pool_config_read_header(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !is_header(*name)) {
        doc_reader_fail(reader, node, "expected the name of a header in lower case, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void read_headers(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct protocol_headers *headers = out;
    size_t n = doc_is_present(node) ? doc_count(node) : 0;
    if (!node->val) {
        return;
    }
    if (n > PROTOCOL_MAX_HEADERS) {
        doc_reader_fail(reader, node, "expected at most %d headers, got %zu", PROTOCOL_MAX_HEADERS,
                        n);
    }
    *headers = (struct protocol_headers){.n = 0};
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, node, &item);) {
        pool_config_read_header(reader, &item, &headers->names[headers->n++]);
    }
}

static void read_cookie(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !cookie_is_name(*name)) {
        doc_reader_fail(reader, node, "expected the name of a cookie, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void check_fallbacks(struct doc_reader *reader, const struct doc_node *form, void *object) {
    struct doc_node most = doc_get(form->parent, "fallbacks");
    const struct protocol *protocol = object;
    if (most.val && protocol->fallback != FALLBACK_LIST) {
        doc_reader_fail(reader, &most, "is for `fallback: list`; a key takes one");
    }
}

static const char *const FALLBACKS[] = {"none", "key", "list",
                                        NULL}; /* as enum protocol_fallback */

#define READ_HEADER pool_config_read_header
#define READ_HEADERS read_headers
#define READ_KEY pool_config_read_optional_name
#define READ_COOKIE read_cookie
#define NAME(field, kind, preset, help)                                                            \
    {#field, MEMBER_CUSTOM_FIELD(struct protocol, field, PROTOCOL_TYPE_##kind, READ_##kind)},
static const struct doc_member PROTOCOL[] = {
#include "pick/pool/endpoint/protocol.def"
    {"fallback", MEMBER_WORD(struct protocol, fallback, FALLBACKS), .check = check_fallbacks},
    {"fallbacks", MEMBER_WHOLE(struct protocol, n_fallbacks, 1, PROTOCOL_MAX_FALLBACKS)},
    {"conformance", MEMBER_BOOL(struct protocol, conformance)},
    {0}};
#undef NAME

static void read_protocol(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct protocol *protocol = &((struct pool_spec *)object)->protocol;
    doc_reader_object(reader, node, PROTOCOL, protocol);
    protocol_update_lengths(protocol);
    if (str_eq(protocol->destination_key, protocol->fallback_key)) {
        doc_reader_fail(reader, node, "expected destination_key and fallback_key to differ");
    }
}

/* ---- saturation ------------------------------------------------------------------------------ */

static void read_retry_after(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t *seconds = out, ns = *seconds * NS_PER_S;
    doc_reader_duration(reader, node, NS_PER_S, HOUR, &ns);
    *seconds = (ns + NS_PER_S - 1) / NS_PER_S;
}

static const struct doc_member SATURATION[] = {
    {"max_in_flight", MEMBER_WHOLE(struct pool_spec, max_in_flight, 0, INT32_MAX)},
    {"queue_depth", MEMBER_WHOLE(struct pool_spec, queue_depth, 0, INT32_MAX)},
    {"kv_cache", MEMBER_SHARE(struct pool_spec, kv_cache, true)},
    {"retry_after",
     MEMBER_CUSTOM_FIELD(struct pool_spec, retry_after_s, uint64_t, read_retry_after)},
    {0}};

static void read_saturation(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    pool_config_reader_of(reader)->saturation_limits_given = doc_get(node, "max_in_flight").val ||
                                                             doc_get(node, "queue_depth").val ||
                                                             doc_get(node, "kv_cache").val;
    doc_reader_object(reader, node, SATURATION, spec);
}

/* ---- flow control ---------------------------------------------------------------------------- */

/* "256MiB", or a number of bytes. */
static void read_bytes(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    uint64_t n_bytes;
    if (doc_is_whole(node)) {
        doc_reader_u64(reader, node, (int64_t)POOL_CONFIG_MIN_BYTES, (int64_t)POOL_CONFIG_MAX_BYTES,
                       out);
        return;
    }
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (num_parse_bytes(text, &n_bytes) && n_bytes >= POOL_CONFIG_MIN_BYTES &&
        n_bytes <= POOL_CONFIG_MAX_BYTES) {
        *(uint64_t *)out = n_bytes;
    } else {
        doc_reader_fail(reader, node, "expected a size from 64KiB to 1024GiB, got \"%.*s\"",
                        STR_ARG(text));
    }
}

static const struct doc_member BAND[] = {
    {"priority", MEMBER_WHOLE(struct flow_band_limits, priority, 0, INT32_MAX)},
    {"max_requests",
     MEMBER_WHOLE(struct flow_band_limits, max_requests, 0, POOL_CONFIG_MAX_WAITING)},
    {0}};

static bool read_band(struct doc_reader *reader, const struct doc_node *node,
                      struct flow_band_limits *out) {
    doc_reader_expect_object(reader, node);
    doc_reader_reject_unknown(reader, node, BAND, NULL);
    if (!doc_get(node, "priority").val || !doc_get(node, "max_requests").val) {
        doc_reader_fail(reader, node, "expected a priority and its max_requests");
    }
    doc_reader_members(reader, node, BAND, out);
    return true;
}

static void check_priority(struct doc_reader *reader, const struct doc_node *node,
                           const struct flow_band_limits *bands, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bands[i].priority == bands[n].priority) {
            doc_reader_fail(reader, node, "the priority %lld is there twice",
                            (long long)bands[n].priority);
        }
    }
}

void pool_config_read_bands(struct doc_reader *reader, const struct doc_node *list,
                            pool_config_read_band *read_one, struct pool_flow_control *out) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > POOL_CONFIG_MAX_BANDS) {
        doc_reader_fail(reader, list, "expected at most %d priorities, got %zu",
                        POOL_CONFIG_MAX_BANDS, n);
    }
    struct flow_band_limits *bands = doc_reader_calloc(reader, n, sizeof(*bands));
    out->limits.bands = bands;
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        if (read_one(reader, &item, &bands[out->limits.n_bands])) {
            check_priority(reader, &item, bands, out->limits.n_bands++);
        }
    }
}

static void read_bands(struct doc_reader *reader, const struct doc_node *list, void *flow) {
    pool_config_read_bands(reader, list, read_band, flow);
}

static const struct doc_member FLOW_CONTROL[] = {
    {"max_requests",
     MEMBER_WHOLE(struct pool_flow_control, limits.max_requests, 1, POOL_CONFIG_MAX_WAITING)},
    {"max_bytes",
     MEMBER_CUSTOM_FIELD(struct pool_flow_control, limits.max_bytes, uint64_t, read_bytes)},
    {"max_wait", MEMBER_DURATION(struct pool_flow_control, max_wait_ns, MS, HOUR)},
    {"bands", MEMBER_CUSTOM(read_bands)},
    {0}};

static void read_flow_control(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    struct pool_flow_control *flow = &((struct pool_spec *)object)->flow_control;
    pool_config_reader_of(reader)->flow_control_given = node->val != NULL;
    flow->on = flow->on || node->val;
    doc_reader_object(reader, node, FLOW_CONTROL, flow);
}

/* ---- outlier detection ----------------------------------------------------------------------- */

#define OUTLIERS struct pool_outlier_detection
static const struct doc_member OUTLIER_DETECTION[] = {
    {"consecutive_5xx", MEMBER_WHOLE(OUTLIERS, consecutive_5xx, 0, 1000000)},
    {"consecutive_gateway_failure",
     MEMBER_WHOLE(OUTLIERS, consecutive_gateway_failure, 0, 1000000)},
    {"failure_percentage_threshold", MEMBER_WHOLE(OUTLIERS, failure_percentage_threshold, 0, 100)},
    {"failure_percentage_request_volume",
     MEMBER_WHOLE(OUTLIERS, failure_percentage_request_volume, 1, 1000000)},
    {"interval", MEMBER_DURATION(OUTLIERS, interval_ns, MS, HOUR)},
    {"base_ejection_time", MEMBER_DURATION(OUTLIERS, base_ejection_time_ns, MS, HOUR)},
    {"max_ejection_time", MEMBER_DURATION(OUTLIERS, max_ejection_time_ns, MS, HOUR)},
    {"max_ejection_percent", MEMBER_WHOLE(OUTLIERS, max_ejection_percent, 0, 100)},
    {0}};
#undef OUTLIERS

/* ---- metrics: rules -------------------------------------------------------------------------- */

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

/* ---- metrics: source and endpoints ----------------------------------------------------------- */

static void read_preset(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct scrape_plan *plan = object;
    unsigned i = N_SCRAPE_PRESETS;
    doc_reader_word(reader, node, SCRAPE_PRESET_NAMES, NULL, &i);
    if (i < N_SCRAPE_PRESETS) {
        plan->preset = str_of(SCRAPE_PRESETS[i].name);
        scrape_source_init(&plan->source, &SCRAPE_PRESETS[i]);
    }
}

void pool_config_read_https(struct doc_reader *reader, const struct doc_node *node, void *out) {
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
        doc_reader_fail(reader, node->parent,
                        "expected `preset` (sluice, triton, vllm, sglang, tensorrt-llm or "
                        "trtllm-serve) or `rules`");
    }
}

static void check_endpoint(struct doc_reader *reader, const struct doc_node *node,
                           const struct scrape_plan *plan, const struct pool_spec_endpoint *wanted,
                           const char *text) {
    struct scrape_request place;
    if (!scrape_plan_resolve(plan, wanted, &place)) {
        doc_reader_fail(reader, node,
                        "the endpoint %s can't be scraped: expected a label with a preset's "
                        "name (sluice, triton, vllm, sglang, tensorrt-llm, trtllm-serve) or "
                        "`preset` here, and a port from 1 to 65535",
                        text);
    }
}

/* Rejects labels of endpoints that name no preset or no port. */
static void check_endpoints(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct pool_spec *spec = pool_config_reader_of(reader)->spec;
    struct scrape_plan *plan = object;
    if (doc_get(node->parent, "preset_label").val &&
        !scrape_plan_make_presets(plan, reader->arena)) {
        doc_reader_no_memory(reader);
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

/* ---- metrics: the section -------------------------------------------------------------------- */

#define PLAN struct scrape_plan
static const struct doc_member METRICS[] = {
    {"preset", MEMBER_CUSTOM(read_preset)},
    {"rules", MEMBER_CUSTOM_FIELD(PLAN, source.rules, struct scrape_rules, read_rules)},
    {"path", MEMBER_CUSTOM_FIELD(PLAN, source.path, struct str, pool_config_read_page_path)},
    {"port", MEMBER_WHOLE(PLAN, source.port, 1, UINT16_MAX)},
    {"scheme", MEMBER_CUSTOM_FIELD(PLAN, https, bool, pool_config_read_https)},
    {"insecure_skip_verify", MEMBER_BOOL(PLAN, insecure_skip_verify)},
    {"ca_file", MEMBER_CUSTOM_FIELD(PLAN, ca_file, struct str, pool_config_read_optional_name),
     .check = check_tls},
    {"token_file",
     MEMBER_CUSTOM_FIELD(PLAN, token_file, struct str, pool_config_read_optional_name)},
    {"interval", MEMBER_DURATION(PLAN, interval_ns, 50 * MS, HOUR)},
    {"timeout", MEMBER_DURATION(PLAN, timeout_ns, MS, HOUR)},
    {"max_age", MEMBER_DURATION(PLAN, max_age_ns, MS, HOUR)},
    {"most_per_second", MEMBER_WHOLE(PLAN, most_per_second, 1, 100000)},
    {"max_page_bytes", MEMBER_WHOLE(PLAN, max_page_bytes, 1, 64 << 20), .check = check_source},
    {"token_file_label",
     MEMBER_CUSTOM_FIELD(PLAN, token_file_label, struct str, pool_config_read_optional_name)},
    {"preset_label",
     MEMBER_CUSTOM_FIELD(PLAN, preset_label, struct str, pool_config_read_optional_name)},
    {"port_label",
     MEMBER_CUSTOM_FIELD(PLAN, port_label, struct str, pool_config_read_optional_name),
     .check = check_endpoints},
    {0}};
#undef PLAN

static void read_metrics(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct pool_spec *spec = object;
    if (!doc_is_present(node)) {
        return;
    }
    struct scrape_plan *plan = doc_reader_calloc(reader, 1, sizeof(*plan));
    if (plan) {
        scrape_plan_init(plan);
        spec->scrape = plan;
        pool_config_reader_of(reader)->metrics_given = true;
        doc_reader_object(reader, node, METRICS, plan);
    }
}

/* ---- all sections ---------------------------------------------------------------------------- */

const struct doc_member POOL_CONFIG_SECTIONS[] = {
    {"selector", MEMBER_CUSTOM(pool_config_read_selector)},
    {"ports", MEMBER_CUSTOM(pool_config_read_ports)},
    {"endpoints", MEMBER_CUSTOM(pool_config_read_endpoints)},
    {"dns", MEMBER_CUSTOM(pool_config_read_dns)},
    {"unknown_models", MEMBER_CUSTOM(pool_config_read_unknown_models)},
    {"models", MEMBER_CUSTOM(pool_config_read_models)},
    {"model_paths", MEMBER_CUSTOM(pool_config_read_model_paths)},
    {"objectives", MEMBER_CUSTOM(pool_config_read_objectives)},
    {"rewrites", MEMBER_CUSTOM(pool_config_read_rewrites)},
    {"health", MEMBER_CUSTOM(read_health)},
    {"saturation", MEMBER_CUSTOM(read_saturation)},
    {"flow_control", MEMBER_CUSTOM(read_flow_control)},
    {"refused_for", MEMBER_DURATION(struct pool_spec, refused_ns, 0, HOUR)},
    {"outlier_detection", MEMBER_OBJECT(OUTLIER_DETECTION),
     .offset = offsetof(struct pool_spec, outlier_detection)},
    {"protocol", MEMBER_CUSTOM(read_protocol)},
    {"metrics", MEMBER_CUSTOM(read_metrics)},
    {"profile", MEMBER_CUSTOM(pool_config_read_profile_section)},
    {0}};
