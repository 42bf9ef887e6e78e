/* The sections of one pool that are settings: readiness checks (`health`), names of the protocol
 * with the proxy (`protocol`), limits (`saturation`, `flow_control`) and how loads are scraped
 * (`metrics`). */
#include "pick/config/reader.h"

#include "codec/http1/cookie.h"
#include "core/base/num.h"
#include "pick/config/dns_plan.h"
#include "pick/config/scrape_rules.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

/* A text, which may be empty. */
static enum status read_text(struct pool_config_reader *reader, const struct doc_node *node,
                             struct str *out, struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        return doc_error(node, err, "a NUL character can't be in this text");
    }
    *out = pool_spec_dup_text(reader->spec, text);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
}

/* ---- health ---------------------------------------------------------------------------------- */

/* Reads exactly one of `http`, `grpc` and `tcp`. */
static enum status read_kind(struct pool_config_reader *reader, const struct doc_node *node,
                             struct pool_health *out, struct error *err) {
    struct doc_node http = doc_get(node, "http"), grpc = doc_get(node, "grpc");
    struct doc_node tcp = doc_get(node, "tcp");
    bool by_tcp = false;
    enum status st = doc_read_bool(&tcp, &by_tcp, err);
    if (st == ST_OK) {
        st = pool_config_read_path(reader, &http, &out->path, err);
    }
    if (st == ST_OK) {
        st = read_text(reader, &grpc, &out->service, err);
    }
    if (st != ST_OK) {
        return st;
    }
    if ((http.val != NULL) + (grpc.val != NULL) + by_tcp != 1) {
        return doc_error(node, err,
                         "expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`");
    }
    out->kind = http.val ? POOL_HEALTH_HTTP : grpc.val ? POOL_HEALTH_GRPC : POOL_HEALTH_TCP;
    return ST_OK;
}

static enum status read_thresholds(const struct doc_node *node, struct pool_health *out,
                                   struct error *err) {
    struct doc_node healthy = doc_get(node, "healthy"), unhealthy = doc_get(node, "unhealthy");
    uint64_t n_healthy = 1, n_unhealthy = 2;
    enum status st = pool_config_read_unsigned(&healthy, 1, 100, &n_healthy, err);
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&unhealthy, 1, 100, &n_unhealthy, err);
    }
    out->n_healthy = (unsigned)n_healthy;
    out->n_unhealthy = (unsigned)n_unhealthy;
    return st;
}

