/* Objects of the Gateway API Inference Extension, as they are applied to a cluster: InferencePool
 * (v1, v1alpha2), InferenceModel, InferenceObjective, InferenceModelRewrite, and the file of the
 * upstream project's picker, EndpointPickerConfig. Their `spec` is read
 * strictly; `metadata` but for the name, and `status`, are the cluster's. Without a list of pools
 * there is one pool, and what refers to a pool must refer to it; with one an InferencePool is the
 * pool of its name there, and what refers to a pool is that one's. */
#include "pick/config/reading.h"

#include <assert.h>

static const char GROUPS[][32] = {"inference.networking.k8s.io", "inference.networking.x-k8s.io",
                                  "llm-d.ai"};

typedef enum status (*object_reader)(struct reading *reading, const struct doc_node *object,
                                     const struct doc_node *spec, struct error *err);

bool reading_is_object(const struct doc_node *node) {
    struct doc_node kind = doc_get(node, "kind");
    return kind.val != NULL;
}

/* The name in `metadata`. */
static enum status read_name(struct reading *reading, const struct doc_node *object,
                             struct str *out, struct error *err) {
    struct doc_node metadata = doc_get(object, "metadata"), name = doc_get(&metadata, "name");
    return reading_name(reading, &name, out, err);
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* v1 has {matchLabels: {…}}, v1alpha2 the labels themselves (whose values are texts). */
static enum status read_selector(struct reading *reading, const struct doc_node *spec,
                                 struct error *err) {
    static const char *const names[] = {"matchLabels", NULL};
    struct doc_node selector = doc_get(spec, "selector");
    struct doc_node labels = doc_get(&selector, "matchLabels");
    if (!doc_present(&selector)) {
        return doc_error(&selector, err, "expected the labels of the pool's endpoints, got none");
    }
    bool v1 = labels.val && yyjson_is_obj(labels.val);
    enum status st = v1 ? doc_only(&selector, names, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    return reading_labels(reading, v1 ? &labels : &selector, &reading->spec->selector, err);
}

static enum status read_ports(struct reading *reading, const struct doc_node *spec,
                              struct error *err) {
    struct doc_node ports = doc_get(spec, "targetPorts"), old = doc_get(spec, "targetPortNumber");
    struct reading_ports *out = &reading->ports;
    enum status st = reading_port_list(&old, out, err);
    if (!doc_present(&ports)) {
        return st;
    }
    if (doc_count(&ports) > READING_MOST_PORTS) {
        return doc_error(&ports, err, "expected at most %d ports, got %zu", READING_MOST_PORTS,
                         doc_count(&ports));
    }
    out->n = 0;
    for (struct doc_node item = {0}; st == ST_OK && doc_each(&ports, &item);) {
        struct doc_node number = doc_get(&item, "number");
        if (!number.val) {
            return doc_error(&item, err, "expected {number: PORT}");
        }
        st = reading_port(&number, &out->items[out->n++], err);
    }
    return st;
}

static enum status read_pool(struct reading *reading, const struct doc_node *object,
                             const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {
        "selector",    "targetPorts", "targetPortNumber", "endpointPickerRef", "extensionRef",
        "appProtocol", NULL};
    if (reading->has_pool) {
        return doc_error(object, err,
                         reading->line > 0
                             ? "expected one InferencePool of this name in the file, got a second"
                             : "expected one InferencePool in the file, got a second (several "
                               "need `pools`, with the name of each)");
    }
    reading->has_pool = true;
    enum status st =
        reading->line > 0 ? ST_OK : read_name(reading, object, &reading->spec->name, err);
    if (st == ST_OK) {
        st = doc_only(spec, names, err);
    }
    if (st == ST_OK) {
        st = read_selector(reading, spec, err);
    }
    return st == ST_OK ? read_ports(reading, spec, err) : st;
}

/* ---- what refers to it ----------------------------------------------------------------------- */

static enum status check_pool_ref(struct reading *reading, const struct doc_node *spec,
                                  struct error *err) {
    struct doc_node ref = doc_get(spec, "poolRef"), name = doc_get(&ref, "name");
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&name, &text, err);
    if (st == ST_OK && name.val && reading->has_pool && !str_eq(text, reading->spec->name)) {
        st = doc_error(&name, err, "expected the file's InferencePool, \"%.*s\", got \"%.*s\"",
                       STR_ARG(reading->spec->name), STR_ARG(text));
    }
    return st;
}

static enum status read_model(struct reading *reading, const struct doc_node *object,
                              const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"modelName", "criticality", "targetModels", "poolRef",
                                        NULL};
    struct doc_node name = doc_get(spec, "modelName"), criticality = doc_get(spec, "criticality");
    struct doc_node targets = doc_get(spec, "targetModels");
    struct pool_model model = {.criticality = POOL_STANDARD};
    (void)object;
    enum status st = doc_only(spec, names, err);
    if (st == ST_OK) {
        st = reading_name(reading, &name, &model.name, err);
    }
    if (st == ST_OK) {
        st = reading_criticality(&criticality, &model.criticality, err);
    }
    if (st == ST_OK) {
        st = reading_targets(reading, &targets, "name", &model.targets, err);
    }
    return st == ST_OK ? reading_add_model(reading, &name, &model, err) : st;
}

