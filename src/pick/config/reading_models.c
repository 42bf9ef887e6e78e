/* What requests may ask for: models, objectives, rewrites. */
#include "pick/config/reading.h"

/* ---- models ---------------------------------------------------------------------------------- */

enum status reading_criticality(const struct doc_node *node, enum pool_criticality *out,
                                struct error *err) {
    static const char *const words[] = {"Standard", "Critical", "Sheddable", NULL};
    unsigned word = (unsigned)*out; /* in the order of the enum */
    enum status st = reading_word(node, words, &word, err);
    *out = (enum pool_criticality)word;
    return st;
}

enum status reading_add_model(struct reading *reading, const struct doc_node *node,
                              const struct pool_model *model, struct error *err) {
    enum status st = reading_note(reading, &reading->models, model->name, node, err);
    if (st == ST_OK && model->targets.n > 0) {
        st = reading_note(reading, &reading->split, model->name, node, err);
    }
    reading->has_models = true;
    return st == ST_OK ? pool_spec_add_model(reading->spec, model, err) : st;
}

static enum status read_model(struct reading *reading, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"name", "criticality", "targets", NULL};
    struct pool_model model = {.criticality = POOL_STANDARD};
    struct str text;
    if (doc_read_str(node, &text, NULL) == ST_OK) {
        enum status alone = reading_name(reading, node, &model.name, err);
        return alone == ST_OK ? reading_add_model(reading, node, &model, err) : alone;
    }
    struct doc_node name = doc_get(node, "name"), criticality = doc_get(node, "criticality");
    struct doc_node targets = doc_get(node, "targets");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &name, &model.name, err);
    }
    if (st == ST_OK) {
        st = reading_criticality(&criticality, &model.criticality, err);
    }
    if (st == ST_OK) {
        st = reading_targets(reading, &targets, "model", &model.targets, err);
    }
    return st == ST_OK ? reading_add_model(reading, node, &model, err) : st;
}

/* ---- objectives ------------------------------------------------------------------------------ */

enum status reading_add_objective(struct reading *reading, const struct doc_node *node,
                                  struct str name, const struct doc_node *priority,
                                  struct error *err) {
    struct pool_objective objective = {.name = name};
    enum status st = doc_read_i64(priority, INT32_MIN, INT32_MAX, &objective.priority, err);
    if (st == ST_OK) {
        st = reading_note(reading, &reading->objectives, name, node, err);
    }
    return st == ST_OK ? pool_spec_add_objective(reading->spec, &objective, err) : st;
}

static enum status read_objective(struct reading *reading, const struct doc_node *node,
                                  struct error *err) {
    static const char *const names[] = {"name", "priority", NULL};
    struct doc_node name = doc_get(node, "name"), priority = doc_get(node, "priority");
    struct str text = {NULL, 0};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &name, &text, err);
    }
    return st == ST_OK ? reading_add_objective(reading, node, text, &priority, err) : st;
}

/* ---- rewrites -------------------------------------------------------------------------------- */

static enum status read_rewritten(struct reading *reading, const struct doc_node *list,
                                  struct pool_rewrite *out, struct error *err) {
    size_t n = doc_present(list) ? doc_count(list) : 0, i = 0;
    struct str *models = arena_calloc(reading->spec->arena, n, sizeof(*models));
    enum status st = ST_OK;
    if (!models) {
        return reading_no_memory(reading, err);
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_each(list, &item); i++) {
        st = reading_name(reading, &item, &models[i], err);
        if (st == ST_OK) {
            st = reading_note(reading, &reading->rewrites, models[i], &item, err);
        }
    }
    out->models = models;
    out->n_models = n;
    return st;
}

static enum status read_rewrite(struct reading *reading, const struct doc_node *node,
                                struct error *err) {
    static const char *const names[] = {"models", "targets", NULL};
    struct doc_node models = doc_get(node, "models"), targets = doc_get(node, "targets");
    struct pool_rewrite rewrite = {.models = NULL};
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK) {
        st = read_rewritten(reading, &models, &rewrite, err);
    }
    if (st == ST_OK) {
        st = reading_targets(reading, &targets, "model", &rewrite.targets, err);
    }
    return st == ST_OK ? pool_spec_add_rewrite(reading->spec, &rewrite, err) : st;
}

/* ---- the sections ---------------------------------------------------------------------------- */

typedef enum status (*element_reader)(struct reading *reading, const struct doc_node *node,
                                      struct error *err);

static enum status read_list(struct reading *reading, const struct doc_node *list,
                             element_reader read, struct error *err) {
    enum status st = ST_OK;
    for (struct doc_node item = {0}; doc_present(list) && st == ST_OK && doc_each(list, &item);) {
        st = read(reading, &item, err);
    }
    return st;
}

enum status reading_models(struct reading *reading, const struct doc_node *node,
                           struct error *err) {
    static const char *const words[] = {"refuse", "pass", NULL};
    struct doc_node models = doc_get(node, "models"), unknown = doc_get(node, "unknown_models");
    struct doc_node objectives = doc_get(node, "objectives"), rewrites = doc_get(node, "rewrites");
    unsigned word = 0;
    enum status st = reading_word(&unknown, words, &word, err);
    if (unknown.val) {
        reading->unknown = word == 0 ? UNKNOWN_REFUSE : UNKNOWN_PASS;
    }
    reading->has_models = reading->has_models || models.val; /* an empty list is one */
    if (st == ST_OK) {
        st = read_list(reading, &models, read_model, err);
    }
    if (st == ST_OK) {
        st = read_list(reading, &objectives, read_objective, err);
    }
    return st == ST_OK ? read_list(reading, &rewrites, read_rewrite, err) : st;
}