static enum status read_health(struct pool_config_reader *reader, const struct doc_node *node,
                               struct error *err) {
    static const char *const names[] = {"http",    "grpc",    "tcp",       "port", "interval",
                                        "timeout", "healthy", "unhealthy", NULL};
    struct pool_health health = {.interval_ns = NS_PER_S, .timeout_ns = NS_PER_S};
    struct doc_node port = doc_get(node, "port"), interval = doc_get(node, "interval");
    struct doc_node timeout = doc_get(node, "timeout");
    if (!doc_is_present(node)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_kind(reader, node, &health, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_port(&port, &health.port, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&interval, 10 * NS_PER_MS, NS_PER_HOUR, &health.interval_ns,
                                       err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&timeout, NS_PER_MS, NS_PER_HOUR, &health.timeout_ns, err);
    }
    if (st == ST_OK) {
        st = read_thresholds(node, &health, err);
    }
    reader->spec->health = health;
    return st;
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

static enum status read_key(struct pool_config_reader *reader, const struct doc_node *node,
                            struct str *out, struct error *err) {
    return node->val ? pool_config_read_name(reader, node, out, err) : ST_OK;
}

enum status pool_config_read_header(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct str *out, struct error *err) {
    struct str name = *out;
    enum status st = read_key(reader, node, &name, err);
    if (st == ST_OK && node->val && !is_header(name)) {
        st = doc_error(node, err, "expected the name of a header in lower case, got \"%.*s\"",
                       STR_ARG(name));
    }
    *out = name;
    return st;
}

static enum status read_headers(struct pool_config_reader *reader, const struct doc_node *node,
                                struct protocol_headers *out, struct error *err) {
    enum status st = ST_OK;
    if (!node->val) {
        return ST_OK;
    }
    size_t n = doc_is_present(node) ? doc_count(node) : 0;
    if (n > PROTOCOL_MAX_HEADERS) {
        return doc_error(node, err, "expected at most %d headers, got %zu", PROTOCOL_MAX_HEADERS,
                         n);
    }
    *out = (struct protocol_headers){.n = n};
    struct doc_node item = {0};
    for (size_t i = 0; i < n && st == ST_OK && doc_next(node, &item); i++) {
        st = pool_config_read_header(reader, &item, &out->names[i], err);
    }
    return st;
}

static enum status read_cookie(struct pool_config_reader *reader, const struct doc_node *node,
                               struct str *out, struct error *err) {
    struct str name = *out;
    enum status st = read_key(reader, node, &name, err);
    if (st == ST_OK && node->val && !cookie_is_name(name)) {
        st = doc_error(node, err, "expected the name of a cookie, got \"%.*s\"", STR_ARG(name));
    }
    *out = name;
    return st;
}

enum name_kind { NAME_COOKIE, NAME_KEY, NAME_HEADER, NAME_HEADERS };

static const struct {
    const char *field;
    enum name_kind kind;
    size_t at; /* in struct protocol */
} name_rows[] = {
#define NAME(field, kind, preset, help) {#field, NAME_##kind, offsetof(struct protocol, field)},
#include "pick/pool/endpoint/protocol.def"
#undef NAME
};

/* `out` has the type that belongs to the kind. */
static enum status read_name_of(struct pool_config_reader *reader, enum name_kind kind,
                                const struct doc_node *node, void *out, struct error *err) {
    switch (kind) {
    case NAME_COOKIE:
        return read_cookie(reader, node, out, err);
    case NAME_KEY:
        return read_key(reader, node, out, err);
    case NAME_HEADER:
        return pool_config_read_header(reader, node, out, err);
    case NAME_HEADERS:
        break;
    }
    return read_headers(reader, node, out, err);
}

static enum status read_names(struct pool_config_reader *reader, const struct doc_node *node,
                              struct error *err) {
    char *protocol = (char *)&reader->spec->protocol;
    enum status st = ST_OK;
    for (size_t i = 0; i < sizeof(name_rows) / sizeof(name_rows[0]) && st == ST_OK; i++) {
        struct doc_node member = doc_get(node, name_rows[i].field);
        st = read_name_of(reader, name_rows[i].kind, &member, protocol + name_rows[i].at, err);
    }
    return st;
}

static enum status read_fallback(const struct doc_node *node, struct protocol *protocol,
                                 struct error *err) {
    static const char *const words[] = {"none", "key", "list", NULL};
    struct doc_node form = doc_get(node, "fallback"), most = doc_get(node, "fallbacks");
    unsigned word = (unsigned)protocol->fallback; /* in the order of the enum */
    uint64_t n = protocol->n_fallbacks;
    enum status st = pool_config_read_word(&form, words, &word, err);
    protocol->fallback = (enum protocol_fallback)word;
    if (st == ST_OK && most.val && protocol->fallback != FALLBACK_LIST) {
        return doc_error(&most, err, "is for `fallback: list`; a key takes one");
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 1, PROTOCOL_MAX_FALLBACKS, &n, err);
    }
    protocol->n_fallbacks = (size_t)n;
    return st;
}

static enum status read_protocol(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
#define NAME(field, kind, preset, help) #field,
    static const char *const names[] = {
#include "pick/pool/endpoint/protocol.def"
        "fallback", "fallbacks", "conformance", NULL};
#undef NAME
    struct doc_node conformance = doc_get(node, "conformance");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_names(reader, node, err);
    }
    if (st == ST_OK) {
        st = read_fallback(node, &reader->spec->protocol, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&conformance, &reader->spec->protocol.conformance, err);
    }
    const struct protocol *protocol = &reader->spec->protocol;
    protocol_update_lengths(&reader->spec->protocol);
    if (st == ST_OK && str_eq(protocol->destination_key, protocol->fallback_key)) {
        st = doc_error(node, err, "expected destination_key and fallback_key to differ");
    }
    return st;
}

