/* `saturationDetector` of an EndpointPickerConfig, which says when an endpoint is full: thresholds,
 * as releases before 1.5 have it, or a reference to a plugin that has them. */
#include "pick/config/picker_config.h"
#include "pick/config/scrape_rules.h"

static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);
static const char USUAL[] = "utilization-detector";
enum { QUEUE_DEPTH = 5, MAX_CONCURRENCY = 100 };
static const double KV_CACHE = 0.8;

/* ---- thresholds ------------------------------------------------------------------------------ */

static enum status read_share(const struct doc_node *node, double *out, struct error *err) {
    enum status st = doc_read_f64(node, out, err);
    return st == ST_OK && !(*out > 0 && *out <= 1)
               ? doc_error(node, err, "expected a share above 0, of 1 at most")
               : st;
}

static enum status read_headroom(const struct picker_config_reader *self,
                                 const struct doc_node *node, struct error *err) {
    double headroom = 0;
    enum status st = doc_read_f64(node, &headroom, err);
    if (st == ST_OK && !(headroom >= 0)) {
        return doc_error(node, err, "expected 0 or more");
    }
    return st == ST_OK && headroom > 0
               ? picker_config_add_note(self, node, "an endpoint is full at its threshold", err)
               : st;
}

/* How old a load may be. */
static enum status read_age(const struct picker_config_reader *self, const struct doc_node *node,
                            struct error *err) {
    struct pool_spec *spec = self->reader->spec;
    uint64_t age_ns = 0;
    enum status st = picker_config_read_duration(node, NS_PER_HOUR, &age_ns, err);
    if (st != ST_OK || !node->val || !spec->scrape) {
        return st;
    }
    if (age_ns == 0) {
        return doc_error(node, err, "expected a time above 0");
    }
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    if (!plan) {
        return pool_config_no_memory(self->reader, err);
    }
    *plan = *spec->scrape;
    plan->max_age_ns = age_ns;
    spec->scrape = plan;
    return ST_OK;
}

/* They take the place of our own limit, which stays where nobody would be full otherwise. */
static enum status read_utilization(const struct picker_config_reader *self,
                                    const struct doc_node *said, const struct doc_node *node,
                                    struct error *err) {
    static const char *const names[] = {"queueDepthThreshold", "kvCacheUtilThreshold",
                                        "metricsStalenessThreshold", "headroom", NULL};
    struct pool_spec *spec = self->reader->spec;
    struct doc_node depth = doc_get(node, names[0]), used = doc_get(node, names[1]);
    struct doc_node age = doc_get(node, names[2]), headroom = doc_get(node, names[3]);
    spec->queue_depth = QUEUE_DEPTH;
    spec->kv_cache = KV_CACHE;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&depth, 1, INT32_MAX, &spec->queue_depth, err);
    }
    if (st == ST_OK) {
        st = read_share(&used, &spec->kv_cache, err);
    }
    if (st == ST_OK) {
        st = read_headroom(self, &headroom, err);
    }
    if (st == ST_OK) {
        st = read_age(self, &age, err);
    }
    if (st != ST_OK || spec->scrape) {
        spec->max_in_flight = 0;
        return st;
    }
    return picker_config_add_note(
        self, said,
        "thresholds need `metrics`: without it an endpoint is full by our own "
        "requests in flight",
        err);
}

static enum status read_concurrency(const struct picker_config_reader *self,
                                    const struct doc_node *node, struct error *err) {
    static const char *const names[] = {"maxConcurrency",           "headroom",
                                        "concurrencyMode",          "maxTokenConcurrency",
                                        "inFlightLoadProducerName", NULL};
    static const char *const modes[] = {"requests", NULL};
    struct doc_node most = doc_get(node, names[0]), headroom = doc_get(node, names[1]);
    struct doc_node mode = doc_get(node, names[2]), tokens = doc_get(node, names[3]);
    unsigned word;
    uint64_t unused = 1;
    self->reader->spec->max_in_flight = MAX_CONCURRENCY;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st =
            pool_config_read_unsigned(&most, 1, INT32_MAX, &self->reader->spec->max_in_flight, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&mode, modes, &word, err); /* what runs is counted by requests */
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&tokens, 1, INT64_MAX, &unused, err);
    }
    return st == ST_OK ? read_headroom(self, &headroom, err) : st;
}

/* ---- which detector -------------------------------------------------------------------------- */

/* What it is told, and by whom. */
struct detector {
    struct doc_node flow, said, ref;
    struct picker_plugin plugin;
};

/* That of `flowControl` counts, where there are two. */
static void find_section(const struct picker_config_reader *self, struct detector *out) {
    out->flow = doc_get(self->node, "flowControl");
    out->said = doc_get(&out->flow, "saturationDetector");
    if (!doc_is_present(&out->said)) {
        out->said = doc_get(self->node, "saturationDetector");
    }
    out->ref = doc_get(&out->said, "pluginRef");
}

static bool has_thresholds(const struct detector *detector) {
    struct doc_node member = {0};
    return !doc_is_present(&detector->ref) && doc_next_member(&detector->said, &member);
}

static enum status read_reference(const struct picker_config_reader *self,
                                  struct detector *detector, struct error *err) {
    static const char *const names[] = {"pluginRef", NULL};
    enum status st = doc_reject_unknown(&detector->said, names, err);
    if (st == ST_OK) {
        st = picker_plugin_find_by_ref(self, &detector->ref, PICKER_PLUGIN_DETECTOR,
                                       &detector->plugin, err);
    }
    if (st != ST_OK) {
        return st;
    }
    return strcmp(detector->plugin.part->type, USUAL) == 0
               ? read_utilization(self, &detector->ref, &detector->plugin.parameters, err)
               : read_concurrency(self, &detector->plugin.parameters, err);
}

/* Upstream has one in any case. Here it counts where somebody speaks of it, or lets requests
 * wait. */
enum status picker_config_read_saturation_detector(const struct picker_config_reader *self,
                                                   struct error *err) {
    struct detector detector = {.flow = {0}};
    find_section(self, &detector);
    bool said = doc_is_present(&detector.said);
    bool declared = picker_plugin_find_by_name(self, str_of(USUAL), &detector.plugin);
    if (!said && !declared && (!self->flow_control || self->reader->saturation_limits_given)) {
        return ST_OK;
    }
    const struct doc_node *where = said ? &detector.said : &detector.plugin.item;
    if (self->reader->saturation_limits_given) {
        return doc_error(where, err,
                         "the file says when an endpoint is full already: `saturation`");
    }
    enum status st = said ? doc_expect_object(&detector.said, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    if (has_thresholds(&detector)) {
        return read_utilization(self, &detector.said, &detector.said, err);
    }
    return doc_is_present(&detector.ref)
               ? read_reference(self, &detector, err)
               : read_utilization(self, &detector.said, &detector.plugin.parameters, err);
}
