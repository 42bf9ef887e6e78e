/* Pings to the event loops, and what follows from those that are not answered. */
#include "core/os/watchdog.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/thread.h"

/* Times are precise to a tick. */
enum { TICKS_IN_TIME = 5, TICKS_IN_MANAGERS_TIME = 6, NS_PER_MS = 1000000 };

static const uint64_t MAX_TICK_NS = UINT64_C(1000000000);

/* ---- messages -------------------------------------------------------------------------------- */

/* Runs on the loop that was pinged. */
static void run_ping(struct worker_msg *msg) {
    struct watchdog_loop *loop = CONTAINER_OF(msg, struct watchdog_loop, ping_msg);
    atomic_store_explicit(&loop->pending, false, memory_order_release);
}

/* Runs on the main loop. */
static void run_keep_alive(struct worker_msg *msg) {
    struct watchdog *self = CONTAINER_OF(msg, struct watchdog, keep_alive_msg);
    atomic_store_explicit(&self->keep_alive_posted, false, memory_order_release);
    if (!atomic_load_explicit(&self->stopped, memory_order_relaxed)) {
        service_manager_notify(self->options.manager, "WATCHDOG=1");
    }
}

/* ---- ticks ----------------------------------------------------------------------------------- */

static uint64_t held_ms(const struct watchdog *self, const struct watchdog_loop *loop) {
    return loop->n_missed * self->tick_ns / NS_PER_MS;
}

static void log_held(const struct watchdog *self, size_t i, enum log_level level,
                     const char *consequence) {
    const struct watchdog_loop *loop = &self->loops[i];
    char work[LOOP_WORK_BYTES];
    loop_work_read(&worker_loop_iteration(loop->worker)->work, work);
    log_event(level, "event loop does not respond", LOG_CSTR("thread", worker_name(loop->worker)),
              LOG_U64("number", i), LOG_U64("ms", held_ms(self, loop)),
              LOG_CSTR("model", work[0] != '\0' ? work : "none"), LOG_CSTR("health", consequence));
}

/* Counts the tick for a loop, and pings it when it has answered. */
static void tick_loop(struct watchdog *self, size_t i) {
    struct watchdog_loop *loop = &self->loops[i];
    if (atomic_load_explicit(&loop->pending, memory_order_acquire)) {
        loop->n_missed++;
        return;
    }
    if (self->unready_ticks > 0 && loop->n_missed >= self->unready_ticks) {
        log_event(LOG_INFO, "event loop responds again",
                  LOG_CSTR("thread", worker_name(loop->worker)), LOG_U64("number", i),
                  LOG_U64("ms", held_ms(self, loop)));
        metric_add(METRIC_EVENT_LOOPS_HELD, -1);
    }
    loop->n_missed = 0;
    atomic_store_explicit(&loop->pending, true, memory_order_relaxed);
    worker_post(loop->worker, &loop->ping_msg);
}

static bool set_flag(atomic_bool *flag, bool value) {
    return atomic_exchange_explicit(flag, value, memory_order_relaxed) != value;
}

/* Logs what this tick was the last one for. After the health is set, because a log may block. */
static void log_held_loops(const struct watchdog *self) {
    for (size_t i = 0; i < self->n_loops; i++) {
        uint64_t n = self->loops[i].n_missed;
        if (n > 0 && n == self->unready_ticks) {
            metric_add(METRIC_EVENT_LOOPS_HELD, 1);
            log_held(self, i, LOG_WARNING, "not ready");
        }
        if (n > 0 && n == self->dead_ticks) {
            log_held(self, i, LOG_ERROR, "not live");
        }
    }
}