/* ---- saturation ------------------------------------------------------------------------------ */

static enum status read_saturation(struct pool_spec *spec, const struct doc_node *node,
                                   struct error *err) {
    static const char *const names[] = {"max_in_flight", "queue_depth", "kv_cache", "retry_after",
                                        NULL};
    struct doc_node most = doc_get(node, "max_in_flight"), after = doc_get(node, "retry_after");
    struct doc_node depth = doc_get(node, "queue_depth"), used = doc_get(node, "kv_cache");
    uint64_t retry_ns = spec->retry_after_s * NS_PER_S;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 0, INT32_MAX, &spec->max_in_flight, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&depth, 0, INT32_MAX, &spec->queue_depth, err);
    }
    if (st == ST_OK) {
        st = doc_read_share(&used, true, &spec->kv_cache, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&after, NS_PER_S, NS_PER_HOUR, &retry_ns, err);
    }
    spec->retry_after_s = (retry_ns + NS_PER_S - 1) / NS_PER_S;
    return st;
}

/* ---- flow control ---------------------------------------------------------------------------- */

/* "256MiB", or a number of bytes. */
static enum status read_bytes(const struct doc_node *node, uint64_t *out, struct error *err) {
    struct str text = {NULL, 0};
    uint64_t n_bytes;
    if (!node->val) {
        return ST_OK;
    }
    if (doc_is_whole(node)) {
        return pool_config_read_unsigned(node, (int64_t)POOL_CONFIG_MIN_BYTES,
                                         (int64_t)POOL_CONFIG_MAX_BYTES, out, err);
    }
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    if (!num_parse_bytes(text, &n_bytes) || n_bytes < POOL_CONFIG_MIN_BYTES ||
        n_bytes > POOL_CONFIG_MAX_BYTES) {
        return doc_error(node, err, "expected a size from 64KiB to 1024GiB, got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = n_bytes;
    return ST_OK;
}

static enum status read_band(const struct doc_node *node, struct flow_band_limits *out,
                             struct error *err) {
    static const char *const names[] = {"priority", "max_requests", NULL};
    struct doc_node priority = doc_get(node, "priority"), most = doc_get(node, "max_requests");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK && (!priority.val || !most.val)) {
        return doc_error(node, err, "expected a priority and its max_requests");
    }
    if (st == ST_OK) {
        st = doc_read_i64(&priority, 0, INT32_MAX, &out->priority, err);
    }
    return st == ST_OK ? pool_config_read_unsigned(&most, 0, POOL_CONFIG_MAX_WAITING,
                                                   &out->max_requests, err)
                       : st;
}

static enum status read_bands(struct pool_config_reader *reader, const struct doc_node *list,
                              struct flow_limits *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > POOL_CONFIG_MAX_BANDS) {
        return doc_error(list, err, "expected at most %d priorities, got %zu",
                         POOL_CONFIG_MAX_BANDS, n);
    }
    struct flow_band_limits *bands = arena_calloc(reader->spec->arena, n, sizeof(*bands));
    enum status st = ST_OK;
    if (!bands) {
        return pool_config_no_memory(reader, err);
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item);) {
        struct flow_band_limits *band = &bands[out->n_bands];
        st = read_band(&item, band, err);
        for (size_t i = 0; i < out->n_bands && st == ST_OK; i++) {
            if (bands[i].priority == band->priority) {
                st = doc_error(&item, err, "the priority %lld is there twice",
                               (long long)band->priority);
            }
        }
        out->n_bands++;
    }
    out->bands = bands;
    return st;
}

