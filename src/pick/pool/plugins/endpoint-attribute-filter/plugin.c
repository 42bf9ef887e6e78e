/* Keeps endpoints of which an attribute compares with a threshold as the configuration says. */
#include "pick/pool/profile/attribute_user.h"

enum comparison { LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, EQUAL, NOT_EQUAL };

struct rule {
    struct attribute_user user;
    bool drops_missing, falls_back;
    bool has_algorithm, has_threshold, has_comparison;
    enum comparison comparison;
    double threshold;
};

/* ---- parameters ------------------------------------------------------------------------------ */

static const char *const COMPARISONS[] = {
    "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Equal", "NotEqual", NULL};

static void check_operator(struct doc_reader *reader, const struct doc_node *node, void *object) {
    if (!doc_is_present(node)) {
        doc_reader_fail(reader, node,
                        "expected LessThan, LessThanOrEqual, GreaterThan, "
                        "GreaterThanOrEqual, Equal or NotEqual, got nothing");
    }
    (void)object;
}

static const struct doc_member THRESHOLD[] = {
    {"operator", MEMBER_WORD(struct rule, comparison, COMPARISONS), .check = check_operator},
    {"value", MEMBER_NUMBER(struct rule, threshold, INT64_MIN, INT64_MAX)},
    {0}};

static void read_threshold(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct rule *rule = object;
    rule->has_threshold = doc_is_present(node);
    if (rule->has_threshold) {
        doc_reader_expect_object(reader, node);
        doc_reader_object(reader, node, THRESHOLD, rule);
    }
}

static void read_algorithm_type(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    static const char *const words[] = {"threshold", NULL};
    struct rule *rule = object;
    unsigned word = 0;
    doc_reader_word(reader, node, words, NULL, &word);
    rule->has_algorithm = doc_is_present(node);
}

static const struct doc_member ALGORITHM[] = {
    {"type", MEMBER_CUSTOM(read_algorithm_type), .form = "`threshold`"},
    {"threshold", MEMBER_CUSTOM(read_threshold), .members = THRESHOLD},
    {0}};

static void check_algorithm(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct rule *rule = object;
    if (!rule->has_algorithm || !rule->has_threshold) {
        doc_reader_fail(reader, node, "expected `{type: threshold, threshold: {operator, value}}`");
    }
}

static void read_on_missing(struct doc_reader *reader, const struct doc_node *node, void *out) {
    static const char *const words[] = {"Pass", "Fail", "", NULL};
    unsigned word = 0;
    doc_reader_word(reader, node, words, "Pass or Fail", &word);
    *(bool *)out = word == 1;
}

static const struct doc_member PARAMETERS[] = {
    {"attribute", MEMBER_TEXT(struct rule, user.key.name), .check = attribute_user_check_name},
    {"producer", MEMBER_CUSTOM(attribute_user_read_producer), .form = "the type of a plugin"},
    {"onMissing", MEMBER_CUSTOM_FIELD(struct rule, drops_missing, bool, read_on_missing),
     .form = "`Pass` or `Fail`"},
    {"fallbackOnEmpty", MEMBER_BOOL(struct rule, falls_back)},
    {"algorithm", MEMBER_OBJECT(ALGORITHM), .check = check_algorithm},
    {0}};

/* ---- filter ---------------------------------------------------------------------------------- */

static bool compare(enum comparison comparison, double value, double threshold) {
    switch (comparison) {
    case LESS:
        return value < threshold;
    case LESS_OR_EQUAL:
        return value <= threshold;
    case GREATER:
        return value > threshold;
    case GREATER_OR_EQUAL:
        return value >= threshold;
    case EQUAL:
        return value >= threshold && value <= threshold;
    case NOT_EQUAL:
        return value < threshold || value > threshold;
    }
    return false;
}

static bool is_kept(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct rule *rule = parameters;
    double value;
    return candidate_set_attribute(candidates, i, rule->user.index, &value)
               ? compare(rule->comparison, value, rule->threshold)
               : !rule->drops_missing;
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    const struct rule *rule = parameters;
    if (rule->falls_back) {
        candidate_set_prefer(candidates, rule, is_kept);
    } else {
        candidate_set_filter(candidates, rule, is_kept);
    }
}

const struct plugin plugin_endpoint_attribute_filter = {.type = "endpoint-attribute-filter",
                                                        .kind = PLUGIN_FILTER,
                                                        PLUGIN_PARAMETERS(struct rule, PARAMETERS),
                                                        .add_needs = attribute_user_add_needs,
                                                        .filter = filter};
