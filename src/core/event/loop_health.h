/* Whether the event loops of the process respond, for answers to health checks. The watchdog
 * (core/os/watchdog.h) writes it.
 *
 * Thread: any. */
#ifndef SLUICE_CORE_EVENT_LOOP_HEALTH_H
#define SLUICE_CORE_EVENT_LOOP_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>

/* Zeroed: all respond. */
struct loop_health {
    atomic_bool unready; /* a loop is held for so long that other servers should get the requests */
    atomic_bool dead;    /* a loop is held for so long that the process should be restarted */
};

/* NULL: nothing watches them, and they count as responding. */
static inline bool loop_health_is_ready(const struct loop_health *health) {
    return !health || !atomic_load_explicit(&health->unready, memory_order_relaxed);
}

static inline bool loop_health_is_live(const struct loop_health *health) {
    return !health || !atomic_load_explicit(&health->dead, memory_order_relaxed);
}

#endif
