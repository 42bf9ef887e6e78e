/* An endpoint that has the model's LoRA adapter need not load it. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/vectors.h"

enum { SOME = 32 }; /* candidates that are looked at together */

static const float WAITING = 0.6f, ROOM = 0.8f;

static uint32_t get(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Where it is among the first `n`, or `n`. */
static uint32_t place_of(const struct load_adapters *adapters, uint32_t n, uint32_t hash) {
    for (uint32_t i = 0; i < n; i++) {
        if (get(&adapters->hashes[i]) == hash) {
            return i;
        }
    }
    return n;
}

/* What it is worth without being looked at closely. */
static float at_a_glance(uint32_t adapters) {
    return adapters & LOAD_ADAPTER_ROOM ? ROOM : 0;
}

/* What each is worth that has not the adapter. */
VECTORS static void rate(const void *parameters, const struct choice *choice,
                         const struct choice_facts *facts, float weight, struct choice_range range,
                         float *out) {
    const uint32_t *adapters = choice->columns->adapters;
    float worth = choice->model.ptr ? ROOM * weight : 0;
    (void)parameters;
    (void)facts;
#pragma omp simd
    for (size_t i = range.from; i < range.to; i++) {
        out[i] += adapters[i] & LOAD_ADAPTER_ROOM ? worth : 0;
    }
}

/* Where it has the adapter, and not only another one with the same bit. */
static void correct_one(struct choice *choice, uint32_t i, uint32_t hash, float weight) {
    uint32_t member = choice->columns->member[i];
    const struct load_adapters *adapters = &choice->snapshot->adapters[member];
    uint32_t n_running = get(&adapters->n_running), n = n_running + get(&adapters->n_waiting);
    n = n < LOAD_MOST_ADAPTERS ? n : LOAD_MOST_ADAPTERS; /* the two may be of different answers */
    uint32_t place = place_of(adapters, n, hash);
    if (place < n) {
        float number = place < n_running ? 1 : WAITING;
        choice_add_to(choice, i, (number - at_a_glance(choice->columns->adapters[i])) * weight);
    }
}

/* Of the next 32 candidates: a bit for each that may have it. */
VECTORS static uint32_t find_some(const uint32_t *adapters, uint32_t bit) {
    static const uint32_t powers[SOME] = {
#define FOUR(i) UINT32_C(1) << (i), UINT32_C(2) << (i), UINT32_C(4) << (i), UINT32_C(8) << (i)
        FOUR(0),  FOUR(4),  FOUR(8), FOUR(12), FOUR(16),
        FOUR(20), FOUR(24), FOUR(28)
#undef FOUR
    };
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (uint32_t i = 0; i < SOME; i++) {
        found |= adapters[i] & bit ? powers[i] : 0;
    }
    return found;
}

/* Most have not, and are passed over by the dozen. */
static void correct(const void *parameters, struct choice *choice, float weight) {
    const uint32_t *adapters = choice->columns->adapters;
    uint32_t hash = load_adapter_hash(choice->model), bit = load_adapter_bit(hash);
    bool any = choice->model.ptr && (choice->adapters & bit);
    uint32_t n = any ? choice->n : 0, n_whole = n - n % SOME;
    (void)parameters;
    for (uint32_t i = 0; i < n_whole; i += SOME) {
        uint32_t found = find_some(adapters + i, bit);
        for (; found != 0; found &= found - 1) {
            correct_one(choice, i + (uint32_t)__builtin_ctz(found), hash, weight);
        }
    }
    for (uint32_t i = n_whole; i < n; i++) {
        if (adapters[i] & bit) {
            correct_one(choice, i, hash, weight);
        }
    }
}

static const struct plugin_standing STANDING = {
    .of_models = true, .rate = rate, .correct = correct};

static void score(const void *parameters, struct choice *choice, float weight) {
    plugin_score_standing(&STANDING, parameters, choice, weight);
    correct(parameters, choice, weight);
}

const struct plugin plugin_lora_affinity_scorer = {
    .type = "lora-affinity-scorer", .kind = PLUGIN_SCORER, .score = score, .standing = &STANDING};
