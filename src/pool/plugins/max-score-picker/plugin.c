/* The highest sum; of equal ones each is as likely as the others. */
#include <math.h>

#include "pool/plugin.h"

/* The best from `begin` on. */
static uint32_t find_best(const struct choice *choice, uint32_t begin) {
    float best = -INFINITY; /* what is no number is never above it */
    uint32_t n = 0, at = begin;
    for (uint32_t i = begin; i < choice->n; i++) {
        float score = choice->candidates[i].score;
        if (score > best) {
            best = score;
            at = i;
            n = 0;
        }
        n += score == best;
    }
    uint32_t skip = n > 1 ? dice_below(choice->dice, n) : 0;
    for (; skip > 0; skip--) {
        do {
            at++;
        } while (choice->candidates[at].score != best);
    }
    return at;
}

static void pick(void *parameters, struct choice *choice, uint32_t most) {
    (void)parameters;
    for (uint32_t i = 0; i < most; i++) {
        choice_swap(choice, i, find_best(choice, i));
    }
}

const struct plugin plugin_max_score_picker = {
    .type = "max-score-picker", .kind = PLUGIN_PICKER, .pick = pick};
