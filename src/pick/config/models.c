/* What requests may name: models, objectives, rewrites. */
#include "pick/config/reader.h"

/* ---- models ---------------------------------------------------------------------------------- */

enum status pool_config_read_criticality(const struct doc_node *node, enum pool_criticality *out,
                                         struct error *err) {
    static const char *const words[] = {"Standard", "Critical", "Sheddable", NULL};
    unsigned word = (unsigned)*out; /* in the order of the enum */
    enum status st = pool_config_read_word(node, words, &word, err);
    *out = (enum pool_criticality)word;
    return st;
}

enum status pool_config_add_model(struct pool_config_reader *reader, const struct doc_node *node,
                                  const struct pool_model *model, struct error *err) {
    enum status st = pool_config_add_name(reader, &reader->models, model->name, node, err);
    if (st == ST_OK && model->targets.n > 0) {
        st = pool_config_add_name(reader, &reader->split, model->name, node, err);
    }
    reader->has_models = true;
    return st == ST_OK ? pool_spec_add_model(reader->spec, model, err) : st;
}

static enum status read_model(struct pool_config_reader *reader, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"name", "criticality", "targets", NULL};
    struct pool_model model = {.criticality = POOL_STANDARD};
    struct str text;
    if (doc_read_str(node, &text, NULL) == ST_OK) {
        enum status alone = pool_config_read_name(reader, node, &model.name, err);
        return alone == ST_OK ? pool_config_add_model(reader, node, &model, err) : alone;
    }
    struct doc_node name = doc_get(node, "name"), criticality = doc_get(node, "criticality");
    struct doc_node targets = doc_get(node, "targets");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &model.name, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_criticality(&criticality, &model.criticality, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_targets(reader, &targets, "model", &model.targets, err);
    }
    return st == ST_OK ? pool_config_add_model(reader, node, &model, err) : st;
}

/* ---- objectives ------------------------------------------------------------------------------ */

enum status pool_config_add_objective(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct str name,
                                      const struct doc_node *priority, struct error *err) {
    struct pool_objective objective = {.name = name};
    enum status st = doc_read_i64(priority, INT32_MIN, INT32_MAX, &objective.priority, err);
    if (st == ST_OK) {
        st = pool_config_add_name(reader, &reader->objectives, name, node, err);
    }
    return st == ST_OK ? pool_spec_add_objective(reader->spec, &objective, err) : st;
}

static enum status read_objective(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct error *err) {
    static const char *const names[] = {"name", "priority", NULL};
    struct doc_node name = doc_get(node, "name"), priority = doc_get(node, "priority");
    struct str text = {NULL, 0};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &text, err);
    }
    return st == ST_OK ? pool_config_add_objective(reader, node, text, &priority, err) : st;
}

/* ---- rewrites -------------------------------------------------------------------------------- */

static enum status read_rewritten(struct pool_config_reader *reader, const struct doc_node *list,
                                  struct pool_rewrite *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0, i = 0;
    struct str *models = arena_calloc(reader->spec->arena, n, sizeof(*models));
    enum status st = ST_OK;
    if (!models) {
        return pool_config_no_memory(reader, err);
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item); i++) {
        st = pool_config_read_name(reader, &item, &models[i], err);
        if (st == ST_OK) {
            st = pool_config_add_name(reader, &reader->rewrites, models[i], &item, err);
        }
    }
    out->models = models;
    out->n_models = n;
    return st;
}

static enum status read_rewrite(struct pool_config_reader *reader, const struct doc_node *node,
                                struct error *err) {
    static const char *const names[] = {"models", "targets", NULL};
    struct doc_node models = doc_get(node, "models"), targets = doc_get(node, "targets");
    struct pool_rewrite rewrite = {.models = NULL};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_rewritten(reader, &models, &rewrite, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_targets(reader, &targets, "model", &rewrite.targets, err);
    }
    return st == ST_OK ? pool_spec_add_rewrite(reader->spec, &rewrite, err) : st;
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

static enum status read_model_paths(struct pool_config_reader *reader, const struct doc_node *list,
                                    struct error *err) {
    struct pool_spec *spec = reader->spec;
    size_t n = doc_is_present(list) ? doc_count(list) : 0, i = 0;
    enum status st = ST_OK;
    if (!list->val) {
        return ST_OK;
    }
    if (n > POOL_CONFIG_MAX_MODEL_PATHS) {
        return doc_error(list, err, "expected at most %d paths, got %zu",
                         POOL_CONFIG_MAX_MODEL_PATHS, n);
    }
    struct str *paths = arena_calloc(spec->arena, n + 1, sizeof(*paths));
    if (!paths) {
        return pool_config_no_memory(reader, err);
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item); i++) {
        st = pool_config_read_path(reader, &item, &paths[i], err);
        if (st == ST_OK && !is_plain_path(paths[i])) {
            st = doc_error(&item, err,
                           "expected the end of a path such as /v1/completions, without query, "
                           "escapes and empty segments, got \"%.*s\"",
                           STR_ARG(paths[i]));
        }
    }
    spec->model_paths = paths;
    spec->n_model_paths = n;
    return st;
}

/* ---- all sections ---------------------------------------------------------------------------- */

typedef enum status (*element_reader)(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct error *err);

static enum status read_list(struct pool_config_reader *reader, const struct doc_node *list,
                             element_reader read, struct error *err) {
    enum status st = ST_OK;
    for (struct doc_node item = {0};
         doc_is_present(list) && st == ST_OK && doc_next(list, &item);) {
        st = read(reader, &item, err);
    }
    return st;
}

enum status pool_config_read_models(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct error *err) {
    static const char *const words[] = {"refuse", "pass", NULL};
    struct doc_node models = doc_get(node, "models"), unknown = doc_get(node, "unknown_models");
    struct doc_node objectives = doc_get(node, "objectives"), rewrites = doc_get(node, "rewrites");
    struct doc_node paths = doc_get(node, "model_paths");
    unsigned word = 0;
    enum status st = pool_config_read_word(&unknown, words, &word, err);
    if (unknown.val) {
        reader->unknown = word == 0 ? POOL_CONFIG_UNKNOWN_REFUSE : POOL_CONFIG_UNKNOWN_PASS;
    }
    reader->has_models = reader->has_models || models.val; /* an empty list counts, too */
    if (st == ST_OK) {
        st = read_list(reader, &models, read_model, err);
    }
    if (st == ST_OK) {
        st = read_model_paths(reader, &paths, err);
    }
    if (st == ST_OK) {
        st = read_list(reader, &objectives, read_objective, err);
    }
    return st == ST_OK ? read_list(reader, &rewrites, read_rewrite, err) : st;
}
