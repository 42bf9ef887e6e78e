/* Any, each as likely as its sum says. Where all sums are 0, all are as likely. */
#include "pool/plugin.h"

/* From `begin` on. */
static uint32_t roll(const struct choice *choice, uint32_t begin) {
    double total = 0;
    for (uint32_t i = begin; i < choice->n; i++) {
        total += (double)choice->candidates[i].score;
    }
    if (!(total > 0)) {
        return begin + dice_below(choice->dice, choice->n - begin);
    }
    double left = dice_unit(choice->dice) * total;
    uint32_t last = begin; /* with a chance: where rounding leaves something over */
    for (uint32_t i = begin; i < choice->n; i++) {
        double score = (double)choice->candidates[i].score;
        if (score > 0) {
            last = i;
            if (left < score) {
                return i;
            }
            left -= score;
        }
    }
    return last;
}

static void pick(void *parameters, struct choice *choice, uint32_t most) {
    (void)parameters;
    for (uint32_t i = 0; i < most; i++) {
        choice_swap(choice, i, roll(choice, i));
    }
}

const struct plugin plugin_weighted_random_picker = {
    .type = "weighted-random-picker", .kind = PLUGIN_PICKER, .pick = pick};
