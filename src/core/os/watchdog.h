/* Signs of life for a service manager's watchdog. A sign is sent only when every event loop has
 * answered: each is posted a message, the last answer comes back to the main loop, and that sends
 * it. Whichever loop hangs, main's too, the signs stop, and the manager ends the process and starts
 * another.
 *
 *     timer → a question to each loop → (all have answered) → WATCHDOG=1
 *
 * What it does not see are threads that run models, which may take as long as their models do.
 *
 * Thread: main. */
#ifndef SLUICE_CORE_OS_WATCHDOG_H
#define SLUICE_CORE_OS_WATCHDOG_H

#include <stdatomic.h>
#include <stddef.h>

#include "core/event/worker.h"
#include "core/os/service_manager.h"

struct watchdog;

struct watchdog_loop {
    struct watchdog *watchdog;
    struct worker *worker;
    struct worker_msg ping_msg;
    atomic_bool pending; /* has not answered yet */
};

struct watchdog {
    struct service_manager *manager;
    struct worker *main;
    struct watchdog_loop *loops;
    size_t n_loops;
    atomic_size_t n_pending;
    struct worker_msg all_answered_msg; /* to main */
    bool check_running;                 /* not all have answered yet */
    bool warned;                        /* the log has said that */
    bool running;
    uv_timer_t timer;
};

/* Into zeroed memory; the timer is there from now on, and watchdog_close closes it. Returns:
 * ST_NO_MEMORY, without a timer. Owns: watchdog_free. */
enum status watchdog_open(struct watchdog *self, struct service_manager *manager,
                          struct worker *main, size_t most_loops, struct error *err)
    __attribute__((warn_unused_result));
/* A loop that has to answer; `most_loops` at most, before watchdog_start. Its worker runs until
 * watchdog_stop, and is freed after watchdog_free at the earliest, or has run all that was
 * posted. */
void watchdog_add(struct watchdog *self, struct worker *worker);
/* Asks for the first time, and then three times within the span that the manager expects one sign
 * in. Does nothing when it expects none. */
void watchdog_start(struct watchdog *self);
/* No more signs; idempotent. */
void watchdog_stop(struct watchdog *self);
/* Closes the timer. */
void watchdog_close(struct watchdog *self, uv_close_cb closed, void *data);
/* After the loops have ended. */
void watchdog_free(struct watchdog *self);

#endif
