/* Prefers, or keeps, the endpoints whose label has a range of prompt lengths that the request's is
 * in. */
#include "pick/pool/profile/plugin.h"
#include "core/base/num.h"

struct context_length {
    struct str label; /* empty: CONTEXT_LABEL */
    bool filters;
};

static const char CONTEXT_LABEL[] = "llm-d.ai/context-length-range";

static void check_label(struct doc_reader *reader, const struct doc_node *node, void *parameters) {
    const struct context_length *own = parameters;
    if (doc_is_present(node) && own->label.len == 0) {
        doc_reader_fail(reader, node, "expected a text that is not empty");
    }
}

static const struct doc_member PARAMETERS[] = {
    {"label", MEMBER_TEXT(struct context_length, label), .check = check_label, .form = "a label"},
    {"enableFiltering", MEMBER_BOOL(struct context_length, filters)},
    {0}};

enum range_kind { RANGE_NONE, RANGE_INVALID, RANGE_GIVEN };

/* "2048-8192", in tokens. */
static enum range_kind read_range(const struct context_length *own,
                                  const struct candidate_set *candidates, uint32_t i,
                                  uint64_t *least, uint64_t *most) {
    struct str name = own->label.len > 0 ? own->label : str_of(CONTEXT_LABEL);
    const struct pool_label *label =
        pool_labels_find(candidate_set_member(candidates, i)->labels, name);
    if (!label) {
        return RANGE_NONE;
    }
    struct str rest = label->value, first = str_cut(&rest, '-');
    bool is_valid = rest.ptr && num_parse_u64(str_trim(first), least) &&
                    num_parse_u64(str_trim(rest), most) && *least <= *most;
    return is_valid ? RANGE_GIVEN : RANGE_INVALID;
}

static bool is_in_range(const void *parameters, const struct candidate_set *candidates,
                        uint32_t i) {
    uint64_t least = 0, most = 0, n = candidates->n_tokens;
    enum range_kind kind = read_range(parameters, candidates, i, &least, &most);
    return kind == RANGE_NONE || (kind == RANGE_GIVEN && n >= least && n <= most);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    const struct context_length *own = parameters;
    if (own->filters) {
        candidate_set_filter(candidates, own, is_in_range);
    }
}

/* As upstream: in its range 0.3 to 1, more in a narrow one and far from its end; outside of it up
 * to 0.3, less with the distance. */
static double score_of_range(uint64_t least, uint64_t most, uint64_t n) {
    if (n >= least && n <= most) {
        double width = (double)(most - least);
        double narrow = 1 / (1 + width / 10000), room = (double)(most - n) / width;
        return width > 0 ? 0.3 + 0.7 * (0.7 * narrow + 0.3 * room) : 1;
    }
    uint64_t distance = n > most ? n - most : least - n;
    return 0.3 / (1 + (double)distance / 1000);
}

/* Most of a pool's endpoints may have no labels at all. */
static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    score_range_constant(weight / 2, (struct candidate_range){0, candidates->n}, candidates->score);
    for (uint32_t i = 0; i < candidates->n; i++) {
        uint64_t least = 0, most = 0;
        enum range_kind kind = RANGE_NONE;
        if (candidate_set_member(candidates, i)->labels.n > 0) {
            kind = read_range(parameters, candidates, i, &least, &most);
        }
        if (kind != RANGE_NONE) {
            double number =
                kind == RANGE_GIVEN ? score_of_range(least, most, candidates->n_tokens) : 0;
            candidates->score[i] += (float)(number - 0.5) * weight;
        }
    }
    candidate_set_mark_all_modified(candidates);
}

const struct plugin plugin_context_length_aware = {
    .type = "context-length-aware",
    .kind = PLUGIN_SCORER,
    .affinity_share = 1,
    PLUGIN_PARAMETERS(struct context_length, PARAMETERS),
    .add_needs = plugin_needs_body,
    .filter = filter,
    .score = score};
