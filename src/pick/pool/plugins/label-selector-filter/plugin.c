/* Keeps endpoints by their labels, with Kubernetes' label selectors. */
#include "pick/pool/profile/plugin.h"

enum relation { IN, NOT_IN, EXISTS, DOES_NOT_EXIST, N_OPERATORS };

struct condition {
    struct str key;
    enum relation relation;
    const struct str *values;
    size_t n_values;
};

struct selector {
    struct condition *conditions; /* all must hold */
    size_t n;
};

/* ---- parameters ------------------------------------------------------------------------------ */

/* A required text. */
static enum status read_text(const struct doc_node *node, struct arena *arena, struct str *out,
                             struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st == ST_OK && !text.ptr) {
        return doc_error(node, err, "expected text, got nothing");
    }
    if (st == ST_OK) {
        *out = arena_dup(arena, text);
        st = out->ptr ? ST_OK : error_no_memory(err, "a filter");
    }
    return st;
}

static enum status read_values(const struct doc_node *list, struct arena *arena,
                               struct condition *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    bool needs = out->relation == IN || out->relation == NOT_IN;
    struct str *values = arena_calloc(arena, n, sizeof(*values));
    enum status st = ST_OK;
    if (needs != (n > 0)) {
        return doc_error(list, err, "expected values for In and NotIn, and only for these");
    }
    if (!values) {
        return error_no_memory(err, "a filter");
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item);) {
        st = read_text(&item, arena, &values[out->n_values++], err);
    }
    out->values = values;
    return st;
}

static enum status read_operator(const struct doc_node *node, enum relation *out,
                                 struct error *err) {
    static const char *const words[N_OPERATORS] = {"In", "NotIn", "Exists", "DoesNotExist"};
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    for (int i = 0; st == ST_OK && i < N_OPERATORS; i++) {
        if (str_is(text, words[i])) {
            *out = (enum relation)i;
            return ST_OK;
        }
    }
    return st != ST_OK ? st : doc_error(node, err, "expected In, NotIn, Exists or DoesNotExist");
}

static enum status read_expression(const struct doc_node *node, struct arena *arena,
                                   struct condition *out, struct error *err) {
    static const char *const names[] = {"key", "operator", "values", NULL};
    struct doc_node key = doc_get(node, "key"), how = doc_get(node, "operator");
    struct doc_node values = doc_get(node, "values");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_text(&key, arena, &out->key, err);
    }
    if (st == ST_OK) {
        st = read_operator(&how, &out->relation, err);
    }
    return st == ST_OK ? read_values(&values, arena, out, err) : st;
}

static enum status read_label(const struct doc_node *node, struct arena *arena,
                              struct condition *out, struct error *err) {
    struct str *value = arena_calloc(arena, 1, sizeof(*value));
    out->key = arena_dup(arena, str_of(node->key));
    *out = (struct condition){.key = out->key, .relation = IN, .values = value, .n_values = 1};
    return value && out->key.ptr ? read_text(node, arena, value, err)
                                 : error_no_memory(err, "a filter");
}

static enum status read_selector(const struct doc_node *labels, const struct doc_node *expressions,
                                 struct arena *arena, struct selector *out, struct error *err) {
    enum status st = ST_OK;
    for (struct doc_node item = {0}; st == ST_OK && doc_next_member(labels, &item);) {
        st = read_label(&item, arena, &out->conditions[out->n++], err);
    }
    for (struct doc_node item = {0};
         st == ST_OK && doc_is_present(expressions) && doc_next(expressions, &item);) {
        st = read_expression(&item, arena, &out->conditions[out->n++], err);
    }
    return st;
}

static size_t count_members(const struct doc_node *object) {
    size_t n = 0;
    for (struct doc_node item = {0}; doc_next_member(object, &item);) {
        n++;
    }
    return n;
}

static enum status read_parameters(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err) {
    static const char *const names[] = {"matchLabels", "matchExpressions", NULL};
    struct doc_node labels = doc_get(node, "matchLabels");
    struct doc_node expressions = doc_get(node, "matchExpressions");
    struct selector *selector = arena_calloc(arena, 1, sizeof(*selector));
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK && doc_is_present(&labels)) {
        st = doc_expect_object(&labels, err);
    }
    if (st != ST_OK) {
        return st;
    }
    size_t n =
        count_members(&labels) + (doc_is_present(&expressions) ? doc_count(&expressions) : 0);
    *parameters = selector;
    if (selector) {
        selector->conditions = arena_calloc(arena, n, sizeof(*selector->conditions));
    }
    if (!selector || !selector->conditions) {
        return error_no_memory(err, "a filter");
    }
    return read_selector(&labels, &expressions, arena, selector, err);
}

/* ---- filtering ------------------------------------------------------------------------------- */

static bool is_one_of(struct str value, const struct condition *condition) {
    for (size_t i = 0; i < condition->n_values; i++) {
        if (str_eq(value, condition->values[i])) {
            return true;
        }
    }
    return false;
}

/* NotIn also matches endpoints without the label. */
static bool condition_matches(const struct condition *condition, struct pool_labels labels) {
    const struct pool_label *label = pool_labels_find(labels, condition->key);
    switch (condition->relation) {
    case IN:
        return label && is_one_of(label->value, condition);
    case NOT_IN:
        return !label || !is_one_of(label->value, condition);
    case EXISTS:
        return label != NULL;
    case DOES_NOT_EXIST:
    case N_OPERATORS:
        break;
    }
    return !label;
}

static bool selector_matches(const void *parameters, const struct candidate_set *candidates,
                             uint32_t i) {
    const struct selector *selector = parameters;
    struct pool_labels labels = candidate_set_member(candidates, i)->labels;
    for (size_t k = 0; k < selector->n; k++) {
        if (!condition_matches(&selector->conditions[k], labels)) {
            return false;
        }
    }
    return true;
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, selector_matches);
}

const struct plugin plugin_label_selector_filter = {.type = "label-selector-filter",
                                                    .kind = PLUGIN_FILTER,
                                                    .read_parameters = read_parameters,
                                                    .filter = filter};
