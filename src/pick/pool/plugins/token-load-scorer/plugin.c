/* Fewer tokens in flight are better: a long prompt is more work than a short one. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/vectors.h"

struct limit {
    float n_tokens; /* with as many it is worth nothing */
};

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const names[] = {"queueThresholdTokens", NULL};
    struct doc_node item = doc_get(node, "queueThresholdTokens");
    struct limit *limit = arena_calloc(arena, 1, sizeof(*limit));
    int64_t n_tokens = 4194304;
    *parameters = limit;
    if (!limit) {
        return error_set(err, ST_NO_MEMORY, "no memory for a scorer");
    }
    enum status st = doc_present(node) ? doc_only(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = doc_read_i64(&item, 1, INT64_C(1) << 40, &n_tokens, err);
    }
    limit->n_tokens = (float)n_tokens;
    return st;
}

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->prompt = wants->body = true;
    return ST_OK;
}

VECTORS static void rate(const void *parameters, const struct choice *choice,
                         const struct choice_facts *facts, float weight, struct choice_range range,
                         float *out) {
    const struct limit *limit = parameters;
    const float *n_tokens = choice->columns->n_tokens;
    float factor = 1 / limit->n_tokens;
    (void)facts;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - n_tokens[i] * factor;
        out[i] += (left > 0 ? left : 0) * weight;
    }
}

static const struct plugin_standing STANDING = {.of_counts = true, .rate = rate};

static void score(const void *parameters, struct choice *choice, float weight) {
    plugin_score_standing(&STANDING, parameters, choice, weight);
}

const struct plugin plugin_token_load_scorer = {.type = "token-load-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .read = read,
                                                .want = want,
                                                .score = score,
                                                .standing = &STANDING};