static enum status read_objective(struct reading *reading, const struct doc_node *object,
                                  const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"priority", "poolRef", NULL};
    struct doc_node priority = doc_get(spec, "priority");
    struct str name = {NULL, 0};
    enum status st = doc_only(spec, names, err);
    if (st == ST_OK) {
        st = read_name(reading, object, &name, err);
    }
    return st == ST_OK ? reading_add_objective(reading, object, name, &priority, err) : st;
}

/* ---- rewrites -------------------------------------------------------------------------------- */

/* {model: {type: Exact, value: NAME}} */
static enum status read_match(struct reading *reading, const struct doc_node *node, struct str *out,
                              struct error *err) {
    static const char *const names[] = {"model", NULL};
    static const char *const model_names[] = {"type", "value", NULL};
    static const char *const types[] = {"Exact", NULL};
    struct doc_node model = doc_get(node, "model"), type = doc_get(&model, "type");
    struct doc_node value = doc_get(&model, "value");
    unsigned word;
    enum status st = doc_only(node, names, err);
    if (st == ST_OK) {
        st = doc_only(&model, model_names, err);
    }
    if (st == ST_OK) {
        st = reading_word(&type, types, &word, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &value, out, err);
    }
    return st == ST_OK ? reading_note(reading, &reading->rewrites, *out, &value, err) : st;
}

static enum status read_rule(struct reading *reading, const struct doc_node *rule,
                             struct error *err) {
    static const char *const names[] = {"matches", "targets", NULL};
    struct doc_node matches = doc_get(rule, "matches"), targets = doc_get(rule, "targets");
    size_t n = doc_present(&matches) ? doc_count(&matches) : 0, i = 0;
    struct str *models = arena_calloc(reading->spec->arena, n, sizeof(*models));
    struct pool_rewrite rewrite = {.models = models, .n_models = n};
    if (!models) {
        return reading_no_memory(reading, err);
    }
    enum status st = doc_only(rule, names, err);
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_each(&matches, &item); i++) {
        st = read_match(reading, &item, &models[i], err);
    }
    if (st == ST_OK) {
        st = reading_targets(reading, &targets, "modelRewrite", &rewrite.targets, err);
    }
    return st == ST_OK ? pool_spec_add_rewrite(reading->spec, &rewrite, err) : st;
}

static enum status read_rewrite(struct reading *reading, const struct doc_node *object,
                                const struct doc_node *spec, struct error *err) {
    static const char *const names[] = {"rules", "poolRef", NULL};
    struct doc_node rules = doc_get(spec, "rules");
    (void)object;
    enum status st = doc_only(spec, names, err);
    for (struct doc_node rule = {0};
         doc_present(&rules) && st == ST_OK && doc_each(&rules, &rule);) {
        st = read_rule(reading, &rule, err);
    }
    return st;
}

