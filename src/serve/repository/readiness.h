/* Readiness of the model server: what the health checks of all protocols and of the admin listener
 * answer. A drain makes each listener unready by a flag of its own. */
#ifndef SLUICE_SERVE_REPOSITORY_READINESS_H
#define SLUICE_SERVE_REPOSITORY_READINESS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/event/loop_health.h"
#include "serve/repository/repository.h"

/* `loops` may be NULL. Thread: any. */
static inline bool server_is_ready(const struct repository *repository,
                                   const struct loop_health *loops, const atomic_bool *draining) {
    return !atomic_load_explicit(draining, memory_order_relaxed) && loop_health_is_ready(loops) &&
           repository_is_ready(repository);
}

#endif
