/* A request of which nobody was sent the beginning goes where none such went for the longest
 * time. */
#include "pick/pool/profile/plugin.h"
#include "pick/pool/profile/vectors.h"

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->prompt = wants->body = wants->cold = true;
    return ST_OK;
}

/* Turns since then, of `most` at most; those that had none are as if they had had theirs before all
 * others. */
static inline uint32_t age_of(uint32_t turn, uint32_t newest, uint32_t most) {
    return turn == 0 || newest - turn > most ? most : newest - turn;
}

/* The longest time is worth 1, the newest turn nothing. */
VECTORS static void score(const void *parameters, struct choice *choice, float weight) {
    const uint32_t *turns = choice->columns->cold_turn;
    uint32_t newest = 0, first = UINT32_MAX, most = choice->n;
    (void)parameters;
    if (choice->prefix->n > 0) {
        return;
    }
#pragma omp simd reduction(max : newest) reduction(min : first)
    for (uint32_t i = 0; i < choice->n; i++) {
        newest = turns[i] > newest ? turns[i] : newest;
        first = turns[i] < first ? turns[i] : first;
    }
    uint32_t oldest = age_of(first, newest, most);
    bool differ = newest != first && oldest > 0;
    float factor = differ ? weight / (float)oldest : 0, all = differ ? 0 : weight;
#pragma omp simd
    for (uint32_t i = 0; i < choice->n; i++) {
        choice->score[i] += (float)(int32_t)age_of(turns[i], newest, most) * factor + all;
    }
    choice_touch_all(choice);
}

const struct plugin plugin_no_hit_lru_scorer = {
    .type = "no-hit-lru-scorer", .kind = PLUGIN_SCORER, .want = want, .score = score};
