/* Prefers endpoints whose label has the value of a request header. */
#include "pick/pool/profile/plugin.h"

struct rule {
    struct str header; /* in lower case */
    struct str label;
};

static struct str dup_lower_case(struct arena *arena, struct str text) {
    struct str copy = arena_dup(arena, text);
    for (size_t i = 0; copy.ptr && i < copy.len; i++) {
        char c = copy.ptr[i];
        ((char *)copy.ptr)[i] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
    }
    return copy;
}

static enum status read_text(const struct doc_node *node, const char *name, struct str *out,
                             struct error *err) {
    struct doc_node item = doc_get(node, name);
    enum status st = doc_read_str(&item, out, err);
    return st == ST_OK && out->len == 0 ? doc_error(&item, err, "expected a text that is not empty")
                                        : st;
}

/* Response headers are not changed: only `false` is accepted. */
static enum status check_stamp_response_header(const struct doc_node *node, struct error *err) {
    struct doc_node item = doc_get(node, "stampResponseHeader");
    bool stamp = false;
    enum status st = doc_read_bool(&item, &stamp, err);
    return st == ST_OK && stamp
               ? doc_error(&item, err, "expected false: response headers are not changed")
               : st;
}

static enum status read_parameters(const struct doc_node *node, struct arena *arena,
                                   void **parameters, struct error *err) {
    static const char *const names[] = {"headerName", "labelKey", "stampResponseHeader", NULL};
    struct rule *rule = arena_calloc(arena, 1, sizeof(*rule));
    struct str header = {NULL, 0}, label = {NULL, 0};
    *parameters = rule;
    enum status st = doc_is_present(node) ? doc_reject_unknown(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = read_text(node, "headerName", &header, err);
    }
    if (st == ST_OK) {
        st = read_text(node, "labelKey", &label, err);
    }
    if (st == ST_OK) {
        st = check_stamp_response_header(node, err);
    }
    if (st != ST_OK || !rule) {
        return st != ST_OK ? st : error_no_memory(err, "a scorer");
    }
    *rule = (struct rule){dup_lower_case(arena, header), arena_dup(arena, label)};
    return rule->header.ptr && rule->label.ptr ? ST_OK : error_no_memory(err, "a scorer");
}

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

const struct plugin plugin_header_label_affinity_scorer = {.type = "header-label-affinity-scorer",
                                                           .kind = PLUGIN_SCORER,
                                                           .affinity_share = 1,
                                                           .read_parameters = read_parameters,
                                                           .score = score};
