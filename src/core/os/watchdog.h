/* Keep-alive messages for a service manager's watchdog. One is sent only when every event loop has
 * answered: a ping is posted to each loop; the last answer is posted to the main loop, which sends
 * the keep-alive. If any loop hangs, main's too, the keep-alives stop, and the manager ends the
 * process and starts another.
 *
 *     timer → a ping to each loop → (all have answered) → WATCHDOG=1
 *
 * Threads that run models are not watched: they may take as long as their models do.
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
    atomic_bool pending; /* its ping is not answered yet */
};

struct watchdog {
    struct service_manager *manager;
    struct worker *main;
    struct watchdog_loop *loops;
    size_t n_loops;
    atomic_size_t n_pending;
    struct worker_msg all_answered_msg; /* posted to main */
    bool check_running;                 /* not all pings of this round are answered */
    bool warned;                        /* a hanging loop was logged */
    bool running;
    uv_timer_t timer;
};

/* Into zeroed memory; opens the timer, which watchdog_close closes. Returns: ST_NO_MEMORY, without
 * a timer. Owns: until watchdog_free. */
enum status watchdog_open(struct watchdog *self, struct service_manager *manager,
                          struct worker *main, size_t max_loops, struct error *err) SLUICE_MUST_USE;
/* Adds a loop to be pinged; `max_loops` at most, before watchdog_start. Its worker runs until
 * watchdog_stop, and is freed after watchdog_free, or once it has run all posted messages. */
void watchdog_add(struct watchdog *self, struct worker *worker);
/* Sends the first round of pings, then three rounds in each interval of the manager's. Does nothing
 * when the manager expects no keep-alives. */
void watchdog_start(struct watchdog *self);
/* Stops the keep-alives; idempotent. */
void watchdog_stop(struct watchdog *self);
/* Closes the timer. */
void watchdog_close(struct watchdog *self, uv_close_cb closed, void *data);
/* After the loops have stopped. */
void watchdog_free(struct watchdog *self);

#endif
