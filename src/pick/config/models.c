/* What requests may name: models, objectives, rewrites. */
#include "pick/config/reader.h"

typedef void (*element_reader)(struct pool_config_reader *reader, const struct doc_node *node);

static void read_list(struct doc_reader *reader, const struct doc_node *list, element_reader read) {
    for (struct doc_node item = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &item);) {
        read(pool_config_reader_of(reader), &item);
    }
}

static void read_model_targets(struct doc_reader *reader, const struct doc_node *node, void *out) {
    pool_config_read_targets(reader, node, "model", out);
}

/* ---- models ---------------------------------------------------------------------------------- */

const char *const POOL_CONFIG_CRITICALITIES[] = {"Standard", "Critical", "Sheddable", NULL};

void pool_config_add_model(struct pool_config_reader *reader, const struct doc_node *node,
                           const struct pool_model *model) {
    pool_config_add_name(reader, &reader->models, model->name, node);
    if (model->targets.n > 0) {
        pool_config_add_name(reader, &reader->split, model->name, node);
    }
    reader->has_models = true;
    if (doc_reader_ok(&reader->doc)) {
        pool_spec_add_model(reader->spec, model);
    }
}

static const struct doc_member MODEL[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct pool_model, name, struct str, pool_config_read_name)},
    {"criticality", MEMBER_WORD(struct pool_model, criticality, POOL_CONFIG_CRITICALITIES)},
    {"targets",
     MEMBER_CUSTOM_FIELD(struct pool_model, targets, struct pool_targets, read_model_targets)},
    {0}};

/* A name, or an object. */
static void read_model(struct pool_config_reader *reader, const struct doc_node *node) {
    struct pool_model model = {.criticality = POOL_STANDARD};
    if (doc_is_text(node)) {
        pool_config_read_name(&reader->doc, node, &model.name);
    } else {
        doc_reader_object(&reader->doc, node, MODEL, &model);
    }
    pool_config_add_model(reader, node, &model);
}

void pool_config_read_models(struct doc_reader *reader, const struct doc_node *list, void *spec) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    (void)spec;
    pool->has_models = pool->has_models || list->val; /* an empty list counts, too */
    read_list(reader, list, read_model);
}

void pool_config_read_unknown_models(struct doc_reader *reader, const struct doc_node *node,
                                     void *spec) {
    static const char *const words[] = {"refuse", "pass", NULL};
    unsigned word = 0;
    (void)spec;
    doc_reader_word(reader, node, words, NULL, &word);
    if (node->val) {
        pool_config_reader_of(reader)->unknown =
            word == 0 ? POOL_CONFIG_UNKNOWN_REFUSE : POOL_CONFIG_UNKNOWN_PASS;
    }
}

/* ---- objectives ------------------------------------------------------------------------------ */

void pool_config_add_objective(struct pool_config_reader *reader, const struct doc_node *node,
                               struct str name, const struct doc_node *priority) {
    struct pool_objective objective = {.name = name};
    doc_reader_i64(&reader->doc, priority, INT32_MIN, INT32_MAX, &objective.priority);
    pool_config_add_name(reader, &reader->objectives, name, node);
    if (doc_reader_ok(&reader->doc)) {
        pool_spec_add_objective(reader->spec, &objective);
    }
}

static const struct doc_member OBJECTIVE[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct pool_objective, name, struct str, pool_config_read_name)},
    {"priority", MEMBER_BY_CALLER},
    {0}};

static void read_objective(struct pool_config_reader *reader, const struct doc_node *node) {
    struct doc_node priority = doc_get(node, "priority");
    struct pool_objective objective = {.priority = 0};
    doc_reader_object(&reader->doc, node, OBJECTIVE, &objective);
    pool_config_add_objective(reader, node, objective.name, &priority);
}

void pool_config_read_objectives(struct doc_reader *reader, const struct doc_node *list,
                                 void *spec) {
    (void)spec;
    read_list(reader, list, read_objective);
}

/* ---- rewrites -------------------------------------------------------------------------------- */

void pool_config_add_rewrite(struct pool_config_reader *reader,
                             const struct pool_rewrite *rewrite) {
    if (doc_reader_ok(&reader->doc)) {
        pool_spec_add_rewrite(reader->spec, rewrite);
    }
}

void pool_config_read_rewritten(struct doc_reader *reader, const struct doc_node *list,
                                pool_config_read_model *read_one, struct pool_rewrite *out) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    struct str *models = doc_reader_calloc(reader, n, sizeof(*models));
    out->models = models;
    out->n_models = n;
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item); models++) {
        struct doc_node name = read_one(reader, &item, models);
        pool_config_add_name(pool, &pool->rewrites, *models, &name);
    }
}

static struct doc_node read_model_name(struct doc_reader *reader, const struct doc_node *item,
                                       struct str *name) {
    pool_config_read_name(reader, item, name);
    return *item;
}

static void read_rewritten(struct doc_reader *reader, const struct doc_node *list, void *rewrite) {
    pool_config_read_rewritten(reader, list, read_model_name, rewrite);
}

static const struct doc_member REWRITE[] = {
    {"models", MEMBER_CUSTOM(read_rewritten)},
    {"targets",
     MEMBER_CUSTOM_FIELD(struct pool_rewrite, targets, struct pool_targets, read_model_targets)},
    {0}};

static void read_rewrite(struct pool_config_reader *reader, const struct doc_node *node) {
    struct pool_rewrite rewrite = {.models = NULL};
    doc_reader_object(&reader->doc, node, REWRITE, &rewrite);
    pool_config_add_rewrite(reader, &rewrite);
}

void pool_config_read_rewrites(struct doc_reader *reader, const struct doc_node *list, void *spec) {
    (void)spec;
    read_list(reader, list, read_rewrite);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* It is compared with paths as servers read them. */
static bool is_plain_path(struct str path) {
    struct str rest = path;
    (void)str_cut(&rest, '/');
    while (rest.ptr) {
        struct str segment = str_cut(&rest, '/');
        if (segment.len == 0 || str_is(segment, ".") || str_is(segment, "..")) {
            return false;
        }
    }
    return !memchr(path.ptr, '%', path.len) && !memchr(path.ptr, '?', path.len);
}

void pool_config_read_model_paths(struct doc_reader *reader, const struct doc_node *list,
                                  void *object) {
    struct pool_spec *spec = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (!list->val) {
        return;
    }
    if (n > POOL_CONFIG_MAX_MODEL_PATHS) {
        doc_reader_fail(reader, list, "expected at most %d paths, got %zu",
                        POOL_CONFIG_MAX_MODEL_PATHS, n);
    }
    struct str *paths = doc_reader_calloc(reader, n + 1, sizeof(*paths));
    spec->model_paths = paths;
    spec->n_model_paths = n;
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item); paths++) {
        pool_config_read_path(reader, &item, paths);
        if (paths->ptr && !is_plain_path(*paths)) {
            doc_reader_fail(reader, &item,
                            "expected the end of a path such as /v1/completions, without query, "
                            "escapes and empty segments, got \"%.*s\"",
                            STR_ARG(*paths));
        }
    }
}
