/* The better of two that chance has chosen. Pickers side by side that see the same sums don't all
 * choose the same endpoint, and yet seldom a bad one (Mitzenmacher 2001). */
#include "pool/plugin.h"

static void pick(void *parameters, struct choice *choice, uint32_t most) {
    (void)parameters;
    for (uint32_t i = 0; i < most; i++) {
        uint32_t n = choice->n - i;
        choice_swap(choice, i, i + dice_below(choice->dice, n));
        if (n > 1) {
            uint32_t other = i + 1 + dice_below(choice->dice, n - 1);
            if (choice->candidates[other].score > choice->candidates[i].score) {
                choice_swap(choice, i, other);
            }
        }
    }
}

const struct plugin plugin_power_of_two_picker = {
    .type = "power-of-two-picker", .kind = PLUGIN_PICKER, .pick = pick};
