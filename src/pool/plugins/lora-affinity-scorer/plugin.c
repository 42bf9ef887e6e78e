/* An endpoint that has the model's LoRA adapter need not load it. */
#include "pool/plugin.h"
#include "pool/vectors.h"

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

static float judge(const struct load_adapters *adapters, uint32_t hash) {
    uint32_t n_running = get(&adapters->n_running), n = n_running + get(&adapters->n_waiting);
    n = n < LOAD_MOST_ADAPTERS ? n : LOAD_MOST_ADAPTERS; /* the two may be of different answers */
    uint32_t place = place_of(adapters, n, hash);
    if (place < n) {
        return place < n_running ? 1 : WAITING;
    }
    return n < get(&adapters->most) ? ROOM : 0;
}

static void judge_one(const struct choice *choice, uint32_t i, uint32_t hash) {
    uint32_t member = choice->columns->member[i];
    choice->scratch[i] = judge(&choice->snapshot->adapters[member], hash);
}

/* What each is worth that has not the adapter. */
VECTORS static void judge_others(const struct choice *choice) {
    const uint32_t *adapters = choice->columns->adapters;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->scratch[i] = adapters[i] & LOAD_ADAPTER_ROOM ? ROOM : 0;
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
static void judge_holders(const struct choice *choice, uint32_t hash) {
    const struct choice_columns *columns = choice->columns;
    uint32_t bit = load_adapter_bit(hash), n_whole = choice->n - choice->n % SOME;
    for (uint32_t i = 0; i < n_whole; i += SOME) {
        uint32_t found = find_some(columns->adapters + i, bit);
        for (; found != 0; found &= found - 1) {
            judge_one(choice, i + (uint32_t)__builtin_ctz(found), hash);
        }
    }
    for (uint32_t i = n_whole; i < choice->n; i++) {
        if (columns->adapters[i] & bit) {
            judge_one(choice, i, hash);
        }
    }
}

static void score(const void *parameters, struct choice *choice, float weight) {
    uint32_t hash = choice->model.ptr ? load_adapter_hash(choice->model) : 0;
    (void)parameters;
    if (hash != 0) {
        judge_others(choice);
        judge_holders(choice, hash);
        choice_add_shares(choice, choice->scratch, weight);
    }
}

const struct plugin plugin_lora_affinity_scorer = {
    .type = "lora-affinity-scorer", .kind = PLUGIN_SCORER, .score = score};
