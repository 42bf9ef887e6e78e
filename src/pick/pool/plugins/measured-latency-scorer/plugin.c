/* Prefers endpoints with shorter recent response times. */
#include <math.h>

#include "pick/pool/profile/plugin.h"

static const float NEVER_S = 1e30f;

struct latency_parameters {
    float first_byte; /* weight of the time to the first byte; the rest is that of the whole time */
    float half_life_s;
};

static const struct doc_member PARAMETERS[] = {
    {"ttftWeight", MEMBER_SHARE(struct latency_parameters, first_byte, true), .preset = 0.8},
    {"halfLifeSeconds", MEMBER_NUMBER(struct latency_parameters, half_life_s, 0, 86400),
     .above_min = true, .text = "expected a time above 0, at most 86400 s", .preset = 10},
    {0}};

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    (void)parameters;
    (void)err;
    needs->latency = true;
    return ST_OK;
}

/* 2 to the power of -x, for x from 0 to 126, within 1e-4: exp2f would be a call per candidate. */
static inline float power_of_half(float x) {
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    union {
        int32_t bits;
        float value;
    } power = {.bits = (127 - whole) << 23};
    return power.value * (1 + rest * (-0.69299f + rest * (0.23759f - rest * 0.0446f)));
}

/* Minimum and maximum of the weighted response times that were measured. */
SIMD_TARGETS static void collect_stats(const void *parameters,
                                       const struct candidate_set *candidates,
                                       struct candidate_range range, struct range_stats *out) {
    const struct latency_parameters *latency = parameters;
    const float *begun = candidates->columns->first_byte_s, *done = candidates->columns->answer_s;
    const uint32_t *answered = candidates->columns->answered;
    float first = latency->first_byte, least = INFINITY, greatest = -INFINITY;
#pragma omp simd reduction(min : least) reduction(max : greatest)
    for (size_t i = range.from; i < range.to; i++) {
        float seen = answered[i] != 0 ? 1 : 0, unseen = (1 - seen) * NEVER_S;
        float own = begun[i] * first + done[i] * (1 - first);
        float low = own + unseen, high = own - unseen;
        least = least < low ? least : low;
        greatest = greatest > high ? greatest : high;
    }
    out->min = least;
    out->max = greatest;
}

/* The score of an unknown or outdated time, so that the endpoint is tried again. */
static const float MIDDLE = 0.5f;

/* Times up to this, relative to the minimum, count alike. */
static const float ALIKE = 1.2f;

SIMD_TARGETS static void score_measured_range(const struct latency_parameters *latency,
                                              const struct candidate_set *candidates,
                                              const struct range_stats *stats, float weight,
                                              struct candidate_range range, float *out) {
    const float *begun = candidates->columns->first_byte_s, *done = candidates->columns->answer_s;
    const uint32_t *answered = candidates->columns->answered;
    float spread = stats->max - stats->min * ALIKE;
    bool differ = spread > 0;
    float factor = differ ? 1 / spread : 0, all = differ ? 0 : 1;
    float greatest = differ ? stats->max : 0, first = latency->first_byte;
    float halves = 1 / (64 * latency->half_life_s);
    int32_t oldest = (int32_t)(100 * 64 * latency->half_life_s); /* the measurement has decayed
                                                                    completely */
    uint32_t now = candidate_clock_ticks(candidates->now_ns);
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        int32_t age = (int32_t)(now - answered[i]); /* negative: measured after `now` was read */
        float seen = answered[i] != 0 ? 1 : 0;
        float seconds = begun[i] * first + done[i] * (1 - first);
        float own = (greatest - seconds) * factor + all;
        own = own < 1 ? own : 1;
        age = age < oldest ? age : oldest;
        age = age > 0 ? age : 0;
        float belief = seen * power_of_half((float)age * halves);
        out[i] += (MIDDLE + (own - MIDDLE) * belief) * weight;
    }
}

static void score_range(const void *parameters, const struct candidate_set *candidates,
                        const struct range_stats *stats, float weight, struct candidate_range range,
                        float *out) {
    if (stats->max < 0) { /* nothing was measured yet */
        score_range_constant(MIDDLE * weight, range, out);
    } else {
        score_measured_range(parameters, candidates, stats, weight, range, out);
    }
}

static const struct plugin_cacheable CACHEABLE = {
    .depends_on_time = true, .collect_stats = collect_stats, .score_range = score_range};

static void score(const void *parameters, struct candidate_set *candidates, float weight) {
    plugin_score_cacheable(&CACHEABLE, parameters, candidates, weight);
}

const struct plugin plugin_measured_latency_scorer = {
    .type = "measured-latency-scorer",
    .kind = PLUGIN_SCORER,
    .load_share = 1,
    PLUGIN_PARAMETERS(struct latency_parameters, PARAMETERS),
    .add_needs = add_needs,
    .score = score,
    .cacheable = &CACHEABLE};
