/* Which requests wait for a full pool, how long and in which order: our section `flow_control`, and
 * upstream's `flowControl` with its bands and policies. Both fill a struct pool_flow_control. */
#include "core/base/num.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Ours: "256MiB", or a number of bytes. */
static void read_bytes(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct doc_member *row = reader->row;
    struct str text = {NULL, 0};
    uint64_t n_bytes;
    if (doc_is_whole(node)) {
        doc_reader_u64(reader, node, row->min, row->max, out);
        return;
    }
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (num_parse_bytes(text, &n_bytes) && n_bytes >= (uint64_t)row->min &&
        n_bytes <= (uint64_t)row->max) {
        *(uint64_t *)out = n_bytes;
    } else {
        doc_reader_fail(reader, node, "expected a size from 64KiB to 1024GiB, got \"%.*s\"",
                        STR_ARG(text));
    }
}

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

/* Upstream's numbers of bytes and of requests, within the bounds of the row. A value of 0 or an
 * absent one leaves `*out` unchanged. */
static void read_quantity(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t least = (uint64_t)reader->row->min, most = (uint64_t)reader->row->max, value = 0;
    struct str text = {NULL, 0};
    double number = 0;
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
        *(uint64_t *)out = value;
    }
}

/* A time as Go writes it; 0: without a limit, which is as good as 292 years. */
static void read_ttl(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t *ns = out;
    doc_reader_go_duration(reader, node, ns);
    if (node->val && *ns == 0) {
        *ns = POOL_WAIT_FOREVER;
    }
}

/* ---- bands ----------------------------------------------------------------------------------- */

#define RULES struct flow_band_rules
static const char *const FAIRNESS_WORDS[] = {"round-robin", "global-strict", NULL};
static const char *const ORDERING_WORDS[] = {"arrival", "deadline", NULL};

static void check_band(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    (void)unused;
    if (!node->val) {
        doc_reader_fail(reader, node->parent, "expected a priority");
    }
}

const struct doc_member POOL_CONFIG_BAND[] = {
    {"priority", MEMBER_WHOLE(RULES, priority, INT32_MIN, INT32_MAX), .check = check_band,
     .help = "of the requests"},
    {"max_requests", MEMBER_WHOLE(RULES, max_requests, 0, POOL_CONFIG_MAX_WAITING),
     .help = "of them that may wait; left out, only the queue's limit"},
    {"max_bytes", MEMBER_CUSTOM_NUMBER(RULES, max_bytes, read_bytes), .min = POOL_CONFIG_MIN_BYTES,
     .max = POOL_CONFIG_MAX_BYTES, .unit = DOC_UNIT_BYTES,
     .help = "their buffered bodies together; left out, only the queue's limit"},
    {"max_wait", MEMBER_DURATION(RULES, max_wait_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "in place of the queue's"},
    {"fairness", MEMBER_WORD(RULES, fairness, FAIRNESS_WORDS), .help = "in place of the queue's"},
    {"ordering", MEMBER_WORD(RULES, ordering, ORDERING_WORDS), .help = "in place of the queue's"},
    {0}};

/* ---- upstream's bands ------------------------------------------------------------------------ */

static const char *const STRATEGY_WORDS[] = {"las", "turn-priority", NULL};

#define PROGRAMS struct program_rules
const struct doc_member PICKER_PROGRAM_AWARE[] = {
    {"strategy", MEMBER_WORD(PROGRAMS, strategy, STRATEGY_WORDS),
     .help = "the least attained service is first, or the conversation with the most turns"},
    {"lasWeightService", MEMBER_NUMBER(PROGRAMS, weight_service, 0, INT32_MAX), .preset = 0.8,
     .help = "of how little the program was served"},
    {"lasWeightHeadWait", MEMBER_NUMBER(PROGRAMS, weight_head_wait, 0, INT32_MAX), .preset = 0.2,
     .help = "of how long its first request waits"},
    {"lasHalfLifeSeconds", MEMBER_NUMBER(PROGRAMS, half_life_s, 0, INT32_MAX), .preset = 60,
     .help = "in which service is halved; 0: it does not fade"},
    {"turnPriorityTimeWeight", MEMBER_NUMBER(PROGRAMS, time_weight, 0, INT32_MAX), .preset = 0.05,
     .help = "`turn-priority`: turns that a second of its first request's wait counts as"},
    {"turnPriorityInactivitySeconds", MEMBER_NUMBER(PROGRAMS, inactivity_s, 0, INT32_MAX),
     .preset = 120,
     .help = "`turn-priority`: without a request for so long a program begins anew; 0: never"},
    {"evictionTtlSeconds", MEMBER_NUMBER(PROGRAMS, ttl_s, 0, INT32_MAX), .preset = 3600,
     .help = "after which a program without requests is forgotten; 0: never"},
    {"evictionSweepSeconds", MEMBER_UNUSED_NUMBER(0, INT32_MAX), .above_min = true,
     .text = "expected more than 0", .help = "nothing: programs are forgotten one by one"},
    {0}};
#undef PROGRAMS

/* There is one table of programs. */
static void use_programs(struct doc_reader *reader, const struct doc_node *node,
                         const struct program_rules *rules) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    const struct program_rules *other = &pool->programs;
    bool is_equal = other->weight_service == rules->weight_service &&
                    other->weight_head_wait == rules->weight_head_wait &&
                    other->half_life_s == rules->half_life_s && other->ttl_s == rules->ttl_s &&
                    other->strategy == rules->strategy &&
                    other->time_weight == rules->time_weight &&
                    other->inactivity_s == rules->inactivity_s;
    if (pool->has_programs && !is_equal) {
        doc_reader_fail(reader, node, "expected one program-aware-fairness for all bands");
    }
    pool->has_programs = true;
    pool->programs = *rules;
}

