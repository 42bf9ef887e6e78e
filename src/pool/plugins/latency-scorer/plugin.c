/* Endpoints whose answers came sooner of late are better. */
#include <math.h>

#include "pool/plugin.h"

struct means {
    float first_byte; /* the share of the time to the first byte; the rest is the whole time's */
    float half_life_s;
};

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const names[] = {"halfLifeSeconds", "ttftWeight", NULL};
    struct doc_node share = doc_get(node, "ttftWeight"), half = doc_get(node, "halfLifeSeconds");
    struct means *means = arena_calloc(arena, 1, sizeof(*means));
    double first_byte = 0.8, half_life_s = 10;
    *parameters = means;
    if (!means) {
        return error_set(err, ST_NO_MEMORY, "no memory for a scorer");
    }
    enum status st = doc_present(node) ? doc_only(node, names, err) : ST_OK;
    if (st == ST_OK) {
        st = doc_read_f64(&share, &first_byte, err);
    }
    if (st == ST_OK && !(first_byte >= 0 && first_byte <= 1)) {
        st = doc_error(&share, err, "expected a share from 0 to 1");
    }
    if (st == ST_OK) {
        st = doc_read_f64(&half, &half_life_s, err);
    }
    if (st == ST_OK && !(half_life_s > 0 && half_life_s <= 86400)) {
        st = doc_error(&half, err, "expected a time above 0, of 86400 s at most");
    }
    *means = (struct means){(float)first_byte, (float)half_life_s};
    return st;
}

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->latency = true;
    return ST_OK;
}

static float get(const _Atomic float *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* How much of it is still believed: half of it after the half-life. */
static float belief(const struct means *means, const struct choice *choice, uint64_t seen_ns) {
    float age_s = seen_ns < choice->now_ns ? (float)(choice->now_ns - seen_ns) / 1e9f : 0;
    return seen_ns == 0 ? 0 : exp2f(-age_s / means->half_life_s);
}

static float seconds(const struct means *means, const struct endpoint *endpoint) {
    return get(&endpoint->first_byte_s) * means->first_byte +
           get(&endpoint->answer_s) * (1 - means->first_byte);
}

static uint64_t seen_ns(const struct endpoint *endpoint) {
    return atomic_load_explicit(&endpoint->answered_ns, memory_order_relaxed);
}

/* Of those whose answers were seen. Returns: nobody's was. */
static bool find_span(const struct means *means, const struct choice *choice, float *least,
                      float *greatest) {
    *least = INFINITY;
    *greatest = -INFINITY;
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct endpoint *endpoint = choice_member(choice, i)->endpoint;
        float s = seconds(means, endpoint);
        if (seen_ns(endpoint) != 0) {
            *least = s < *least ? s : *least;
            *greatest = s > *greatest ? s : *greatest;
        }
    }
    return !(*greatest >= *least);
}

/* What is not known, or not believed any more, is in the middle: it is tried again. */
static void score(const void *parameters, struct choice *choice, float weight) {
    static const float middle = 0.5f;
    const struct means *means = parameters;
    float least, greatest;
    bool nobody = find_span(means, choice, &least, &greatest);
    for (uint32_t i = 0; i < choice->n; i++) {
        const struct endpoint *endpoint = choice_member(choice, i)->endpoint;
        uint64_t at_ns = seen_ns(endpoint);
        float share = middle;
        if (!nobody && at_ns != 0) {
            float own = (greatest - seconds(means, endpoint)) / (greatest - least);
            own = own >= 0 ? own : 0; /* not a number where all are the same */
            own = own <= 1 ? own : 1;
            own = greatest > least ? own : 1;
            share += (own - middle) * belief(means, choice, at_ns);
        }
        choice->scratch[i] = share;
    }
    choice_add_shares(choice, choice->scratch, weight);
}

const struct plugin plugin_latency_scorer = {
    .type = "latency-scorer", .kind = PLUGIN_SCORER, .read = read, .want = want, .score = score};
