/* Plugins of an EndpointPickerConfig that say how endpoints are asked for their loads:
 * `metrics-data-source`, where, and `core-metrics-extractor`, of which kind they are. A section
 * `metrics` of our own, or flags for it, come before them. */
#include "pick/config/picker_config.h"
#include "pick/config/scrape_rules.h"

static const uint64_t LEAST_NS = 50000000, NS_PER_HOUR = UINT64_C(3600000000000);
static const char SOURCE[] = "metrics-data-source", EXTRACTOR[] = "core-metrics-extractor";

/* ---- the plan -------------------------------------------------------------------------------- */

static void use_preset(struct scrape_plan *plan, const char *name) {
    size_t i = 0;
    while (strcmp(SCRAPE_PRESETS[i].name, name) != 0) {
        i++;
    }
    plan->preset = str_of(SCRAPE_PRESETS[i].name);
    scrape_source_init(&plan->source, &SCRAPE_PRESETS[i]);
}

/* What there is so far, to be changed; as upstream it is vLLM's. */
static struct scrape_plan *copy_plan(struct pool_spec *spec) {
    struct scrape_plan *plan = arena_calloc(spec->arena, 1, sizeof(*plan));
    if (plan && spec->scrape) {
        *plan = *spec->scrape;
    } else if (plan) {
        scrape_plan_init(plan);
        use_preset(plan, "vllm");
    }
    return plan;
}

/* ---- which kind ------------------------------------------------------------------------------ */

static enum status read_label(const struct doc_node *node, struct error *err) {
    static const char *const known[] = {"llm-d.ai/engine-type",
                                        "inference.networking.k8s.io/engine-type", NULL};
    unsigned unused;
    return pool_config_read_word(node, known, &unused, err); /* both count */
}

static enum status read_extractor(const struct doc_node *node, struct scrape_plan *plan,
                                  struct error *err) {
    static const char *const names[] = {"engineLabelKey", "defaultEngine", "engineConfigs", NULL};
    static const char *const engines[] = {"vllm",         "sglang", "triton", "triton-tensorrt-llm",
                                          "trtllm-serve", NULL};
    static const char *const presets[] = {"vllm", "sglang", "triton", "tensorrt-llm",
                                          "trtllm-serve"};
    struct doc_node label = doc_get(node, names[0]), engine = doc_get(node, names[1]);
    struct doc_node configs = doc_get(node, names[2]);
    unsigned word = 0;
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK && doc_is_present(&configs)) {
        return doc_error(
            &configs, err,
            "can't be had: `metrics: {rules: …}` in a document of our own form does it");
    }
    if (st == ST_OK) {
        st = read_label(&label, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&engine, engines, &word, err);
    }
    if (st == ST_OK && engine.val) {
        use_preset(plan, presets[word]);
    }
    return st;
}

/* ---- where ----------------------------------------------------------------------------------- */

static enum status read_interval(const struct doc_node *node, uint64_t *out, struct error *err) {
    enum status st = picker_config_read_duration(node, NS_PER_HOUR, out, err);
    return st == ST_OK && *out < LEAST_NS ? doc_error(node, err, "expected 50ms or more") : st;
}

/* Nobody's certificate is verified, unless it says so. */
static enum status read_tls(struct pool_config_reader *reader, const struct doc_node *node,
                            struct scrape_plan *plan, struct error *err) {
    struct doc_node skip = doc_get(node, "insecureSkipVerify"), ca = doc_get(node, "caCertPath");
    struct str file = {NULL, 0};
    bool trusts = true;
    enum status st = doc_read_bool(&skip, &trusts, err);
    if (st == ST_OK && ca.val) {
        st = pool_config_read_name(reader, &ca, &file, err);
    }
    plan->insecure_skip_verify = plan->https && trusts;
    if (plan->https && file.ptr) {
        plan->ca_file = file;
    }
    return st;
}

static enum status read_source(struct pool_config_reader *reader, const struct doc_node *node,
                               struct scrape_plan *plan, struct error *err) {
    static const char *const names[] = {"scheme",     "path",     "port", "insecureSkipVerify",
                                        "caCertPath", "interval", NULL};
    static const char *const schemes[] = {"http", "https", NULL};
    struct doc_node scheme = doc_get(node, names[0]), path = doc_get(node, names[1]);
    struct doc_node port = doc_get(node, names[2]), interval = doc_get(node, "interval");
    unsigned word = 0;
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK) {
        st = pool_config_read_word(&scheme, schemes, &word, err);
    }
    plan->https = word == 1;
    if (st == ST_OK) {
        st = pool_config_read_path(reader, &path, &plan->source.path, err);
    }
    if (st == ST_OK && plan->source.path.len > POOL_CONFIG_MAX_PATH) {
        return doc_error(&path, err, "expected at most %d bytes, got %zu", POOL_CONFIG_MAX_PATH,
                         plan->source.path.len);
    }
    if (st == ST_OK) {
        st = pool_config_read_port(&port, &plan->source.port, err);
    }
    if (st == ST_OK) {
        st = read_interval(&interval, &plan->interval_ns, err);
    }
    return st == ST_OK ? read_tls(reader, node, plan, err) : st;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum status read_item(const struct picker_config_reader *self,
                             const struct doc_node *parameters, bool source, struct error *err) {
    struct pool_spec *spec = self->reader->spec;
    if (self->reader->metrics_given) {
        return doc_is_present(parameters)
                   ? picker_config_add_note(self, parameters,
                                            "`metrics`, or flags, say it otherwise", err)
                   : ST_OK;
    }
    struct scrape_plan *plan = copy_plan(spec);
    if (!plan) {
        return pool_config_no_memory(self->reader, err);
    }
    spec->scrape = plan;
    if (!doc_is_present(parameters)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(parameters, err);
    if (st != ST_OK) {
        return st;
    }
    return source ? read_source(self->reader, parameters, plan, err)
                  : read_extractor(parameters, plan, err);
}

static enum status read_items(const struct picker_config_reader *self, const char *type,
                              struct error *err) {
    struct doc_node list = doc_get(self->node, "plugins");
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        struct doc_node kind = doc_get(&item, "type"), parameters = doc_get(&item, "parameters");
        struct str text = {NULL, 0};
        st = doc_read_str(&kind, &text, err);
        if (st == ST_OK && str_is(text, type)) {
            st = read_item(self, &parameters, type == SOURCE, err);
        }
    }
    return st;
}

/* The place is said after the kind, whose usual place it may change. */
enum status picker_config_read_data_sources(const struct picker_config_reader *self,
                                            struct error *err) {
    enum status st = read_items(self, EXTRACTOR, err);
    return st == ST_OK ? read_items(self, SOURCE, err) : st;
}
