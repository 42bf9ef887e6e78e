/* A request of which nobody was sent the beginning goes where none such went for the longest
 * time. */
#include "pool/plugin.h"
#include "pool/vectors.h"

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->prompt = wants->body = wants->cold = true;
    return ST_OK;
}

/* Turns since then; those that had none are as if they had had theirs before all others. */
VECTORS static void score(const void *parameters, struct choice *choice, float weight) {
    const uint32_t *turns = choice->columns->cold_turn;
    uint32_t newest = 0, most = choice->n;
    (void)parameters;
    if (choice->prefix->n > 0) {
        return;
    }
#pragma omp simd reduction(max : newest)
    for (uint32_t i = 0; i < choice->n; i++) {
        newest = turns[i] > newest ? turns[i] : newest;
    }
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t age = turns[i] == 0 || newest - turns[i] > most ? most : newest - turns[i];
        choice->scratch[i] = -(float)(int32_t)age;
    }
    choice_add_least(choice, choice->scratch, weight);
}

const struct plugin plugin_no_hit_lru_scorer = {
    .type = "no-hit-lru-scorer", .kind = PLUGIN_SCORER, .want = want, .score = score};
