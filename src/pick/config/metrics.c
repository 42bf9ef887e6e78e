/* The section `metrics`: how endpoints are asked for their loads. */
#include "pick/config/dns_plan.h"
#include "pick/config/reader.h"
#include "pick/config/scrape_rules.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);
enum { LEAST_INTERVAL_MS = 50, MOST_MOST_PER_SECOND = 100000, MOST_PAGE_BYTES = 64 << 20 };

/* ---- a rule ---------------------------------------------------------------------------------- */

/* Prometheus, "Data model": the name of a series, or of a label, which has no colon. */
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

/* The name of a series, or an object. */
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

/* ---- where, and how often -------------------------------------------------------------------- */

static enum status read_preset(const struct doc_node *node, struct scrape_plan *plan,
                               struct error *err) {
    unsigned i = 0;
    enum status st = pool_config_read_word(node, SCRAPE_PRESET_NAMES, &i, err);
    if (st == ST_OK && node->val) {
        plan->preset = str_of(SCRAPE_PRESETS[i].name);
        scrape_source_init(&plan->source, &SCRAPE_PRESETS[i]);
    }
    return st;
}

static enum status read_tls(struct pool_config_reader *reader, const struct doc_node *node,
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

static enum status read_place(struct pool_config_reader *reader, const struct doc_node *node,
                              struct scrape_plan *plan, struct error *err) {
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
        st = read_tls(reader, node, plan, err);
    }
    return st == ST_OK && token.val ? pool_config_read_name(reader, &token, &plan->token_file, err)
                                    : st;
}

static enum status read_times(const struct doc_node *node, struct scrape_plan *plan,
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

static enum status read_limits(const struct doc_node *node, struct scrape_plan *plan,
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

/* ---- labels of endpoints --------------------------------------------------------------------- */

static enum status check_endpoint(const struct doc_node *node, const struct scrape_plan *plan,
                                  const struct pool_spec_endpoint *wanted, const char *text,
                                  struct error *err) {
    struct scrape_request place;
    return scrape_plan_resolve(plan, wanted, &place)
               ? ST_OK
               : doc_error(node, err,
                           "the endpoint %s can't be asked: expected a label with a preset's "
                           "name (sluice, triton, vllm, sglang, tensorrt-llm, trtllm-serve) or "
                           "`preset` here, and a port from 1 to 65535",
                           text);
}

/* What an endpoint's label says must be possible. */
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

static enum status read_labels(struct pool_config_reader *reader, const struct doc_node *node,
                               struct scrape_plan *plan, struct error *err) {
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

/* ---- the section ----------------------------------------------------------------------------- */

static enum status read_plan(struct pool_config_reader *reader, const struct doc_node *node,
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
        st = read_preset(&preset, plan, err);
    }
    if (st == ST_OK) {
        st = read_rules(reader, &rules, &plan->source.rules, err);
    }
    if (st == ST_OK) {
        st = read_place(reader, node, plan, err);
    }
    if (st == ST_OK) {
        st = read_times(node, plan, err);
    }
    if (st == ST_OK) {
        st = read_limits(node, plan, err);
    }
    if (st == ST_OK && plan->source.rules.n == 0 && !doc_get(node, "preset_label").val) {
        st = doc_error(node, err,
                       "expected `preset` (sluice, triton, vllm, sglang, tensorrt-llm or "
                       "trtllm-serve) or `rules`");
    }
    return st == ST_OK ? read_labels(reader, node, plan, err) : st;
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
    return read_plan(reader, &section, plan, err);
}
