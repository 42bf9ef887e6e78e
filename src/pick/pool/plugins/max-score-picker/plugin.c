/* The highest sum; of equal ones each is as likely as the others. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    struct choice_best best = choice_best_of(choice, choice->score);
    (void)parameters;
    (void)nth;
    return choice_best_place(&best, choice->score,
                             best.n > 1 ? dice_below(choice->dice, best.n) : 0);
}

const struct plugin plugin_max_score_picker = {
    .type = "max-score-picker", .kind = PLUGIN_PICKER, .pick = pick};
