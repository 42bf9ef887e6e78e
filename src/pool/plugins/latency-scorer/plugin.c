/* Endpoints whose answers came sooner of late are better. */
#include <math.h>

#include "pool/plugin.h"
#include "pool/vectors.h"

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

/* 2 to the power of -x, of an x from 0 to 126, within a ten-thousandth: what exp2f has to say more
 * exactly in a call for each candidate. */
static inline float power_of_half(float x) {
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    union {
        int32_t bits;
        float value;
    } power = {.bits = (127 - whole) << 23};
    return power.value * (1 + rest * (-0.69299f + rest * (0.23759f - rest * 0.0446f)));
}

/* How long answers take, in the choice's scratch; who has given none is as slow as the slowest.
 * Returns: what the others take, the least and the greatest. */
VECTORS static struct choice_span find_span(const struct means *means,
                                            const struct choice *choice) {
    const struct choice_columns *columns = choice->columns;
    float *seconds = choice->scratch, first = means->first_byte;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        float seen = columns->answered[i] != 0 ? 1 : 0;
        seconds[i] = (columns->first_byte_s[i] * first + columns->answer_s[i] * (1 - first)) * seen;
    }
    float greatest = choice_greatest(choice, seconds);
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        seconds[i] = columns->answered[i] != 0 ? seconds[i] : greatest;
    }
    return choice_span_of(choice, seconds);
}

/* What is not known, or not believed any more, is in the middle: it is tried again. */
VECTORS static void score(const void *parameters, struct choice *choice, float weight) {
    static const float middle = 0.5f;
    const struct means *means = parameters;
    const uint32_t *answered = choice->columns->answered;
    struct choice_span span = find_span(means, choice);
    bool differ = span.greatest > span.least;
    float factor = differ ? 1 / (span.greatest - span.least) : 0, all = differ ? 0 : 1;
    float halves = 1 / (64 * means->half_life_s);
    int32_t oldest = (int32_t)(100 * 64 * means->half_life_s); /* of which nothing is left */
    uint32_t now = choice_clock(choice->now_ns);
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        int32_t age = (int32_t)(now - answered[i]); /* below 0: seen in between */
        float seen = answered[i] != 0 ? 1 : 0;
        float own = (span.greatest - choice->scratch[i]) * factor + all;
        age = age < oldest ? age : oldest;
        age = age > 0 ? age : 0;
        float belief = seen * power_of_half((float)age * halves);
        choice->score[i] += (middle + (own - middle) * belief) * weight;
    }
}

const struct plugin plugin_latency_scorer = {
    .type = "latency-scorer", .kind = PLUGIN_SCORER, .read = read, .want = want, .score = score};