static enum status read_flow_control(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) {
    static const char *const names[] = {"max_requests", "max_bytes", "max_wait", "bands", NULL};
    struct pool_flow_control *flow = &reader->spec->flow_control;
    struct doc_node most = doc_get(node, "max_requests"), bytes = doc_get(node, "max_bytes");
    struct doc_node wait = doc_get(node, "max_wait"), bands = doc_get(node, "bands");
    if (!node->val) {
        return ST_OK;
    }
    flow->on = true;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 1, POOL_CONFIG_MAX_WAITING,
                                       &flow->limits.max_requests, err);
    }
    if (st == ST_OK) {
        st = read_bytes(&bytes, &flow->limits.max_bytes, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&wait, NS_PER_MS, NS_PER_HOUR, &flow->max_wait_ns, err);
    }
    return st == ST_OK ? read_bands(reader, &bands, &flow->limits, err) : st;
}

static enum status read_load_sections(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct error *err) {
    struct doc_node saturation = doc_get(node, "saturation");
    struct doc_node flow = doc_get(node, "flow_control");
    struct doc_node most = doc_get(&saturation, "max_in_flight");
    struct doc_node depth = doc_get(&saturation, "queue_depth");
    struct doc_node used = doc_get(&saturation, "kv_cache");
    reader->saturation_limits_given = most.val || depth.val || used.val;
    reader->flow_control_given = flow.val != NULL;
    enum status st = read_saturation(reader->spec, &saturation, err);
    return st == ST_OK ? read_flow_control(reader, &flow, err) : st;
}

/* ---- outlier detection ----------------------------------------------------------------------- */

static enum status read_outlier_detection(struct pool_outlier_detection *out,
                                          const struct doc_node *node, struct error *err) {
    static const char *const names[] = {"consecutive_5xx",
                                        "consecutive_gateway_failure",
                                        "failure_percentage_threshold",
                                        "failure_percentage_request_volume",
                                        "interval",
                                        "base_ejection_time",
                                        "max_ejection_time",
                                        "max_ejection_percent",
                                        NULL};
    const struct {
        const char *name;
        int64_t least, most;
        uint64_t *value;
    } numbers[] = {
        {names[0], 0, 1000000, &out->consecutive_5xx},
        {names[1], 0, 1000000, &out->consecutive_gateway_failure},
        {names[2], 0, 100, &out->failure_percentage_threshold},
        {names[3], 1, 1000000, &out->failure_percentage_request_volume},
        {names[7], 0, 100, &out->max_ejection_percent},
    };
    const struct {
        const char *name;
        uint64_t *value;
    } durations[] = {
        {names[4], &out->interval_ns},
        {names[5], &out->base_ejection_time_ns},
        {names[6], &out->max_ejection_time_ns},
    };
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && st == ST_OK; i++) {
        struct doc_node member = doc_get(node, numbers[i].name);
        st = pool_config_read_unsigned(&member, numbers[i].least, numbers[i].most, numbers[i].value,
                                       err);
    }
    for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]) && st == ST_OK; i++) {
        struct doc_node member = doc_get(node, durations[i].name);
        st = pool_config_read_duration(&member, NS_PER_MS, NS_PER_HOUR, durations[i].value, err);
    }
    return st;
}

/* ---- all of these ---------------------------------------------------------------------------- */

enum status pool_config_read_settings(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct error *err) {
    struct doc_node health = doc_get(node, "health");
    struct doc_node refused = doc_get(node, "refused_for"), protocol = doc_get(node, "protocol");
    struct doc_node outliers = doc_get(node, "outlier_detection");
    enum status st = read_health(reader, &health, err);
    if (st == ST_OK) {
        st = read_load_sections(reader, node, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&refused, 0, NS_PER_HOUR, &reader->spec->refused_ns, err);
    }
    if (st == ST_OK) {
        st = read_outlier_detection(&reader->spec->outlier_detection, &outliers, err);
    }
    return st == ST_OK ? read_protocol(reader, &protocol, err) : st;
}

enum { LEAST_INTERVAL_MS = 50, MOST_MOST_PER_SECOND = 100000, MOST_PAGE_BYTES = 64 << 20 };

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

