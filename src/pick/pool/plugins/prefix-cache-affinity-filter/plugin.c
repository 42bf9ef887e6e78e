/* Keeps only endpoints that were recently sent most of the prompt, unless they have much more
 * load. */
#include <math.h>

#include "pick/pool/profile/plugin.h"

struct affinity_parameters {
    struct prefix_user user;
    struct str load_producer;
    float threshold;   /* the share of the prompt that they were sent */
    double explore;    /* the probability that the filter keeps all */
    double penalty_ms; /* largest difference in the time to first token; 0: no limit */
    double throughput; /* prompt tokens that an endpoint processes per second */
};

/* The source of the time to first token: only the estimate from throughput is implemented. */
static void check_source(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    struct str text = STR("prefillThroughput");
    (void)unused;
    doc_reader_view(reader, node, &text);
    if (!str_is(text, "prefillThroughput")) {
        doc_reader_fail(reader, node, "expected prefillThroughput: there is no other source");
    }
}

static const struct doc_member PARAMETERS[] = {
    {"prefixMatchInfoProducerName", MEMBER_TEXT(struct affinity_parameters, user.producer)},
    {"inFlightLoadProducerName", MEMBER_TEXT(struct affinity_parameters, load_producer)},
    {"affinityThreshold", MEMBER_NUMBER(struct affinity_parameters, threshold, 0, 1),
     .preset = 0.8},
    {"explorationProbability", MEMBER_NUMBER(struct affinity_parameters, explore, 0, 1)},
    {"maxTTFTPenaltyMs", MEMBER_NUMBER(struct affinity_parameters, penalty_ms, 0, 1000000000),
     .preset = 18000},
    {"peakPrefillThroughput",
     MEMBER_NUMBER(struct affinity_parameters, throughput, 0, INT64_C(1000000000000)),
     .preset = 15928},
    {"ttftSource", MEMBER_CUSTOM(check_source), .form = "`prefillThroughput`"},
    {0}};

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    struct affinity_parameters *own = parameters;
    pool_needs_tokens(needs);
    return pool_needs_use_prefix(needs, &own->user, err);
}

/* What the candidates of a request are compared with. */
struct affinity {
    const struct prefix_matches *prefix;
    float threshold; /* the share of the prompt that they were sent */
    float limit;     /* they have fewer requests in flight, or as many more as what they have of
                        the prompt allows; INFINITY: no limit */
};

static bool has_prefix(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct affinity *affinity = parameters;
    const struct prefix_matches *prefix = affinity->prefix;
    for (uint32_t k = 0; k < prefix->n; k++) {
        if (prefix->hits[k].member == candidates->columns->member[i]) {
            uint32_t n = prefix->hits[k].n_blocks;
            return (float)n >= affinity->threshold * (float)prefix->n_blocks &&
                   candidates->columns->in_flight[i] <
                       affinity->limit + affinity_allowance(prefix, n);
        }
    }
    return false;
}

/* The shortest estimated time to first token, among the kept endpoints or among the others. */
static double estimate_ttft_ms(const struct affinity_parameters *parameters,
                               const struct affinity *affinity,
                               const struct candidate_set *candidates, bool near) {
    double least = INFINITY;
    for (uint32_t i = 0; i < candidates->n; i++) {
        if (has_prefix(affinity, candidates, i) == near) {
            double n = (double)endpoint_n_tokens(candidate_set_member(candidates, i)->endpoint);
            least = n < least ? n : least;
        }
    }
    return parameters->throughput > 0 ? least / parameters->throughput * 1000 : 0;
}

static bool is_worth_waiting(const struct affinity_parameters *parameters,
                             const struct affinity *affinity,
                             const struct candidate_set *candidates) {
    return !(parameters->penalty_ms > 0) ||
           estimate_ttft_ms(parameters, affinity, candidates, true) <=
               estimate_ttft_ms(parameters, affinity, candidates, false) + parameters->penalty_ms;
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    const struct affinity_parameters *own = parameters;
    const struct prefix_matches *prefix = &candidates->prefixes[own->user.index];
    uint32_t n_with_prefix = 0;
    if (prefix->n == 0 || candidates->n == 0 || !(own->threshold > 0)) {
        return;
    }
    struct affinity affinity = {
        prefix, own->threshold,
        own->penalty_ms > 0 && !prefix->is_placed ? affinity_limit(candidates) : INFINITY};
    for (uint32_t i = 0; i < candidates->n; i++) {
        n_with_prefix += has_prefix(&affinity, candidates, i);
    }
    if (n_with_prefix == 0 || n_with_prefix == candidates->n ||
        (own->explore > 0 && prng_double(candidates->prng) < own->explore)) {
        return;
    }
    if (is_worth_waiting(own, &affinity, candidates)) {
        candidate_set_filter(candidates, &affinity, has_prefix);
    }
}

const struct plugin plugin_prefix_cache_affinity_filter = {
    .type = "prefix-cache-affinity-filter",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct affinity_parameters, PARAMETERS),
    .add_needs = add_needs,
    .filter = filter};
