/* Any, whatever its sum. */
#include "pick/pool/profile/plugin.h"

static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    (void)parameters;
    (void)nth;
    return dice_below(choice->dice, choice->n);
}

const struct plugin plugin_random_picker = {
    .type = "random-picker", .kind = PLUGIN_PICKER, .pick = pick};