static enum status read_series_name(struct pool_config_reader *reader, const struct doc_node *node,
                                    bool colon, struct str *out, struct error *err) {
    enum status st = pool_config_read_name(reader, node, out, err);
    if (st == ST_OK && !is_series_name(*out, colon)) {
        st = doc_error(node, err, "expected a name of letters, digits and _%s, got \"%.*s\"",
                       colon ? " and :" : "", STR_ARG(*out));
    }
    return st;
}

static enum status read_value_label(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct scrape_rule *rule, struct error *err) {
    return node->val ? read_series_name(reader, node, false, &rule->value_label, err) : ST_OK;
}

static enum status check_rule(const struct doc_node *node, const struct scrape_rule *rule,
                              struct error *err) {
    bool plain = rule->combine == SCRAPE_NEWEST && !rule->rate && rule->value_label.len == 0;
    if (rule->into == SCRAPE_ADAPTERS && (!plain || rule->factor != 0)) {
        return doc_error(node, err,
                         "expected only `series` and `labels`: adapters are the labels of the "
                         "newest series");
    }
    if (rule->rate && rule->combine == SCRAPE_NEWEST) {
        return doc_error(node, err, "expected `combine: sum` or `max` beside `rate`");
    }
    return ST_OK;
}

static enum status read_rule_members(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct scrape_rule *rule, struct error *err) {
    static const char *const names[] = {"series", "labels", "combine", "value_label",
                                        "rate",   "factor", NULL};
    struct doc_node series = doc_get(node, "series"), labels = doc_get(node, "labels");
    struct doc_node combine = doc_get(node, "combine"), label = doc_get(node, "value_label");
    struct doc_node rate = doc_get(node, "rate"), factor = doc_get(node, "factor");
    unsigned word = (unsigned)rule->combine; /* in the order of the enum */
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK) {
        st = read_series_name(reader, &series, true, &rule->series, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_labels(reader, &labels, &rule->labels, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&combine, SCRAPE_COMBINE_NAMES, &word, err);
    }
    rule->combine = (enum scrape_combine)word;
    if (st == ST_OK) {
        st = read_value_label(reader, &label, rule, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&rate, &rule->rate, err);
    }
    if (st == ST_OK) {
        st = doc_read_f64(&factor, &rule->factor, err);
    }
    return st == ST_OK ? check_rule(node, rule, err) : st;
}

/* A rule is the name of a series, or an object. */
static enum status read_rule(struct pool_config_reader *reader, const struct doc_node *node,
                             struct scrape_rules *rules, enum scrape_metric into,
                             struct error *err) {
    static const enum scrape_combine usual[N_SCRAPE_METRICS] = {
        [SCRAPE_KV_CACHE] = SCRAPE_MAX,
        [SCRAPE_KV_BLOCK_TOKENS] = SCRAPE_MAX,
        [SCRAPE_ADAPTERS] = SCRAPE_NEWEST,
    };
    struct scrape_rule rule = {.into = into, .combine = usual[into]};
    struct str text;
    enum status st = doc_read_str(node, &text, NULL) == ST_OK
                         ? read_series_name(reader, node, true, &rule.series, err)
                         : doc_expect_object(node, err);
    if (st == ST_OK && rule.series.len == 0) {
        st = read_rule_members(reader, node, &rule, err);
    }
    if (st == ST_OK && !scrape_rules_replace(rules, &rule)) {
        st = doc_error(node, err, "expected at most %d rules", SCRAPE_MAX_RULES);
    }
    return st;
}

static enum status read_rules(struct pool_config_reader *reader, const struct doc_node *node,
                              struct scrape_rules *rules, struct error *err) {
    enum status st = ST_OK;
    if (!doc_is_present(node)) {
        return ST_OK;
    }
    st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, SCRAPE_METRIC_NAMES, err);
    }
    for (unsigned i = 0; st == ST_OK && i < N_SCRAPE_METRICS; i++) {
        struct doc_node rule = doc_get(node, SCRAPE_METRIC_NAMES[i]);
        if (rule.val) {
            st = read_rule(reader, &rule, rules, (enum scrape_metric)i, err);
        }
    }
    return st;
}

/* ---- metrics: source and limits -------------------------------------------------------------- */

