/* An endpoint that has the model's LoRA adapter need not load it. */
#include "pool/plugin.h"

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

/* What each is worth that has not the adapter. */
static void judge_others(const struct choice *choice) {
    const uint32_t *adapters = choice->columns->adapters;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->scratch[i] = adapters[i] & LOAD_ADAPTER_ROOM ? ROOM : 0;
    }
}

static void score(const void *parameters, struct choice *choice, float weight) {
    const struct choice_columns *columns = choice->columns;
    uint32_t hash = choice->model.ptr ? load_adapter_hash(choice->model) : 0;
    (void)parameters;
    if (hash == 0) {
        return;
    }
    judge_others(choice);
    for (uint32_t i = 0, bit = load_adapter_bit(hash); i < choice->n; i++) {
        if (columns->adapters[i] & bit) { /* it may have it */
            choice->scratch[i] = judge(&choice->snapshot->adapters[columns->member[i]], hash);
        }
    }
    choice_add_shares(choice, choice->scratch, weight);
}

const struct plugin plugin_lora_affinity_scorer = {
    .type = "lora-affinity-scorer", .kind = PLUGIN_SCORER, .score = score};
