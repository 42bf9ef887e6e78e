/* Objects of the Gateway API Inference Extension in a file or from the API server: InferencePool
 * (v1, v1alpha2), InferenceModel, InferenceObjective, InferenceModelRewrite, and the upstream
 * picker's EndpointPickerConfig. Unknown members of `spec` are rejected; `metadata` other than the
 * name, and `status`, are ignored, as the cluster writes them.
 *
 * Without a list of pools there is one pool, and objects that refer to a pool must refer to it.
 * With a list, an InferencePool configures the pool of its name, and other objects the pool that
 * they refer to. */
#include "pick/config/reader.h"

#include <assert.h>

static const char GROUPS[][32] = {"inference.networking.k8s.io", "inference.networking.x-k8s.io",
                                  "llm-d.ai"};

typedef enum status (*object_reader)(struct pool_config_reader *reader,
                                     const struct doc_node *object, const struct doc_node *spec,
                                     struct error *err);

bool pool_config_is_kube_object(const struct doc_node *node) {
    struct doc_node kind = doc_get(node, "kind");
    return kind.val != NULL;
}

/* Reads `metadata.name`. */
static enum status read_name(struct pool_config_reader *reader, const struct doc_node *object,
                             struct str *out, struct error *err) {
    struct doc_node metadata = doc_get(object, "metadata"), name = doc_get(&metadata, "name");
    return pool_config_read_name(reader, &name, out, err);
}

/* ---- InferencePool --------------------------------------------------------------------------- */

/* v1 has {matchLabels: {…}}; v1alpha2 has the labels themselves, whose values are texts. */
static enum status read_selector(struct pool_config_reader *reader, const struct doc_node *spec,
                                 struct error *err) {
    static const char *const names[] = {"matchLabels", NULL};
    struct doc_node selector = doc_get(spec, "selector");
    struct doc_node labels = doc_get(&selector, "matchLabels");
    if (!doc_is_present(&selector)) {
        return doc_error(&selector, err, "expected the labels of the pool's endpoints, got none");
    }
    bool v1 = doc_is_object(&labels);
    enum status st = v1 ? doc_reject_unknown(&selector, names, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    return pool_config_read_labels(reader, v1 ? &labels : &selector, &reader->spec->selector, err);
}

static enum status read_ports(struct pool_config_reader *reader, const struct doc_node *spec,
                              struct error *err) {
    struct doc_node ports = doc_get(spec, "targetPorts"), old = doc_get(spec, "targetPortNumber");
    struct pool_config_ports *out = &reader->ports;
    enum status st = pool_config_read_port_list(&old, out, err);
    if (!doc_is_present(&ports)) {
        return st;
    }
    if (doc_count(&ports) > POOL_CONFIG_MAX_PORTS) {
        return doc_error(&ports, err, "expected at most %d ports, got %zu", POOL_CONFIG_MAX_PORTS,
                         doc_count(&ports));
    }
    out->n = 0;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&ports, &item);) {
        struct doc_node number = doc_get(&item, "number");
        if (!number.val) {
            return doc_error(&item, err, "expected {number: PORT}");
        }
        st = pool_config_read_port(&number, &out->items[out->n++], err);
    }
    return st;
}

static enum status read_pool(struct pool_config_reader *reader, const struct doc_node *object,
                             const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {
        "selector",    "targetPorts", "targetPortNumber", "endpointPickerRef", "extensionRef",
        "appProtocol", NULL};
    if (reader->has_pool) {
        return doc_error(object, err,
                         reader->line > 0
                             ? "expected one InferencePool of this name in the file, got a second"
                             : "expected one InferencePool in the file, got a second (several "
                               "need `pools`, with the name of each)");
    }
    reader->has_pool = true;
    enum status st = reader->line > 0 ? ST_OK : read_name(reader, object, &reader->spec->name, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(spec, names, err);
    }
    if (st == ST_OK) {
        st = read_selector(reader, spec, err);
    }
    return st == ST_OK ? read_ports(reader, spec, err) : st;
}

/* ---- InferenceModel, InferenceObjective ------------------------------------------------------ */

static enum status check_pool_ref(struct pool_config_reader *reader, const struct doc_node *spec,
                                  struct error *err) {
    struct doc_node ref = doc_get(spec, "poolRef"), name = doc_get(&ref, "name");
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&name, &text, err);
    if (st == ST_OK && name.val && reader->has_pool && !str_eq(text, reader->spec->name)) {
        st = doc_error(&name, err, "expected the file's InferencePool, \"%.*s\", got \"%.*s\"",
                       STR_ARG(reader->spec->name), STR_ARG(text));
    }
    return st;
}

