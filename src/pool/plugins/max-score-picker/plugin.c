/* The highest sum; of equal ones each is as likely as the others. */
#include "pool/plugin.h"

static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    float best = choice_greatest(choice, choice->score);
    uint32_t n = choice_count(choice, choice->score, best);
    (void)parameters;
    (void)nth;
    return choice_find(choice, choice->score, best, n > 1 ? dice_below(choice->dice, n) : 0);
}

const struct plugin plugin_max_score_picker = {
    .type = "max-score-picker", .kind = PLUGIN_PICKER, .pick = pick};