/* ---- objects --------------------------------------------------------------------------------- */

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

/* Which pool of the list it is, or refers to: NAME at `node`. */
static enum status find_pool(const struct reading_file *file, const struct doc_node *node,
                             struct reading **out, struct error *err) {
    struct str name = {NULL, 0};
    enum status st = doc_read_str(node, &name, err);
    *out = st == ST_OK && name.ptr ? reading_pools_find(file, name) : NULL;
    if (st != ST_OK || *out) {
        return st;
    }
    return name.ptr
               ? doc_error(node, err, "expected the name of one of the file's pools, got \"%.*s\"",
                           STR_ARG(name))
               : doc_error(node, err, "expected the name of one of the file's pools, got nothing");
}

static enum status find_reading(const struct reading_file *file, const struct doc_node *object,
                                bool is_pool, struct reading **out, struct error *err) {
    struct doc_node spec = doc_get(object, "spec"), metadata = doc_get(object, "metadata");
    struct doc_node ref = doc_get(&spec, "poolRef");
    struct doc_node name = doc_get(is_pool ? &metadata : &ref, "name");
    *out = &file->items[0];
    return file->by_name ? find_pool(file, &name, out, err) : ST_OK;
}

static enum status expect_spec(const struct doc_node *spec, struct error *err) {
    return doc_present(spec) ? doc_expect_object(spec, err)
                             : doc_error(spec, err, "expected the object's spec, got nothing");
}

enum status reading_object_of_kind(struct reading *reading, const char *kind,
                                   const struct doc_node *object, struct error *err) {
    struct doc_node spec = doc_get(object, "spec");
    size_t i = 0;
    while (strcmp(KINDS[i].name, kind) != 0) {
        i++;
        assert(i < N_KINDS);
    }
    enum status st = expect_spec(&spec, err);
    return st == ST_OK ? KINDS[i].read(reading, object, &spec, err) : st;
}

static enum status read_object(struct reading_file *file, const struct doc_node *object, bool pools,
                               struct error *err) {
    static const char *const names[] = {"apiVersion", "kind", "metadata", "spec", "status", NULL};
    const struct kind *kind = NULL;
    struct reading *reading = NULL;
    struct doc_node spec = doc_get(object, "spec");
    enum status st = find_kind(object, &kind, err);
    if (st != ST_OK || pools != (kind->read == read_pool)) {
        return st;
    }
    st = check_version(object, err);
    if (st == ST_OK) {
        st = doc_only(object, names, err);
    }
    if (st == ST_OK) {
        st = expect_spec(&spec, err);
    }
    if (st == ST_OK) {
        st = find_reading(file, object, pools, &reading, err);
    }
    if (st == ST_OK && !pools && !file->by_name) {
        st = check_pool_ref(reading, &spec, err);
    }
    return st == ST_OK ? kind->read(reading, object, &spec, err) : st;
}

/* A file that is not applied to a cluster: it has no `spec`. In a list of pools it is for those
 * that have no profile of their own. */
static enum status read_picker(struct reading_file *file, const struct doc_node *object,
                               struct error *err) {
    static const char *const names[] = {
        "apiVersion",         "kind",        "plugins", "schedulingProfiles", "featureGates",
        "saturationDetector", "flowControl", "data",    "dataLayer",          "parser",
        "requestHandler",     NULL};
    enum status st = check_version(object, err);
    if (st == ST_OK) {
        st = doc_only(object, names, err);
    }
    for (size_t i = 0; i < file->n && st == ST_OK; i++) {
        struct reading *reading = &file->items[i];
        if (!file->by_name || !reading->has_profile) {
            st = reading_profile(reading, object, err);
            st = st == ST_OK ? reading_picker(reading, object, err) : st;
        }
    }
    return st;
}

enum status reading_object(struct reading_file *file, const struct doc_node *node, bool pools,
                           struct error *err) {
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
         doc_present(&items) && st == ST_OK && doc_each(&items, &item);) {
        st = read_object(file, &item, pools, err);
    }
    return st;
}