static enum status read_model(struct pool_config_reader *reader, const struct doc_node *object,
                              const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"modelName", "criticality", "targetModels", "poolRef",
                                        NULL};
    struct doc_node name = doc_get(spec, "modelName"), criticality = doc_get(spec, "criticality");
    struct doc_node targets = doc_get(spec, "targetModels");
    struct pool_model model = {.criticality = POOL_STANDARD};
    (void)object;
    enum status st = doc_reject_unknown(spec, names, err);
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &model.name, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_criticality(&criticality, &model.criticality, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_targets(reader, &targets, "name", &model.targets, err);
    }
    return st == ST_OK ? pool_config_add_model(reader, &name, &model, err) : st;
}

static enum status read_objective(struct pool_config_reader *reader, const struct doc_node *object,
                                  const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"priority", "poolRef", NULL};
    struct doc_node priority = doc_get(spec, "priority");
    struct str name = {NULL, 0};
    enum status st = doc_reject_unknown(spec, names, err);
    if (st == ST_OK) {
        st = read_name(reader, object, &name, err);
    }
    return st == ST_OK ? pool_config_add_objective(reader, object, name, &priority, err) : st;
}

/* ---- InferenceModelRewrite ------------------------------------------------------------------- */

/* {model: {type: Exact, value: NAME}} */
static enum status read_match(struct pool_config_reader *reader, const struct doc_node *node,
                              struct str *out, struct error *err) {
    static const char *const names[] = {"model", NULL};
    static const char *const model_names[] = {"type", "value", NULL};
    static const char *const types[] = {"Exact", NULL};
    struct doc_node model = doc_get(node, "model"), type = doc_get(&model, "type");
    struct doc_node value = doc_get(&model, "value");
    unsigned word;
    enum status st = doc_reject_unknown(node, names, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(&model, model_names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_word(&type, types, &word, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &value, out, err);
    }
    return st == ST_OK ? pool_config_add_name(reader, &reader->rewrites, *out, &value, err) : st;
}

static enum status read_rule(struct pool_config_reader *reader, const struct doc_node *rule,
                             struct error *err) {
    static const char *const names[] = {"matches", "targets", NULL};
    struct doc_node matches = doc_get(rule, "matches"), targets = doc_get(rule, "targets");
    size_t n = doc_is_present(&matches) ? doc_count(&matches) : 0, i = 0;
    struct str *models = arena_calloc(reader->spec->arena, n, sizeof(*models));
    struct pool_rewrite rewrite = {.models = models, .n_models = n};
    if (!models) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = doc_reject_unknown(rule, names, err);
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(&matches, &item); i++) {
        st = read_match(reader, &item, &models[i], err);
    }
    if (st == ST_OK) {
        st = pool_config_read_targets(reader, &targets, "modelRewrite", &rewrite.targets, err);
    }
    return st == ST_OK ? pool_spec_add_rewrite(reader->spec, &rewrite, err) : st;
}

static enum status read_rewrite(struct pool_config_reader *reader, const struct doc_node *object,
                                const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"rules", "poolRef", NULL};
    struct doc_node rules = doc_get(spec, "rules");
    (void)object;
    enum status st = doc_reject_unknown(spec, names, err);
    for (struct doc_node rule = {0};
         doc_is_present(&rules) && st == ST_OK && doc_next(&rules, &rule);) {
        st = read_rule(reader, &rule, err);
    }
    return st;
}

/* ---- which object, of which pool ------------------------------------------------------------- */

static const struct kind {
    const char *name;
    object_reader read;
} KINDS[] = {
    {"InferencePool", read_pool},
    {"InferenceModel", read_model},
    {"InferenceObjective", read_objective},
    {"InferenceModelRewrite", read_rewrite},
};

enum { N_KINDS = sizeof(KINDS) / sizeof(KINDS[0]), N_GROUPS = sizeof(GROUPS) / sizeof(GROUPS[0]) };

static enum status find_kind(const struct doc_node *object, const struct kind **out,
                             struct error *err) {
    struct doc_node kind = doc_get(object, "kind");
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&kind, &text, err);
    for (size_t i = 0; st == ST_OK && i < N_KINDS; i++) {
        if (str_is(text, KINDS[i].name)) {
            *out = &KINDS[i];
            return ST_OK;
        }
    }
    return st != ST_OK
               ? st
               : doc_error(&kind, err,
                           "expected InferencePool, InferenceModel, InferenceObjective, "
                           "InferenceModelRewrite, EndpointPickerConfig or List, got \"%.*s\"",
                           STR_ARG(text));
}

static enum status check_version(const struct doc_node *object, struct error *err) {
    struct doc_node version = doc_get(object, "apiVersion");
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&version, &text, err);
    struct str rest = text, group = str_cut(&rest, '/');
    for (size_t i = 0; st == ST_OK && i < N_GROUPS; i++) {
        if (rest.ptr && str_is(group, GROUPS[i])) {
            return ST_OK;
        }
    }
    return st != ST_OK ? st
                       : doc_error(&version, err,
                                   "expected a version of %s, %s or %s (%s/v1), got \"%.*s\"",
                                   GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[0], STR_ARG(text));
}

