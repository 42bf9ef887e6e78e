/* Picks endpoints in the order of their addresses, whatever the scores. */
#include "pick/pool/profile/plugin.h"

struct round_robin {
    _Atomic uint32_t next; /* the next member, if it is a candidate */
};

/* The difference is unsigned, so members below `next` are the farthest. */
static uint32_t pick(void *parameters, const struct candidate_set *candidates, uint32_t nth) {
    struct round_robin *round_robin = parameters;
    const uint32_t *member = candidates->columns->member;
    uint32_t next = atomic_load_explicit(&round_robin->next, memory_order_relaxed), nearest = 0;
    for (uint32_t i = 1; i < candidates->n; i++) {
        if (member[i] - next < member[nearest] - next) {
            nearest = i;
        }
    }
    if (nth == 0) { /* fallback endpoints do not advance the position */
        atomic_store_explicit(&round_robin->next, member[nearest] + 1, memory_order_relaxed);
    }
    return nearest;
}

const struct plugin plugin_round_robin_picker = {.type = "round-robin-picker",
                                                 .kind = PLUGIN_PICKER,
                                                 .parameters_size = sizeof(struct round_robin),
                                                 .pick = pick};
