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
static void read_text(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        doc_reader_fail(reader, node, "expected text, got nothing");
    }
    doc_reader_dup(reader, text, out);
}

static void read_operator(struct doc_reader *reader, const struct doc_node *node, void *out) {
    static const char *const words[N_OPERATORS + 1] = {"In", "NotIn", "Exists", "DoesNotExist",
                                                       NULL};
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (str_is(text, words[i])) {
            *(enum relation *)out = (enum relation)i;
            return;
        }
    }
    doc_reader_fail(reader, node, "expected In, NotIn, Exists or DoesNotExist");
}

static void read_values(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct condition *out = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    bool needs = out->relation == IN || out->relation == NOT_IN;
    if (needs != (n > 0)) {
        doc_reader_fail(reader, list, "expected values for In and NotIn, and only for these");
    }
    struct str *values = doc_reader_calloc(reader, n, sizeof(*values));
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        read_text(reader, &item, &values[out->n_values++]);
    }
    out->values = values;
}

static const struct doc_member EXPRESSION[] = {
    {"key", MEMBER_CUSTOM_FIELD(struct condition, key, struct str, read_text)},
    {"operator", MEMBER_CUSTOM_FIELD(struct condition, relation, enum relation, read_operator)},
    {"values", MEMBER_CUSTOM(read_values)},
    {0}};

static void read_label(struct doc_reader *reader, const struct doc_node *node,
                       struct condition *out) {
    struct str *value = doc_reader_calloc(reader, 1, sizeof(*value));
    *out = (struct condition){.relation = IN, .values = value, .n_values = 1};
    doc_reader_dup(reader, str_of(node->key), &out->key);
    read_text(reader, node, value);
}

/* Reads `matchLabels`, and `matchExpressions` beside it. */
static void read_selector(struct doc_reader *reader, const struct doc_node *labels, void *object) {
    struct doc_node expressions = doc_get(labels->parent, "matchExpressions"), item = {0};
    struct selector *out = object;
    size_t n = doc_is_present(&expressions) ? doc_count(&expressions) : 0;
    if (doc_is_present(labels)) {
        doc_reader_expect_object(reader, labels);
    }
    while (doc_next_member(labels, &item)) {
        n++;
    }
    out->conditions = doc_reader_calloc(reader, n, sizeof(*out->conditions));
    while (doc_reader_ok(reader) && doc_next_member(labels, &item)) {
        read_label(reader, &item, &out->conditions[out->n++]);
    }
    item = (struct doc_node){0};
    while (doc_is_present(&expressions) && doc_reader_next(reader, &expressions, &item)) {
        doc_reader_object(reader, &item, EXPRESSION, &out->conditions[out->n++]);
    }
}

static const struct doc_member PARAMETERS[] = {
    {"matchLabels", MEMBER_CUSTOM(read_selector), .form = "an object of labels"},
    {"matchExpressions", MEMBER_BY_CALLER, .form = "a list of conditions"},
    {0}};

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

static bool allows(const void *parameters, struct pool_labels labels) {
    const struct selector *selector = parameters;
    for (size_t k = 0; k < selector->n; k++) {
        if (!condition_matches(&selector->conditions[k], labels)) {
            return false;
        }
    }
    return true;
}

static bool selector_matches(const void *parameters, const struct candidate_set *candidates,
                             uint32_t i) {
    return allows(parameters, candidate_set_member(candidates, i)->labels);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, selector_matches);
}

const struct plugin plugin_label_selector_filter = {.type = "label-selector-filter",
                                                    .kind = PLUGIN_FILTER,
                                                    PLUGIN_PARAMETERS(struct selector, PARAMETERS),
                                                    .filter = filter,
                                                    .allows = allows};
