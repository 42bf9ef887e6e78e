/* Watches the event loops, from a thread of its own. A ping is posted to each loop; a loop that has
 * not answered it at the next tick is held by something, and every tick counts it as held for
 * longer. Health checks and the service manager are told:
 *
 *     no loop is held               → WATCHDOG=1 to the service manager, by the main loop
 *     held for unready_after_ns     → loop_health: unready; a warning that names the work
 *     held for dead_after_ns        → loop_health: dead; an error in the log
 *     the loop answers              → loop_health: ready; a line in the log
 *
 * Ticks are counted, not times: a process that is stopped, or a machine that is suspended, for a
 * minute misses one tick, and none of its loops is held. Threads that run models are not watched:
 * they may take as long as their models do.
 *
 * Thread: main, but what is said otherwise. */
#ifndef SLUICE_CORE_OS_WATCHDOG_H
#define SLUICE_CORE_OS_WATCHDOG_H

#include <stdatomic.h>
#include <stddef.h>

#include "core/event/loop_health.h"
#include "core/event/worker.h"
#include "core/os/service_manager.h"

struct watchdog_loop {
    struct worker *worker;
    struct worker_msg ping_msg;
    atomic_bool pending; /* its ping is not answered yet */
    uint64_t n_missed;   /* ticks since that ping */
};

struct watchdog_options {
    struct service_manager *manager;
    struct worker *main;       /* sends the keep-alives */
    uint64_t unready_after_ns; /* enforced by watchdog_tick; 0: never */
    uint64_t dead_after_ns;    /* likewise */
    /* The health has changed. Thread: the watchdog's. May be NULL. */
    void (*on_change)(void *user);
    void *user;
};

struct watchdog {
    struct watchdog_options options;
    struct loop_health health;
    /* internal */
    struct watchdog_loop *loops;
    size_t n_loops;
    uint64_t tick_ns, unready_ticks, dead_ticks; /* 0 ticks: never */
    struct worker_msg keep_alive_msg;            /* posted to main */
    atomic_bool keep_alive_posted;
    atomic_bool stopped; /* no keep-alive is sent any more */
    uv_mutex_t lock;     /* of `stopping` */
    uv_cond_t wake;
    bool stopping;
    uv_thread_t thread;
    bool has_thread, has_lock;
};

/* Into zeroed memory. Returns: ST_NO_MEMORY. Owns: until watchdog_free. */
enum status watchdog_open(struct watchdog *self, const struct watchdog_options *options,
                          size_t max_loops, struct error *err) SLUICE_MUST_USE;
/* Adds a loop to be pinged; `max_loops` at most, before watchdog_start. Its worker runs until
 * watchdog_stop, and is freed after watchdog_free, or once it has run all posted messages. */
void watchdog_add(struct watchdog *self, struct worker *worker);
/* Starts the thread. Without one (the reason is logged) nothing is watched. */
void watchdog_start(struct watchdog *self);
/* Stops the thread and the keep-alives: all loops count as responding from here on. Idempotent. */
void watchdog_stop(struct watchdog *self);
/* After the loops have stopped. */
void watchdog_free(struct watchdog *self);

/* ---- for the tests --------------------------------------------------------------------------- */

/* What the thread does every tick_ns. */
void watchdog_tick(struct watchdog *self);

#endif
