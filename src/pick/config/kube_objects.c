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

typedef void (*object_reader)(struct pool_config_reader *reader, const struct doc_node *object,
                              const struct doc_node *spec);

bool pool_config_is_kube_object(const struct doc_node *node) {
    return doc_get(node, "kind").val != NULL;
}

/* Reads `metadata.name`. */
static void read_name(struct pool_config_reader *reader, const struct doc_node *object,
                      struct str *out) {
    struct doc_node metadata = doc_get(object, "metadata"), name = doc_get(&metadata, "name");
    pool_config_read_name(&reader->doc, &name, out);
}

/* ---- InferencePool --------------------------------------------------------------------------- */

/* v1 has {matchLabels: {…}}; v1alpha2 has the labels themselves, whose values are texts. */
static void read_selector(struct doc_reader *reader, const struct doc_node *selector,
                          void *unused) {
    static const struct doc_member v1_members[] = {{"matchLabels", MEMBER_BY_CALLER}, {0}};
    struct doc_node labels = doc_get(selector, "matchLabels");
    bool v1 = doc_is_object(&labels);
    (void)unused;
    if (!doc_is_present(selector)) {
        doc_reader_fail(reader, selector, "expected the labels of the pool's endpoints, got none");
    }
    if (v1) {
        doc_reader_reject_unknown(reader, selector, v1_members, NULL);
    }
    pool_config_read_labels(reader, v1 ? &labels : selector,
                            &pool_config_reader_of(reader)->spec->selector);
}

static uint16_t read_target_port(struct doc_reader *reader, const struct doc_node *item) {
    struct doc_node number = doc_get(item, "number");
    if (!number.val) {
        doc_reader_fail(reader, item, "expected {number: PORT}");
    }
    return pool_config_port(reader, &number);
}

static void read_target_ports(struct doc_reader *reader, const struct doc_node *list, void *out) {
    pool_config_read_each_port(reader, list, read_target_port, out);
}

static const struct doc_member POOL[] = {
    {"selector", MEMBER_CUSTOM(read_selector)},
    {"targetPortNumber", MEMBER_CUSTOM_FIELD(struct pool_config_reader, ports,
                                             struct pool_config_ports, pool_config_read_port_list)},
    {"targetPorts", MEMBER_CUSTOM_FIELD(struct pool_config_reader, ports, struct pool_config_ports,
                                        read_target_ports)},
    {"endpointPickerRef", MEMBER_BY_CALLER}, /* of the gateway */
    {"extensionRef", MEMBER_BY_CALLER},
    {"appProtocol", MEMBER_BY_CALLER},
    {0}};

static void read_pool(struct pool_config_reader *reader, const struct doc_node *object,
                      const struct doc_node *spec) {
    if (reader->has_pool) {
        doc_reader_fail(&reader->doc, object,
                        reader->line > 0
                            ? "expected one InferencePool of this name in the file, got a second"
                            : "expected one InferencePool in the file, got a second (several "
                              "need `pools`, with the name of each)");
    }
    reader->has_pool = true;
    if (reader->line == 0) {
        read_name(reader, object, &reader->spec->name);
    }
    doc_reader_object(&reader->doc, spec, POOL, reader);
}

/* ---- InferenceModel, InferenceObjective ------------------------------------------------------ */

static void check_pool_ref(struct pool_config_reader *reader, const struct doc_node *spec) {
    struct doc_node ref = doc_get(spec, "poolRef"), name = doc_get(&ref, "name");
    struct str text = {NULL, 0};
    doc_reader_view(&reader->doc, &name, &text);
    if (name.val && reader->has_pool && !str_eq(text, reader->spec->name)) {
        doc_reader_fail(&reader->doc, &name,
                        "expected the file's InferencePool, \"%.*s\", got \"%.*s\"",
                        STR_ARG(reader->spec->name), STR_ARG(text));
    }
}

static void read_targets(struct doc_reader *reader, const struct doc_node *list, void *out) {
    pool_config_read_targets(reader, list, "name", out);
}

static const struct doc_member MODEL[] = {
    {"modelName", MEMBER_CUSTOM_FIELD(struct pool_model, name, struct str, pool_config_read_name)},
    {"criticality", MEMBER_WORD(struct pool_model, criticality, POOL_CONFIG_CRITICALITIES)},
    {"targetModels",
     MEMBER_CUSTOM_FIELD(struct pool_model, targets, struct pool_targets, read_targets)},
    {"poolRef", MEMBER_BY_CALLER},
    {0}};

static void read_model(struct pool_config_reader *reader, const struct doc_node *object,
                       const struct doc_node *spec) {
    struct doc_node name = doc_get(spec, "modelName");
    struct pool_model model = {.criticality = POOL_STANDARD};
    (void)object;
    doc_reader_object(&reader->doc, spec, MODEL, &model);
    pool_config_add_model(reader, &name, &model);
}

