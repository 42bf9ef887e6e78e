/* Any, each as likely as its sum says. Where all sums are 0, all are as likely. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    double total = 0;
    (void)parameters;
    (void)nth;
    for (uint32_t i = 0; i < choice->n; i++) {
        total += (double)choice->score[i];
    }
    if (!(total > 0)) {
        return dice_below(choice->dice, choice->n);
    }
    double left = dice_unit(choice->dice) * total;
    uint32_t last = 0; /* with a chance: where rounding leaves something over */
    for (uint32_t i = 0; i < choice->n; i++) {
        double score = (double)choice->score[i];
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

const struct plugin plugin_weighted_random_picker = {
    .type = "weighted-random-picker", .kind = PLUGIN_PICKER, .pick = pick};