static void read_fairness(struct doc_reader *reader, const struct doc_node *node, void *out) {
    enum flow_fairness *fairness = out;
    if (doc_is_present(node)) {
        const struct picker_plugin plugin =
            picker_plugin_of_ref(reader, node, PICKER_PLUGIN_FAIRNESS);
        bool is_strict =
            plugin.type && strcmp(plugin.type->type, "global-strict-fairness-policy") == 0;
        *fairness = is_strict ? FLOW_GLOBAL_STRICT : FLOW_ROUND_ROBIN;
        if (plugin.type && plugin.type->parameters == PICKER_PROGRAM_AWARE) {
            *fairness = FLOW_BY_PROGRAM;
            use_programs(reader, node, plugin.settings);
        }
    }
}

/* Requests of a band have one TTL, so the earliest deadline first is the order of arrival. */
static void read_ordering(struct doc_reader *reader, const struct doc_node *node, void *out) {
    enum flow_ordering *ordering = out;
    if (doc_is_present(node)) {
        const struct picker_plugin plugin =
            picker_plugin_of_ref(reader, node, PICKER_PLUGIN_ORDERING);
        bool by_slo = plugin.type && strcmp(plugin.type->type, "slo-deadline-ordering-policy") == 0;
        *ordering = by_slo ? FLOW_BY_DEADLINE : FLOW_BY_ARRIVAL;
    }
}

/* Upstream's defaults. */
static const struct flow_band_rules PICKER_BAND_DEFAULTS = {
    .max_requests = 5000,
    .max_bytes = 1000000000,
    .fairness = FLOW_GLOBAL_STRICT,
    .ordering = FLOW_BY_ARRIVAL,
};

const struct doc_member PICKER_BAND[] = {
    {"maxRequests", MEMBER_CUSTOM_NUMBER(RULES, max_requests, read_quantity), .min = 1,
     .max = POOL_CONFIG_MAX_WAITING, .form = "a quantity: 0, or",
     .help = "requests of the priority that may wait; 5000"},
    {"maxBytes", MEMBER_CUSTOM_NUMBER(RULES, max_bytes, read_quantity), .min = 1,
     .max = INT64_C(1) << 60, .unit = DOC_UNIT_BYTES, .form = "a quantity: 0, or",
     .help = "their buffered bodies together; 1G"},
    {"defaultRequestTTL", MEMBER_CUSTOM_NUMBER(RULES, max_wait_ns, read_ttl), .max = INT64_MAX,
     .form = "a time:", .unit = DOC_UNIT_NS, .help = "in place of that of `flowControl`"},
    {"fairnessPolicyRef", MEMBER_CUSTOM_FIELD(RULES, fairness, enum flow_fairness, read_fairness),
     .form = "a plugin", .help = "which fairness id is next; `global-strict-fairness-policy`"},
    {"orderingPolicyRef", MEMBER_CUSTOM_FIELD(RULES, ordering, enum flow_ordering, read_ordering),
     .form = "a plugin", .help = "which request of it; `fcfs-ordering-policy`"},
    {"priority", MEMBER_WHOLE(RULES, priority, INT32_MIN, INT32_MAX), .help = "of the band"},
    {0}};