static const struct doc_member OBJECTIVE[] = {
    {"priority", MEMBER_BY_CALLER}, {"poolRef", MEMBER_BY_CALLER}, {0}};

static void read_objective(struct pool_config_reader *reader, const struct doc_node *object,
                           const struct doc_node *spec) {
    struct doc_node priority = doc_get(spec, "priority");
    struct str name = {NULL, 0};
    doc_reader_reject_unknown(&reader->doc, spec, OBJECTIVE, NULL);
    read_name(reader, object, &name);
    pool_config_add_objective(reader, object, name, &priority);
}

/* ---- InferenceModelRewrite ------------------------------------------------------------------- */

static void read_match_type(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    static const char *const types[] = {"Exact", NULL};
    unsigned word;
    (void)unused;
    doc_reader_word(reader, node, types, NULL, &word);
}

static const struct doc_member MATCH_MODEL[] = {
    {"type", MEMBER_CUSTOM(read_match_type)}, {"value", MEMBER_CUSTOM(pool_config_read_name)}, {0}};
static const struct doc_member MATCH[] = {{"model", MEMBER_BY_CALLER}, {0}};

/* Of {model: {type: Exact, value: NAME}}. */
static struct doc_node read_match(struct doc_reader *reader, const struct doc_node *item,
                                  struct str *name) {
    struct doc_node model = doc_get(item, "model");
    doc_reader_reject_unknown(reader, item, MATCH, NULL);
    doc_reader_reject_unknown(reader, &model, MATCH_MODEL, NULL);
    doc_reader_members(reader, &model, MATCH_MODEL, name);
    return doc_get(&model, "value");
}

static void read_matches(struct doc_reader *reader, const struct doc_node *list, void *rewrite) {
    pool_config_read_rewritten(reader, list, read_match, rewrite);
}

static void read_rewrite_targets(struct doc_reader *reader, const struct doc_node *list,
                                 void *out) {
    pool_config_read_targets(reader, list, "modelRewrite", out);
}

static const struct doc_member RULE[] = {
    {"matches", MEMBER_CUSTOM(read_matches)},
    {"targets",
     MEMBER_CUSTOM_FIELD(struct pool_rewrite, targets, struct pool_targets, read_rewrite_targets)},
    {0}};
static const struct doc_member REWRITE[] = {
    {"rules", MEMBER_BY_CALLER}, {"poolRef", MEMBER_BY_CALLER}, {0}};

