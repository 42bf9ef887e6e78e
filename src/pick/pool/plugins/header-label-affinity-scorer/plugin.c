/* Prefers endpoints whose label has the value of a request header. */
#include "pick/pool/profile/plugin.h"

struct rule {
    struct str header; /* in lower case */
    struct str label;
};

static struct str view_required(struct doc_reader *reader, const struct doc_node *node) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (text.len == 0) {
        doc_reader_fail(reader, node, "expected a text that is not empty");
    }
    return text;
}

static void read_label(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_dup(reader, view_required(reader, node), out);
}

static void read_header(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_dup_lower(reader, view_required(reader, node), out);
}

static const struct doc_member PARAMETERS[] = {
    {"headerName", MEMBER_CUSTOM_FIELD(struct rule, header, struct str, read_header),
     .form = "a header"},
    {"labelKey", MEMBER_CUSTOM_FIELD(struct rule, label, struct str, read_label),
     .form = "a label"},
    {"stampResponseHeader",
     MEMBER_REFUSED_TRUE("expected false: response headers are not changed")},
    {0}};

/* The label and its wanted value, of an endpoint with fewer requests in flight than the limit. */
struct wanted {
    struct str label, value;
    float limit;
};

static bool matches(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct wanted *wanted = parameters;
    if (!(candidates->columns->in_flight[i] < wanted->limit)) {
        return false;
    }
    const struct pool_label *label =
        pool_labels_find(candidate_set_member(candidates, i)->labels, wanted->label);
    return label && str_eq(label->value, wanted->value);
}

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    const struct rule *rule = parameters;
    const struct pool_headers *headers = &candidates->headers;
    struct wanted wanted = {.label = rule->label};
    wanted.value = headers->find ? headers->find(headers->of, rule->header) : wanted.value;
    if (wanted.value.len > 0 && candidates->n > 0) {
        wanted.limit = affinity_limit(candidates);
        candidate_set_score_matching(candidates, &wanted, weight, matches);
    }
}

const struct plugin plugin_header_label_affinity_scorer = {
    .type = "header-label-affinity-scorer",
    .kind = PLUGIN_SCORER,
    .affinity_share = 1,
    PLUGIN_PARAMETERS(struct rule, PARAMETERS),
    .score = score};
