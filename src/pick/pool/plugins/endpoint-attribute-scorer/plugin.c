/* Scores endpoints by an attribute, linearly between the ends of a range.
 *
 * Values are compared as doubles, and so not by the cached floats of other scorers: of times or
 * counters the last digits count. */
#include "pick/pool/profile/attribute_user.h"

struct scale {
    struct attribute_user user;
    bool lower_is_better, has_type;
    bool is_fixed, is_adaptive; /* as said; neither: adaptive */
    double min, max;
};

/* ---- parameters ------------------------------------------------------------------------------ */

static const struct doc_member RANGE[] = {
    {"min", MEMBER_NUMBER(struct scale, min, INT64_MIN, INT64_MAX)},
    {"max", MEMBER_NUMBER(struct scale, max, INT64_MIN, INT64_MAX)},
    {0}};

static void read_fixed(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct scale *scale = object;
    scale->is_fixed = doc_is_present(node);
    if (!scale->is_fixed) {
        return;
    }
    doc_reader_expect_object(reader, node);
    doc_reader_object(reader, node, RANGE, scale);
    if (doc_reader_ok(reader) && !(scale->min < scale->max)) {
        doc_reader_fail(reader, node, "expected `min` below `max`, got %g and %g", scale->min,
                        scale->max);
    }
}

static void read_adaptive(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const struct doc_member none[] = {{0}};
    struct scale *scale = object;
    scale->is_adaptive = doc_is_present(node);
    if (scale->is_adaptive) {
        doc_reader_expect_object(reader, node);
        doc_reader_object(reader, node, none, NULL);
    }
}

static void check_one(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct scale *scale = object;
    if (scale->is_fixed && scale->is_adaptive) {
        doc_reader_fail(reader, node, "expected `fixedRange` or `adaptiveRange`, got both");
    }
}

static const struct doc_member NORMALIZATION[] = {
    {"fixedRange", MEMBER_CUSTOM(read_fixed), .members = RANGE},
    {"adaptiveRange", MEMBER_CUSTOM(read_adaptive), .form = "`{}`"},
    {0}};

static void read_type(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const char *const words[] = {"linear_lower_is_better", "linear_higher_is_better", NULL};
    struct scale *scale = object;
    unsigned word = 0;
    doc_reader_word(reader, node, words, NULL, &word);
    scale->has_type = doc_is_present(node);
    scale->lower_is_better = word == 0;
}

static const struct doc_member ALGORITHM[] = {
    {"type", MEMBER_CUSTOM(read_type),
     .form = "`linear_lower_is_better` or `linear_higher_is_better`"},
    {"normalization", MEMBER_OBJECT(NORMALIZATION), .check = check_one},
    {0}};

static void check_algorithm(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct scale *scale = object;
    if (!scale->has_type) {
        doc_reader_fail(
            reader, node,
            "expected `{type: linear_lower_is_better}` or `{type: linear_higher_is_better}`");
    }
}

static const struct doc_member PARAMETERS[] = {
    {"attributeKey", MEMBER_TEXT(struct scale, user.key.name), .check = attribute_user_check_name},
    {"producer", MEMBER_CUSTOM(attribute_user_read_producer), .form = "the type of a plugin"},
    {"algorithm", MEMBER_OBJECT(ALGORITHM), .check = check_algorithm},
    {0}};

/* ---- scores ---------------------------------------------------------------------------------- */

/* Of the candidates that have the attribute. */
static void find_range(const struct scale *scale, const struct candidate_set *candidates,
                       double *min, double *max) {
    *min = INFINITY;
    *max = -INFINITY;
    for (uint32_t i = 0; i < candidates->n; i++) {
        double value;
        if (candidate_set_attribute(candidates, i, scale->user.index, &value)) {
            *min = value < *min ? value : *min;
            *max = value > *max ? value : *max;
        }
    }
}

/* A value that changed after the range was found, or is outside a fixed range, counts as its end.
 * A range of one value is the best. */
static float share_of(const struct scale *scale, double value, double min, double max) {
    double best = scale->lower_is_better ? 0 : 1;
    double share = max > min ? (value - min) / (max - min) : best;
    share = share > 0 ? share : 0; /* and not NaN */
    share = share < 1 ? share : 1;
    return (float)(scale->lower_is_better ? 1 - share : share);
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct scale *scale = parameters;
    double min = scale->min, max = scale->max;
    if (!scale->is_fixed) {
        find_range(scale, candidates, &min, &max);
    }
    for (uint32_t i = 0; i < candidates->n; i++) {
        double value;
        if (candidate_set_attribute(candidates, i, scale->user.index, &value)) {
            candidates->score[i] += weight * share_of(scale, value, min, max);
        }
    }
    candidate_set_mark_all_modified(candidates);
}

const struct plugin plugin_endpoint_attribute_scorer = {.type = "endpoint-attribute-scorer",
                                                        .kind = PLUGIN_SCORER,
                                                        PLUGIN_PARAMETERS(struct scale, PARAMETERS),
                                                        .add_needs = attribute_user_add_needs,
                                                        .load_share = 1,
                                                        .score = score};
