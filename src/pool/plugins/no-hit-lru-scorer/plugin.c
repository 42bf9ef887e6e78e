/* A request of which nobody was sent the beginning goes where none such went for the longest
 * time. */
#include "pool/plugin.h"

static enum status want(const void *parameters, struct pool_wants *wants, struct error *err) {
    (void)parameters;
    (void)err;
    wants->prompt = wants->body = wants->cold = true;
    return ST_OK;
}

/* Turns since then; those that had none are as if they had had theirs before all others. */
static void score(const void *parameters, struct choice *choice, float weight) {
    uint32_t newest = 0;
    (void)parameters;
    if (choice->prefix->n > 0) {
        return;
    }
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t turn = endpoint_cold_turn(choice_member(choice, i)->endpoint);
        newest = turn > newest ? turn : newest;
    }
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t turn = endpoint_cold_turn(choice_member(choice, i)->endpoint);
        uint32_t age = newest - turn, most = choice->n;
        choice->scratch[i] = -(float)(turn == 0 || age > most ? most : age);
    }
    choice_add_least(choice, choice->scratch, weight);
}

const struct plugin plugin_no_hit_lru_scorer = {
    .type = "no-hit-lru-scorer", .kind = PLUGIN_SCORER, .want = want, .score = score};