/* Each item begins as `defaults`. */
static void read_bands(struct doc_reader *reader, const struct doc_node *list,
                       const struct doc_member *members, const struct flow_band_rules *defaults,
                       struct flow_limits *out) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > POOL_CONFIG_MAX_BANDS) {
        doc_reader_fail(reader, list, "expected at most %d priorities, got %zu",
                        POOL_CONFIG_MAX_BANDS, n);
    }
    if (n == 0) {
        return;
    }
    struct flow_band_rules *bands = doc_reader_calloc(reader, n, sizeof(*bands));
    out->bands = bands;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        struct flow_band_rules *band = &bands[out->n_bands];
        doc_reader_expect_object(reader, &item);
        *band = *defaults;
        doc_reader_object(reader, &item, members, band);
        for (size_t i = 0; i < out->n_bands; i++) {
            if (bands[i].priority == band->priority) {
                doc_reader_fail(reader, &item, "the priority %lld is there twice",
                                (long long)band->priority);
            }
        }
        out->n_bands++;
    }
}

/* `out`: a const struct flow_band_rules *. */
static void read_band_template(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct flow_band_rules **rules = out;
    struct flow_band_rules *band =
        doc_is_present(node) ? doc_reader_calloc(reader, 1, sizeof(*band)) : NULL;
    if (band) {
        *band = PICKER_BAND_DEFAULTS;
        doc_reader_object(reader, node, PICKER_BAND, band);
        *rules = band;
    }
}

static void read_picker_bands(struct doc_reader *reader, const struct doc_node *list,
                              void *limits) {
    read_bands(reader, list, PICKER_BAND, &PICKER_BAND_DEFAULTS, limits);
}
#undef RULES

/* ---- usage limits ---------------------------------------------------------------------------- */

#define USAGE struct usage_limit
static const char *const USAGE_WORDS[] = {
    "whole", "static", "holdback-by-rank", "holdback-by-value", "soft-reflective", NULL};

static void check_ceilings(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct usage_limit *limit = object;
    bool is_holdback = limit->kind == USAGE_HOLDBACK_RANK || limit->kind == USAGE_HOLDBACK_VALUE;
    if (is_holdback && !node->val) {
        doc_reader_fail(reader, node, "expected the share for the lowest priority");
    } else if (is_holdback && limit->min_ceiling >= limit->max_ceiling) {
        doc_reader_fail(reader, node, "expected less than %g, the share for the highest priority",
                        limit->max_ceiling);
    }
}

const struct doc_member POOL_CONFIG_USAGE_LIMIT[] = {
    {"policy", MEMBER_WORD(USAGE, kind, USAGE_WORDS),
     .help = "which share of an endpoint's capacity is for requests of a priority"},
    {"max_ceiling", MEMBER_SHARE(USAGE, max_ceiling, false), .preset = 1,
     .help = "`static`: the share for all; `holdback-…`: for the highest priority"},
    {"min_ceiling", MEMBER_SHARE(USAGE, min_ceiling, true), .check = check_ceilings,
     .help = "`holdback-…`: for the lowest priority"},
    {0}};

const struct doc_member PICKER_STATIC_USAGE[] = {
    {"threshold", MEMBER_SHARE(USAGE, max_ceiling, false), .preset = 1,
     .help = "share of the capacity for each priority"},
    {0}};

static const char *const SHAPE_WORDS[] = {"linear", NULL};
static const char *const DOMAIN_WORDS[] = {"rank", "value", NULL};

static void read_domain(struct doc_reader *reader, const struct doc_node *node, void *out) {
    enum usage_limit_kind *kind = out;
    unsigned word = 0;
    doc_reader_word(reader, node, DOMAIN_WORDS, NULL, &word);
    *kind = word == 0 ? USAGE_HOLDBACK_RANK : USAGE_HOLDBACK_VALUE;
}

const struct doc_member PICKER_HOLDBACK[] = {
    {"shape", MEMBER_UNUSED_WORD(SHAPE_WORDS), .help = "linear"},
    {"domain", MEMBER_CUSTOM_FIELD(USAGE, kind, enum usage_limit_kind, read_domain),
     .form = "`rank` or `value`",
     .help = "equal steps, or by the numbers of the priorities; `rank`"},
    {"maxCeiling", MEMBER_SHARE(USAGE, max_ceiling, false), .preset = 1,
     .help = "share of the capacity for the highest priority"},
    {"minCeiling", MEMBER_SHARE(USAGE, min_ceiling, true), .check = check_ceilings,
     .help = "for the lowest; required"},
    {0}};

/* It has no parameters. */
const struct doc_member PICKER_SOFT_CEILING[] = {{0}};
#undef USAGE