static enum status read_scrape_preset(const struct doc_node *node, struct scrape_plan *plan,
                                      struct error *err) {
    unsigned i = 0;
    enum status st = pool_config_read_word(node, SCRAPE_PRESET_NAMES, &i, err);
    if (st == ST_OK && node->val) {
        plan->preset = str_of(SCRAPE_PRESETS[i].name);
        scrape_source_init(&plan->source, &SCRAPE_PRESETS[i]);
    }
    return st;
}

static enum status read_scrape_tls(struct pool_config_reader *reader, const struct doc_node *node,
                                   struct scrape_plan *plan, struct error *err) {
    struct doc_node ca = doc_get(node, "ca_file"), skip = doc_get(node, "insecure_skip_verify");
    enum status st = doc_read_bool(&skip, &plan->insecure_skip_verify, err);
    if (st == ST_OK && ca.val) {
        st = pool_config_read_name(reader, &ca, &plan->ca_file, err);
    }
    if (st != ST_OK || plan->https) {
        return st;
    }
    if (ca.val || plan->insecure_skip_verify) {
        return doc_error(ca.val ? &ca : &skip, err, "expected `scheme: https` with it");
    }
    return ST_OK;
}

static enum status read_scrape_source(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct scrape_plan *plan,
                                      struct error *err) {
    static const char *const schemes[] = {"http", "https", NULL};
    struct doc_node path = doc_get(node, "path"), port = doc_get(node, "port");
    struct doc_node scheme = doc_get(node, "scheme"), token = doc_get(node, "token_file");
    unsigned word = 0;
    enum status st = pool_config_read_path(reader, &path, &plan->source.path, err);
    if (st == ST_OK) {
        st = pool_config_read_port(&port, &plan->source.port, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&scheme, schemes, &word, err);
    }
    plan->https = word == 1;
    if (st == ST_OK && plan->source.path.len > POOL_CONFIG_MAX_PATH) {
        return doc_error(&path, err, "expected at most %d bytes, got %zu", POOL_CONFIG_MAX_PATH,
                         plan->source.path.len);
    }
    if (st == ST_OK) {
        st = read_scrape_tls(reader, node, plan, err);
    }
    return st == ST_OK && token.val ? pool_config_read_name(reader, &token, &plan->token_file, err)
                                    : st;
}

static enum status read_scrape_times(const struct doc_node *node, struct scrape_plan *plan,
                                     struct error *err) {
    struct doc_node interval = doc_get(node, "interval"), timeout = doc_get(node, "timeout");
    struct doc_node age = doc_get(node, "max_age");
    enum status st = pool_config_read_duration(&interval, LEAST_INTERVAL_MS * NS_PER_MS,
                                               NS_PER_HOUR, &plan->interval_ns, err);
    if (st == ST_OK) {
        st = pool_config_read_duration(&timeout, NS_PER_MS, NS_PER_HOUR, &plan->timeout_ns, err);
    }
    return st == ST_OK
               ? pool_config_read_duration(&age, NS_PER_MS, NS_PER_HOUR, &plan->max_age_ns, err)
               : st;
}

static enum status read_scrape_limits(const struct doc_node *node, struct scrape_plan *plan,
                                      struct error *err) {
    struct doc_node most = doc_get(node, "most_per_second"), page = doc_get(node, "max_page_bytes");
    int64_t n = plan->most_per_second, n_bytes = (int64_t)plan->max_page_bytes;
    enum status st = doc_read_i64(&most, 1, MOST_MOST_PER_SECOND, &n, err);
    if (st == ST_OK) {
        st = doc_read_i64(&page, 1, MOST_PAGE_BYTES, &n_bytes, err);
    }
    plan->most_per_second = (uint32_t)n;
    plan->max_page_bytes = (size_t)n_bytes;
    return st;
}

/* ---- metrics: labels of endpoints ------------------------------------------------------------ */

