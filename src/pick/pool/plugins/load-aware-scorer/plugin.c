/* Fewer requests waiting are better, and as many as the threshold are worth nothing. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/vectors.h"

struct limit {
    float n_waiting;
};

/* Of one where nobody waits it isn't known how many more it could take. */
static const float IDLE = 0.5f;

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const names[] = {"threshold", NULL};
    struct doc_node item = doc_get(node, "threshold");
    struct limit *limit = arena_calloc(arena, 1, sizeof(*limit));
    int64_t threshold = 128;
    *parameters = limit;
    if (!limit) {
        return error_set(err, ST_NO_MEMORY, "no memory for a scorer");
    }
    enum status st = doc_present(node) ? doc_only(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = doc_read_i64(&item, 1, 1000000, &threshold, err);
    }
    limit->n_waiting = (float)threshold;
    return st;
}

VECTORS static void rate(const void *parameters, const struct choice *choice,
                         const struct choice_facts *facts, float weight, struct choice_range range,
                         float *out) {
    const struct limit *limit = parameters;
    const float *waiting = choice->columns->n_waiting;
    float factor = 1 / limit->n_waiting, most = IDLE * weight;
    (void)facts;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        float left = 1 - waiting[i] * factor;
        out[i] += (left > 0 ? left : 0) * most;
    }
}

static const struct plugin_standing STANDING = {.of_counts = true, .rate = rate};

static void score(const void *parameters, struct choice *choice, float weight) {
    plugin_score_standing(&STANDING, parameters, choice, weight);
}

const struct plugin plugin_load_aware_scorer = {.type = "load-aware-scorer",
                                                .kind = PLUGIN_SCORER,
                                                .read = read,
                                                .score = score,
                                                .standing = &STANDING};
