/* Any, whatever its sum. */
#include "pool/plugin.h"

static void pick(void *parameters, struct choice *choice, uint32_t most) {
    (void)parameters;
    for (uint32_t i = 0; i < most; i++) {
        choice_swap(choice, i, i + dice_below(choice->dice, choice->n - i));
    }
}

const struct plugin plugin_random_picker = {
    .type = "random-picker", .kind = PLUGIN_PICKER, .pick = pick};