/* Finds the pool of the list with the name at `node`. */
static enum status find_pool(const struct pool_config_file *file, const struct doc_node *node,
                             struct pool_config_reader **out, struct error *err) {
    struct str name = {NULL, 0};
    enum status st = doc_read_str(node, &name, err);
    *out = st == ST_OK && name.ptr ? pool_config_find_pool(file, name) : NULL;
    if (st != ST_OK || *out) {
        return st;
    }
    return name.ptr
               ? doc_error(node, err, "expected the name of one of the file's pools, got \"%.*s\"",
                           STR_ARG(name))
               : doc_error(node, err, "expected the name of one of the file's pools, got nothing");
}

static enum status find_pool_reader(const struct pool_config_file *file,
                                    const struct doc_node *object, bool is_pool,
                                    struct pool_config_reader **out, struct error *err) {
    struct doc_node spec = doc_get(object, "spec"), metadata = doc_get(object, "metadata");
    struct doc_node ref = doc_get(&spec, "poolRef");
    struct doc_node name = doc_get(is_pool ? &metadata : &ref, "name");
    *out = &file->items[0];
    return file->by_name ? find_pool(file, &name, out, err) : ST_OK;
}

static enum status expect_spec(const struct doc_node *spec, struct error *err) {
    return doc_is_present(spec) ? doc_expect_object(spec, err)
                                : doc_error(spec, err, "expected the object's spec, got nothing");
}

enum status pool_config_read_kube_object_of_kind(struct pool_config_reader *reader,
                                                 const char *kind, const struct doc_node *object,
                                                 struct error *err) {
    struct doc_node spec = doc_get(object, "spec");
    size_t i = 0;
    while (strcmp(KINDS[i].name, kind) != 0) {
        i++;
        assert(i < N_KINDS);
    }
    enum status st = expect_spec(&spec, err);
    return st == ST_OK ? KINDS[i].read(reader, object, &spec, err) : st;
}

static enum status read_object(struct pool_config_file *file, const struct doc_node *object,
                               bool pools, struct error *err) {
    static const char *const names[] = {"apiVersion", "kind", "metadata", "spec", "status", NULL};
    const struct kind *kind = NULL;
    struct pool_config_reader *reader = NULL;
    struct doc_node spec = doc_get(object, "spec");
    enum status st = find_kind(object, &kind, err);
    if (st != ST_OK || pools != (kind->read == read_pool)) {
        return st;
    }
    st = check_version(object, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(object, names, err);
    }
    if (st == ST_OK) {
        st = expect_spec(&spec, err);
    }
    if (st == ST_OK) {
        st = find_pool_reader(file, object, pools, &reader, err);
    }
    if (st == ST_OK && !pools && !file->by_name) {
        st = check_pool_ref(reader, &spec, err);
    }
    return st == ST_OK ? kind->read(reader, object, &spec, err) : st;
}

/* Reads a configuration file that has a `kind` but no `spec`: an EndpointPickerConfig. With a list
 * of pools it applies to the pools without a profile of their own. */
static enum status read_picker(struct pool_config_file *file, const struct doc_node *object,
                               struct error *err) {
    static const char *const names[] = {
        "apiVersion",         "kind",        "plugins", "schedulingProfiles", "featureGates",
        "saturationDetector", "flowControl", "data",    "dataLayer",          "parser",
        "requestHandler",     NULL};
    enum status st = check_version(object, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(object, names, err);
    }
    for (size_t i = 0; i < file->n && st == ST_OK; i++) {
        struct pool_config_reader *reader = &file->items[i];
        if (!file->by_name || !reader->has_profile) {
            st = pool_config_read_profile(reader, object, err);
            st = st == ST_OK ? pool_config_read_picker_config(reader, object, err) : st;
        }
    }
    return st;
}

enum status pool_config_read_kube_object(struct pool_config_file *file, const struct doc_node *node,
                                         bool pools, struct error *err) {
    struct doc_node kind = doc_get(node, "kind"), items = doc_get(node, "items");
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&kind, &text, NULL);
    if (st == ST_OK && str_is(text, "EndpointPickerConfig")) {
        return pools ? ST_OK : read_picker(file, node, err);
    }
    if (st != ST_OK || !str_is(text, "List")) {
        return read_object(file, node, pools, err);
    }
    for (struct doc_node item = {0};
         doc_is_present(&items) && st == ST_OK && doc_next(&items, &item);) {
        st = read_object(file, &item, pools, err);
    }
    return st;
}
