/* How the loads of endpoints are scraped: our section `metrics`, which fills a struct scrape_plan.
 * Upstream's plugins for it are read by data_sources.c. */
#include <string.h>

#include "pick/config/dns_plan.h"
#include "pick/config/reader.h"
#include "pick/config/scrape_rules.h"

/* ---- rules ----------------------------------------------------------------------------------- */

static void read_series(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_name(reader, node, out);
    if (!scrape_is_series_name(*name, true)) {
        doc_reader_fail(reader, node,
                        "expected a name of letters, digits and _ and :, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void read_value_label(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !scrape_is_series_name(*name, false)) {
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
    if (rule->rate && rule->combine >= SCRAPE_NEWEST) {
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

static void read_preset(struct doc_reader *reader, const struct doc_node *node, void *plan) {
    unsigned preset = N_SCRAPE_PRESETS;
    doc_reader_word(reader, node, SCRAPE_PRESET_NAMES, NULL, &preset);
    if (preset < N_SCRAPE_PRESETS) {
        scrape_plan_use_preset(plan, (enum scrape_preset_index)preset);
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
    {"scheme", MEMBER_CUSTOM_FIELD(PLAN, https, bool, pool_config_read_https),
     .form = "`http` or `https`", .help = "of the page; `http`"},
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

struct scrape_plan *pool_config_new_scrape_plan(struct doc_reader *reader) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct scrape_plan *plan = doc_reader_calloc(reader, 1, sizeof(*plan));
    if (plan) {
        scrape_plan_init(plan);
        pool->spec->scrape = pool->scrape = plan;
    }
    return plan;
}

/* Whether it says when loads are scraped and nothing else but a preset, as upstream's flag
 * --refresh-metrics-interval does: then its plugins still say what is scraped. */
static bool has_times_only(const struct doc_node *node) {
    size_t n_times = 0, n_others = 0;
    for (struct doc_node member = {0}; doc_next_member(node, &member);) {
        bool is_time = strcmp(member.key, "interval") == 0 || strcmp(member.key, "timeout") == 0 ||
                       strcmp(member.key, "max_age") == 0;
        n_times += is_time;
        n_others += !is_time && strcmp(member.key, "preset") != 0;
    }
    return n_times > 0 && n_others == 0;
}

void pool_config_read_metrics(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    struct scrape_plan *plan = doc_is_present(node) ? pool_config_new_scrape_plan(reader) : NULL;
    (void)spec;
    if (plan) {
        pool_config_reader_of(reader)->metrics_given = !has_times_only(node);
        doc_reader_object(reader, node, POOL_CONFIG_METRICS, plan);
    }
}