static void read_usage_limit(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct usage_limit *limit = out;
    if (!doc_is_present(node)) {
        return;
    }
    struct picker_plugin plugin = picker_plugin_of_ref(reader, node, PICKER_PLUGIN_LIMIT);
    if (!doc_reader_ok(reader) || !plugin.type) {
        return;
    }
    if (plugin.type->parameters == PICKER_HOLDBACK && !plugin.parameters.val) {
        doc_reader_fail(reader, node, "expected the name of a plugin with a minCeiling");
    }
    *limit = *(const struct usage_limit *)plugin.settings;
    if (plugin.type->parameters == PICKER_STATIC_USAGE) {
        limit->kind = limit->max_ceiling < 1 ? USAGE_STATIC : USAGE_WHOLE;
    } else if (plugin.type->parameters == PICKER_SOFT_CEILING) {
        limit->kind = USAGE_SOFT_REFLECTIVE;
    }
}

/* ---- our section ----------------------------------------------------------------------------- */

static void read_our_bands(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct pool_config_flow *our = object;
    read_bands(reader, list, POOL_CONFIG_BAND, &our->others, &our->flow.limits);
}

#define FLOW struct pool_config_flow
const struct doc_member POOL_CONFIG_FLOW_CONTROL[] = {
    {"max_requests", MEMBER_WHOLE(FLOW, flow.limits.max_requests, 1, POOL_CONFIG_MAX_WAITING),
     .help = "requests that may wait"},
    {"max_bytes", MEMBER_CUSTOM_NUMBER(FLOW, flow.limits.max_bytes, read_bytes),
     .min = POOL_CONFIG_MIN_BYTES, .max = POOL_CONFIG_MAX_BYTES, .unit = DOC_UNIT_BYTES,
     .help = "their buffered bodies together"},
    {"max_wait", MEMBER_DURATION(FLOW, flow.max_wait_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "time after which a waiting request is refused"},
    {"no_endpoint_wait", MEMBER_DURATION(FLOW, flow.no_endpoint_wait_ns, 0, CONFIG_HOUR),
     .help = "time that a request waits while no endpoint is ready; 0: it is refused at once"},
    {"sheddable_waits", MEMBER_BOOL(FLOW, flow.sheddable_waits),
     .help = "requests of a priority below 0 wait, too; false: they are refused"},
    {"fairness", MEMBER_WORD(FLOW, others.fairness, FAIRNESS_WORDS),
     .help = "which fairness id of a priority is next"},
    {"ordering", MEMBER_WORD(FLOW, others.ordering, ORDERING_WORDS),
     .help = "which request of it: the first, or that with the earliest deadline"},
    {"usage_limit", MEMBER_OBJECT(POOL_CONFIG_USAGE_LIMIT),
     .offset = DOC_MEMBER_OFFSET(FLOW, flow.usage, struct usage_limit),
     .help = "what each priority may use of an endpoint's capacity"},
    {"bands", MEMBER_CUSTOM(read_our_bands), .form = "up to 64 bands",
     .help = "what holds for some priorities"},
    {0}};
#undef FLOW

void pool_config_read_flow_control(struct doc_reader *reader, const struct doc_node *node,
                                   void *object) {
    struct pool_flow_control *flow = object;
    struct pool_config_flow our = {
        .flow = *flow, .others = {.max_requests = FLOW_UNLIMITED, .max_bytes = FLOW_UNLIMITED}};
    pool_config_reader_of(reader)->flow_control_given = node->val != NULL;
    doc_reader_presets(POOL_CONFIG_USAGE_LIMIT, &our.flow.usage);
    doc_reader_object(reader, node, POOL_CONFIG_FLOW_CONTROL, &our);
    struct flow_band_rules *others =
        node->val ? doc_reader_calloc(reader, 1, sizeof(*others)) : NULL;
    if (others) {
        *others = our.others;
        *flow = our.flow;
        flow->on = true;
        flow->limits.others = others;
    }
}

/* ---- upstream's section ---------------------------------------------------------------------- */

/* Left out, the TTL is that of a pool with endpoints. */
static void follow_ttl(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct pool_flow_control *flow = object;
    (void)reader;
    if (!node->val) {
        flow->no_endpoint_wait_ns = flow->max_wait_ns;
    }
}

/* With a concurrency-detector what ends is free at once, but for the order of events; otherwise
 * when the server has noticed, and loads that were scraped before are too old. */
static void check_eviction(struct doc_reader *reader, const struct doc_node *node, void *object) {
    enum { GRACE_MS = 10, SERVER_MS = 250 };
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct pool_flow_control *flow = object;
    enum detector_kind kind = pool->spec->detector.kind;
    flow->evict_grace_ns = GRACE_MS * CONFIG_MS;
    if (kind == DETECTOR_LOADS && pool->scrape) {
        flow->evict_grace_ns =
            pool->scrape->interval_ns + pool->scrape->max_age_ns + SERVER_MS * CONFIG_MS;
    }
    if (flow->evicts && pool->flow_control_gate && kind == DETECTOR_NONE) {
        doc_reader_fail(reader, node,
                        "expected a concurrency-detector, or loads that are scraped (`metrics`): "
                        "the saturation of the pool decides");
    }
}

#define DEFAULT_TTL_NS (60 * CONFIG_S)
#define FLOW struct pool_flow_control
const struct doc_member PICKER_FLOW_CONTROL[] = {
    {"enableEviction", MEMBER_BOOL(FLOW, evicts), .check = check_eviction,
     .help = "running requests of a priority below 0 are ended for waiting ones of a higher one"},
    {"usageLimitPolicyPluginRef",
     MEMBER_CUSTOM_FIELD(FLOW, usage, struct usage_limit, read_usage_limit), .form = "a plugin",
     .help = "what each priority may use of an endpoint's capacity; all of it"},
    {"maxBytes", MEMBER_CUSTOM_NUMBER(FLOW, limits.max_bytes, read_quantity),
     .min = POOL_CONFIG_MIN_BYTES, .max = POOL_CONFIG_MAX_BYTES, .unit = DOC_UNIT_BYTES,
     .form = "a quantity: 0, or", .help = "`flow_control: {max_bytes}`; no limit"},
    {"maxRequests", MEMBER_CUSTOM_NUMBER(FLOW, limits.max_requests, read_quantity), .min = 1,
     .max = POOL_CONFIG_MAX_WAITING, .form = "a quantity: 0, or",
     .help = "`flow_control: {max_requests}`; no limit"},
    {"defaultRequestTTL", MEMBER_CUSTOM_NUMBER(FLOW, max_wait_ns, read_ttl), .max = INT64_MAX,
     .preset = DEFAULT_TTL_NS, .form = "a time:", .unit = DOC_UNIT_NS,
     .help = "`flow_control: {max_wait}`; 0: no limit"},
    {"noEndpointRequestTTL", MEMBER_CUSTOM_NUMBER(FLOW, no_endpoint_wait_ns, read_ttl),
     .max = INT64_MAX, .check = follow_ttl, .form = "a time:", .unit = DOC_UNIT_NS,
     .help = "`flow_control: {no_endpoint_wait}`; left out, `defaultRequestTTL`. 0: no limit"},
    {"defaultPriorityBand",
     MEMBER_CUSTOM_FIELD(FLOW, limits.others, const struct flow_band_rules *, read_band_template),
     .form = "a band", .help = "of each priority without one"},
    {"defaultNegativePriorityBand",
     MEMBER_CUSTOM_FIELD(FLOW, limits.negative, const struct flow_band_rules *, read_band_template),
     .form = "a band", .help = "of each priority below 0 without one; `defaultPriorityBand`"},
    {"priorityBands", MEMBER_CUSTOM_FIELD(FLOW, limits, struct flow_limits, read_picker_bands),
     .form = "up to 64 bands", .help = "`flow_control: {bands}`"},
    {"saturationDetector", MEMBER_BY_CALLER, .form = "`{pluginRef}`",
     .help = "as the member of the document"},
    {0}};
#undef FLOW

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

void picker_read_flow_control(struct doc_reader *reader, const struct doc_node *document) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct pool_flow_control flow = {.on = true, .sheddable_waits = true};
    struct doc_node node = doc_get(document, "flowControl");
    bool limits = doc_is_present(&node) && has_flow_limits(&node);
    if (limits && pool->flow_control_gate && pool->flow_control_given) {
        doc_reader_fail(reader, &node, "the file has `flow_control` already");
    }
    doc_reader_presets(PICKER_FLOW_CONTROL, &flow);
    flow.limits = (struct flow_limits){.max_requests = FLOW_UNLIMITED,
                                       .max_bytes = FLOW_UNLIMITED,
                                       .others = &PICKER_BAND_DEFAULTS};
    if (doc_is_present(&node)) {
        doc_reader_object(reader, &node, PICKER_FLOW_CONTROL, &flow);
    } else {
        flow.no_endpoint_wait_ns = flow.max_wait_ns;
    }
    flow.has_programs = pool->has_programs;
    flow.programs = pool->programs;
    if (pool->flow_control_gate && !pool->flow_control_given) {
        pool->spec->flow_control = flow;
    }
    if (limits && !pool->flow_control_gate) {
        pool_config_add_note(reader, &node, "it needs `featureGates: [flowControl]`");
    }
}