void watchdog_tick(struct watchdog *self) {
    uint64_t most = 0;
    for (size_t i = 0; i < self->n_loops; i++) {
        tick_loop(self, i);
        most = self->loops[i].n_missed > most ? self->loops[i].n_missed : most;
    }
    if (most == 0 && self->options.manager->watchdog_ns > 0 &&
        !atomic_exchange_explicit(&self->keep_alive_posted, true, memory_order_acq_rel)) {
        worker_post(self->options.main, &self->keep_alive_msg);
    }
    bool unready = self->unready_ticks > 0 && most >= self->unready_ticks;
    bool dead = self->dead_ticks > 0 && most >= self->dead_ticks;
    bool changed = set_flag(&self->health.unready, unready || dead);
    changed = set_flag(&self->health.dead, dead) || changed;
    if (changed && self->options.on_change) {
        self->options.on_change(self->options.user);
    }
    log_held_loops(self);
}

static void thread_main(void *arg) {
    struct watchdog *self = arg;
    pthread_setname_np(pthread_self(), "watchdog");
    uv_mutex_lock(&self->lock);
    while (!self->stopping) {
        uv_mutex_unlock(&self->lock);
        watchdog_tick(self);
        uv_mutex_lock(&self->lock);
        if (!self->stopping) {
            uv_cond_timedwait(&self->wake, &self->lock, self->tick_ns);
        }
    }
    uv_mutex_unlock(&self->lock);
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The part of a time that is a tick; 0: there is no such time. */
static void shorten_tick(struct watchdog *self, uint64_t time_ns, uint64_t n_ticks) {
    uint64_t tick_ns = time_ns / n_ticks > NS_PER_MS ? time_ns / n_ticks : NS_PER_MS;
    if (time_ns > 0 && tick_ns < self->tick_ns) {
        self->tick_ns = tick_ns;
    }
}

static uint64_t ticks_of(const struct watchdog *self, uint64_t time_ns) {
    return time_ns / self->tick_ns + (time_ns % self->tick_ns > 0);
}

enum status watchdog_open(struct watchdog *self, const struct watchdog_options *options,
                          size_t max_loops, struct error *err) {
    self->options = *options;
    self->loops = calloc(max_loops, sizeof(*self->loops));
    if (!self->loops || uv_mutex_init(&self->lock) != 0) {
        return error_no_memory(err, "a watchdog of %zu loops", max_loops);
    }
    if (uv_cond_init(&self->wake) != 0) {
        uv_mutex_destroy(&self->lock);
        return error_no_memory(err, "a watchdog of %zu loops", max_loops);
    }
    self->has_lock = true;
    self->keep_alive_msg.run = run_keep_alive;
    self->tick_ns = MAX_TICK_NS;
    shorten_tick(self, options->unready_after_ns, TICKS_IN_TIME);
    shorten_tick(self, options->dead_after_ns, TICKS_IN_TIME);
    shorten_tick(self, options->manager->watchdog_ns, TICKS_IN_MANAGERS_TIME);
    self->unready_ticks = ticks_of(self, options->unready_after_ns);
    self->dead_ticks = ticks_of(self, options->dead_after_ns);
    return ST_OK;
}

void watchdog_add(struct watchdog *self, struct worker *worker) {
    struct watchdog_loop *loop = &self->loops[self->n_loops++];
    loop->worker = worker;
    loop->ping_msg.run = run_ping;
}

void watchdog_start(struct watchdog *self) {
    int rc = uv_thread_create(&self->thread, thread_main, self);
    self->has_thread = rc == 0;
    if (rc != 0) {
        log_event(LOG_WARNING, "event loops are not watched: no thread for the watchdog",
                  LOG_CSTR("reason", thread_start_error(rc)));
    }
}

void watchdog_stop(struct watchdog *self) {
    atomic_store_explicit(&self->stopped, true, memory_order_relaxed);
    if (self->has_thread) {
        uv_mutex_lock(&self->lock);
        self->stopping = true;
        uv_cond_signal(&self->wake);
        uv_mutex_unlock(&self->lock);
        uv_thread_join(&self->thread);
        self->has_thread = false;
    }
    set_flag(&self->health.unready, false);
    set_flag(&self->health.dead, false);
}

void watchdog_free(struct watchdog *self) {
    if (self->has_lock) {
        uv_cond_destroy(&self->wake);
        uv_mutex_destroy(&self->lock);
    }
    free(self->loops);
}