static void read_rewrite(struct pool_config_reader *reader, const struct doc_node *object,
                         const struct doc_node *spec) {
    struct doc_node rules = doc_get(spec, "rules"), rule = {0};
    (void)object;
    doc_reader_reject_unknown(&reader->doc, spec, REWRITE, NULL);
    while (doc_is_present(&rules) && doc_reader_next(&reader->doc, &rules, &rule)) {
        struct pool_rewrite rewrite = {.models = NULL};
        doc_reader_reject_unknown(&reader->doc, &rule, RULE, NULL);
        doc_reader_members(&reader->doc, &rule, RULE, &rewrite);
        pool_config_add_rewrite(reader, &rewrite);
    }
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

/* Returns: NULL after an error. */
static const struct kind *find_kind(struct doc_reader *reader, const struct doc_node *object) {
    struct doc_node kind = doc_get(object, "kind");
    struct str text = {NULL, 0};
    doc_reader_view(reader, &kind, &text);
    for (size_t i = 0; i < N_KINDS; i++) {
        if (str_is(text, KINDS[i].name)) {
            return &KINDS[i];
        }
    }
    doc_reader_fail(reader, &kind,
                    "expected InferencePool, InferenceModel, InferenceObjective, "
                    "InferenceModelRewrite, EndpointPickerConfig or List, got \"%.*s\"",
                    STR_ARG(text));
    return NULL;
}

static void check_version(struct doc_reader *reader, const struct doc_node *object) {
    struct doc_node version = doc_get(object, "apiVersion");
    struct str text = {NULL, 0};
    doc_reader_view(reader, &version, &text);
    struct str rest = text, group = str_cut(&rest, '/');
    for (size_t i = 0; i < N_GROUPS; i++) {
        if (rest.ptr && str_is(group, GROUPS[i])) {
            return;
        }
    }
    doc_reader_fail(reader, &version, "expected a version of %s, %s or %s (%s/v1), got \"%.*s\"",
                    GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[0], STR_ARG(text));
}

/* Finds the pool of the list that the object is, or refers to; without a list there is one.
 * Returns: NULL after an error. */
static struct pool_config_reader *find_pool_reader(struct pool_config_file *file,
                                                   const struct doc_node *object, bool is_pool) {
    struct doc_node spec = doc_get(object, "spec"), metadata = doc_get(object, "metadata");
    struct doc_node ref = doc_get(&spec, "poolRef");
    struct doc_node node = doc_get(is_pool ? &metadata : &ref, "name");
    struct pool_config_reader *found = &file->items[0];
    struct str name = {NULL, 0};
    if (file->by_name) {
        doc_reader_view(&file->doc, &node, &name);
        found = name.ptr ? pool_config_find_pool(file, name) : NULL;
    }
    if (!found && name.ptr) {
        doc_reader_fail(&file->doc, &node,
                        "expected the name of one of the file's pools, got \"%.*s\"",
                        STR_ARG(name));
    } else if (!found) {
        doc_reader_fail(&file->doc, &node,
                        "expected the name of one of the file's pools, got nothing");
    }
    return doc_reader_ok(&file->doc) ? found : NULL;
}

static void expect_spec(struct doc_reader *reader, const struct doc_node *spec) {
    if (!doc_is_present(spec)) {
        doc_reader_fail(reader, spec, "expected the object's spec, got nothing");
    }
    doc_reader_expect_object(reader, spec);
}

enum status pool_config_read_kube_object_of_kind(struct pool_config_reader *reader,
                                                 const char *kind, const struct doc_node *object) {
    struct doc_node spec = doc_get(object, "spec");
    size_t i = 0;
    while (strcmp(KINDS[i].name, kind) != 0) {
        i++;
        assert(i < N_KINDS);
    }
    expect_spec(&reader->doc, &spec);
    KINDS[i].read(reader, object, &spec);
    return reader->doc.status;
}

static const struct doc_member OBJECT[] = {
    {"apiVersion", MEMBER_BY_CALLER}, {"kind", MEMBER_BY_CALLER},   {"metadata", MEMBER_BY_CALLER},
    {"spec", MEMBER_BY_CALLER},       {"status", MEMBER_BY_CALLER}, {0}};

static void read_object(struct pool_config_file *file, const struct doc_node *object, bool pools) {
    struct doc_node spec = doc_get(object, "spec");
    const struct kind *kind = find_kind(&file->doc, object);
    if (!kind || pools != (kind->read == read_pool)) {
        return;
    }
    check_version(&file->doc, object);
    doc_reader_reject_unknown(&file->doc, object, OBJECT, NULL);
    expect_spec(&file->doc, &spec);
    struct pool_config_reader *reader = find_pool_reader(file, object, pools);
    if (!reader) {
        return;
    }
    if (!pools && !file->by_name) {
        check_pool_ref(reader, &spec);
    }
    kind->read(reader, object, &spec);
    file->doc.status = reader->doc.status;
}

/* Reads a configuration file that has a `kind` but no `spec`: an EndpointPickerConfig. With a list
 * of pools it applies to the pools without a profile of their own. */
static void read_picker(struct pool_config_file *file, const struct doc_node *object) {
    static const struct doc_member members[] = {
        {"apiVersion", MEMBER_BY_CALLER}, {"kind", MEMBER_BY_CALLER}, {0}};
    enum status before = doc_reader_begin_part(&file->doc);
    check_version(&file->doc, object);
    doc_reader_reject_unknown(&file->doc, object, members, POOL_CONFIG_PICKER);
    bool goes_on = file->doc.errors || doc_reader_ok(&file->doc);
    doc_reader_end_part(&file->doc, before);
    for (size_t i = 0; i < file->n && goes_on; i++) {
        struct pool_config_reader *reader = &file->items[i];
        if (!file->by_name || !reader->has_profile) {
            pool_config_read_picker_config(reader, object);
            file->doc.status = doc_reader_ok(&reader->doc) ? file->doc.status : reader->doc.status;
        }
        goes_on = file->doc.errors || doc_reader_ok(&file->doc);
    }
}

void pool_config_read_kube_object(struct pool_config_file *file, const struct doc_node *node,
                                  bool pools) {
    struct doc_node kind = doc_get(node, "kind"), items = doc_get(node, "items"), item = {0};
    struct str text = {NULL, 0};
    bool is_text = doc_read_str(&kind, &text, NULL) == ST_OK;
    if (is_text && str_is(text, "EndpointPickerConfig")) {
        if (!pools) {
            read_picker(file, node);
        }
    } else if (!is_text || !str_is(text, "List")) {
        read_object(file, node, pools);
    } else {
        while (doc_is_present(&items) && doc_reader_next(&file->doc, &items, &item)) {
            read_object(file, &item, pools);
        }
    }
}
