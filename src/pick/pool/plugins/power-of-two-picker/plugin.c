/* The better of two that chance has chosen. Pickers side by side that see the same sums don't all
 * choose the same endpoint, and yet seldom a bad one (Mitzenmacher 2001). */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    uint32_t one = dice_below(choice->dice, choice->n), other = one;
    (void)parameters;
    (void)nth;
    if (choice->n > 1) {
        other = dice_below(choice->dice, choice->n - 1);
        other += other >= one;
    }
    return choice->score[other] > choice->score[one] ? other : one;
}

const struct plugin plugin_power_of_two_picker = {
    .type = "power-of-two-picker", .kind = PLUGIN_PICKER, .pick = pick};