static enum status check_endpoint(const struct doc_node *node, const struct scrape_plan *plan,
                                  const struct pool_spec_endpoint *wanted, const char *text,
                                  struct error *err) {
    struct scrape_request place;
    return scrape_plan_resolve(plan, wanted, &place)
               ? ST_OK
               : doc_error(node, err,
                           "the endpoint %s can't be scraped: expected a label with a preset's "
                           "name (sluice, triton, vllm, sglang, tensorrt-llm, trtllm-serve) or "
                           "`preset` here, and a port from 1 to 65535",
                           text);
}

/* Rejects labels of endpoints that name no preset or no port. */
static enum status check_endpoints(const struct pool_config_reader *reader,
                                   const struct doc_node *node, const struct scrape_plan *plan,
                                   struct error *err) {
    const struct pool_spec *spec = reader->spec;
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < spec->n_endpoints; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        endpoint_address_print(&spec->endpoints[i].address, text);
        st = check_endpoint(node, plan, &spec->endpoints[i], text, err);
    }
    for (size_t i = 0; spec->dns && st == ST_OK && i < spec->dns->n_names; i++) {
        const struct dns_plan_name *name = &spec->dns->names[i];
        struct pool_spec_endpoint wanted = {.labels = name->labels, .address.port = 1};
        st = check_endpoint(node, plan, &wanted, name->name.ptr, err);
    }
    return st;
}

static enum status read_scrape_labels(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct scrape_plan *plan,
                                      struct error *err) {
    struct doc_node preset = doc_get(node, "preset_label"), port = doc_get(node, "port_label");
    struct doc_node token = doc_get(node, "token_file_label");
    enum status st =
        token.val ? pool_config_read_name(reader, &token, &plan->token_file_label, err) : ST_OK;
    if (st == ST_OK && preset.val) {
        st = pool_config_read_name(reader, &preset, &plan->preset_label, err);
    }
    if (st == ST_OK && port.val) {
        st = pool_config_read_name(reader, &port, &plan->port_label, err);
    }
    if (st == ST_OK && preset.val && !scrape_plan_make_presets(plan, reader->spec->arena)) {
        st = pool_config_no_memory(reader, err);
    }
    return st == ST_OK ? check_endpoints(reader, node, plan, err) : st;
}

/* ---- metrics: the section -------------------------------------------------------------------- */

static enum status read_scrape_plan(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct scrape_plan *plan, struct error *err) {
    static const char *const names[] = {"preset",
                                        "rules",
                                        "port",
                                        "path",
                                        "scheme",
                                        "interval",
                                        "timeout",
                                        "max_age",
                                        "token_file",
                                        "preset_label",
                                        "port_label",
                                        "most_per_second",
                                        "max_page_bytes",
                                        "ca_file",
                                        "insecure_skip_verify",
                                        "token_file_label",
                                        NULL};
    struct doc_node preset = doc_get(node, "preset"), rules = doc_get(node, "rules");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_scrape_preset(&preset, plan, err);
    }
    if (st == ST_OK) {
        st = read_rules(reader, &rules, &plan->source.rules, err);
    }
    if (st == ST_OK) {
        st = read_scrape_source(reader, node, plan, err);
    }
    if (st == ST_OK) {
        st = read_scrape_times(node, plan, err);
    }
    if (st == ST_OK) {
        st = read_scrape_limits(node, plan, err);
    }
    if (st == ST_OK && plan->source.rules.n == 0 && !doc_get(node, "preset_label").val) {
        st = doc_error(node, err,
                       "expected `preset` (sluice, triton, vllm, sglang, tensorrt-llm or "
                       "trtllm-serve) or `rules`");
    }
    return st == ST_OK ? read_scrape_labels(reader, node, plan, err) : st;
}

enum status pool_config_read_metrics(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) {
    struct doc_node section = doc_get(node, "metrics");
    if (!doc_is_present(&section)) {
        return ST_OK;
    }
    struct scrape_plan *plan = arena_calloc(reader->spec->arena, 1, sizeof(*plan));
    if (!plan) {
        return pool_config_no_memory(reader, err);
    }
    scrape_plan_init(plan);
    reader->spec->scrape = plan;
    reader->metrics_given = true;
    return read_scrape_plan(reader, &section, plan, err);
}
