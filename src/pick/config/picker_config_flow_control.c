/* `flowControl` of an EndpointPickerConfig: who waits, how long, and how many of each priority. */
#include "core/base/num.h"
#include "pick/config/picker_config.h"

static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);
static const uint64_t DEFAULT_TTL_NS = UINT64_C(60000000000);
enum { MOST_OF_A_BAND = 5000 };

/* ---- values ---------------------------------------------------------------------------------- */

/* As Kubernetes writes quantities: "10Gi", "500M", "1k". */
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

/* 0, and what is left out, changes nothing. */
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

/* A wait of 0 is one without an end. */
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

/* ---- policies -------------------------------------------------------------------------------- */

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
               ? doc_error(&share, err, "expected 1: all of an endpoint's room is for everybody")
               : st;
}

/* ---- bands ----------------------------------------------------------------------------------- */

static const char *const BAND_NAMES[] = {"priority",          "maxBytes",          "maxRequests",
                                         "fairnessPolicyRef", "orderingPolicyRef", NULL};

/* `most`: of its requests. */
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

/* One below 0 is refused where others wait: it has no band. */
static enum status add_band(const struct picker_config_reader *self, const struct doc_node *node,
                            struct flow_band_limits *bands, size_t *n, struct error *err) {
    struct flow_band_limits band = {.max_requests = MOST_OF_A_BAND};
    struct doc_node priority = doc_get(node, "priority");
    enum status st = read_band(self, node, &band.max_requests, err);
    if (st == ST_OK) {
        st = doc_read_i64(&priority, INT32_MIN, INT32_MAX, &band.priority, err);
    }
    if (st == ST_OK && band.priority < 0) {
        return picker_config_add_note(self, node,
                                      "below priority 0 nobody waits: it is refused with 429", err);
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

static enum status read_templates(const struct picker_config_reader *self,
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
    return st == ST_OK
               ? picker_config_add_note(
                     self, &negative, "below priority 0 nobody waits: it is refused with 429", err)
               : st;
}

/* ---- the section ----------------------------------------------------------------------------- */

static enum status read_limits(const struct picker_config_reader *self, const struct doc_node *node,
                               struct pool_flow_control *flow, struct error *err) {
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
        st = read_templates(self, node, &flow->limits, err);
    }
    return st == ST_OK ? read_bands(self, &bands, &flow->limits, err) : st;
}

/* What nobody should believe to be there. */
static enum status refuse_setting(const struct doc_node *node, struct error *err) {
    struct doc_node wait = doc_get(node, "noEndpointRequestTTL");
    struct doc_node eviction = doc_get(node, "enableEviction");
    bool evict = false;
    if (doc_is_present(&wait)) {
        return doc_error(&wait, err,
                         "can't be had: where no endpoint is ready, nobody waits for one");
    }
    enum status st = doc_read_bool(&eviction, &evict, err);
    return st == ST_OK && evict
               ? doc_error(&eviction, err, "can't be had: what runs is ended for nobody else")
               : st;
}

static enum status read_section(const struct picker_config_reader *self,
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
    return st == ST_OK ? read_limits(self, node, flow, err) : st;
}

/* More than the detector? */
static bool says_more(const struct doc_node *node) {
    struct doc_node member = {0};
    while (doc_next_member(node, &member)) {
        if (strcmp(member.key, "saturationDetector") != 0) {
            return true;
        }
    }
    return false;
}

enum status picker_config_read_flow_control(const struct picker_config_reader *self,
                                            struct error *err) {
    struct doc_node node = doc_get(self->node, "flowControl");
    struct pool_flow_control *flow = &self->reader->spec->flow_control;
    bool said = doc_is_present(&node);
    if (said && self->flow_control && self->reader->flow_control_given && says_more(&node)) {
        return doc_error(&node, err, "the file says who waits already: `flow_control`");
    }
    if (self->flow_control && !self->reader->flow_control_given) {
        flow->on = true;
        flow->max_wait_ns = DEFAULT_TTL_NS;
        flow->limits.default_band_max_requests = MOST_OF_A_BAND;
    }
    enum status st = said ? read_section(self, &node, err) : ST_OK;
    return st == ST_OK && said && !self->flow_control && says_more(&node)
               ? picker_config_add_note(self, &node, "it needs `featureGates: [flowControl]`", err)
               : st;
}
