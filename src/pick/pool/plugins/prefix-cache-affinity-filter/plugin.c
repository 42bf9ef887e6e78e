/* Only endpoints that were lately sent most of the prompt, unless they have much more to do. */
#include <math.h>

#include "pick/pool/profile/plugin.h"

struct gate {
    float threshold;   /* the share of the prompt that they were sent */
    double explore;    /* the chance that it stands open */
    double penalty_ms; /* so much later may an answer begin; 0: as late as it likes */
    double throughput; /* tokens of prompts that an endpoint reads in a second */
};

static enum status read_number(const struct doc_node *node, const char *name, double most,
                               double *out, struct error *err) {
    struct doc_node item = doc_get(node, name);
    enum status st = doc_read_f64(&item, out, err);
    return st == ST_OK && !(*out >= 0 && *out <= most)
               ? doc_error(&item, err, "expected a number from 0 to %g", most)
               : st;
}

/* Where it comes from that an answer would begin later: we have nobody who foretells it. */
static enum status read_source(const struct doc_node *node, struct error *err) {
    struct doc_node item = doc_get(node, "ttftSource");
    struct str text = STR("prefillThroughput");
    enum status st = doc_read_str(&item, &text, err);
    return st == ST_OK && !str_is(text, "prefillThroughput")
               ? doc_error(&item, err, "expected prefillThroughput: there is no other source")
               : st;
}

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const names[] = {"affinityThreshold", "explorationProbability",
                                        "maxTTFTPenaltyMs",  "peakPrefillThroughput",
                                        "ttftSource",        NULL};
    struct gate *gate = arena_calloc(arena, 1, sizeof(*gate));
    double threshold = 0.8;
    *parameters = gate;
    if (!gate) {
        return error_set(err, ST_NO_MEMORY, "no memory for a filter");
    }
    *gate = (struct gate){.penalty_ms = 18000, .throughput = 15928};
    enum status st = doc_present(node) ? doc_only(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = read_number(node, "affinityThreshold", 1, &threshold, err);
    }
    if (st == ST_OK) {
        st = read_number(node, "explorationProbability", 1, &gate->explore, err);
    }
    if (st == ST_OK) {
        st = read_number(node, "maxTTFTPenaltyMs", 1e9, &gate->penalty_ms, err);
    }
    if (st == ST_OK) {
        st = read_number(node, "peakPrefillThroughput", 1e12, &gate->throughput, err);
    }
    gate->threshold = (float)threshold;
    return st == ST_OK ? read_source(node, err) : st;
}

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->prompt = wants->body = true;
    return ST_OK;
}

static bool is_near(const void *parameters, const struct choice *choice, uint32_t i) {
    const struct gate *gate = parameters;
    const struct choice_prefix *prefix = choice->prefix;
    for (uint32_t k = 0; k < prefix->n; k++) {
        if (prefix->hits[k].member == choice->columns->member[i]) {
            return (float)prefix->hits[k].n_blocks >= gate->threshold * (float)prefix->n_blocks;
        }
    }
    return false;
}

/* When an answer would begin at the best of those that are kept, or of the others. */
static double begin_ms(const struct gate *gate, const struct choice *choice, bool near) {
    double least = INFINITY;
    for (uint32_t i = 0; i < choice->n; i++) {
        if (is_near(gate, choice, i) == near) {
            double n = (double)endpoint_n_tokens(choice_member(choice, i)->endpoint);
            least = n < least ? n : least;
        }
    }
    return gate->throughput > 0 ? least / gate->throughput * 1000 : 0;
}

static void filter(const void *parameters, struct choice *choice) {
    const struct gate *gate = parameters;
    uint32_t n_near = 0;
    for (uint32_t i = 0; choice->prefix->n > 0 && i < choice->n; i++) {
        n_near += is_near(gate, choice, i);
    }
    if (n_near == 0 || n_near == choice->n ||
        (gate->explore > 0 && dice_unit(choice->dice) < gate->explore)) {
        return;
    }
    if (gate->penalty_ms > 0 &&
        begin_ms(gate, choice, true) > begin_ms(gate, choice, false) + gate->penalty_ms) {
        return;
    }
    choice_keep(choice, gate, is_near);
}

const struct plugin plugin_prefix_cache_affinity_filter = {.type = "prefix-cache-affinity-filter",
                                                           .kind = PLUGIN_FILTER,
                                                           .read = read,
                                                           .want = want,
                                                           .filter = filter};
