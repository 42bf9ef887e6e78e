/* Rounds of pings to the event loops. */
#include "core/os/watchdog.h"

#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"

enum { SIGNS_IN_SPAN = 3, NS_PER_MS = 1000000 };

/* Runs on the loop that was pinged. */
static void run_ping(struct worker_msg *msg) {
    struct watchdog_loop *loop = CONTAINER_OF(msg, struct watchdog_loop, ping_msg);
    struct watchdog *self = loop->watchdog;
    atomic_store_explicit(&loop->pending, false, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&self->n_pending, 1, memory_order_acq_rel) == 1) {
        worker_post(self->main, &self->all_answered_msg);
    }
}

static void send_keep_alive(struct watchdog *self) {
    self->check_running = false;
    service_manager_notify(self->manager, "WATCHDOG=1");
    if (self->warned) {
        self->warned = false;
        log_message(LOG_INFO, "all event loops respond again");
    }
}

static void run_all_answered(struct worker_msg *msg) {
    struct watchdog *self = CONTAINER_OF(msg, struct watchdog, all_answered_msg);
    if (self->running) {
        send_keep_alive(self);
    }
}

static void ping_loops(struct watchdog *self) {
    self->check_running = true;
    atomic_store_explicit(&self->n_pending, self->n_loops, memory_order_release);
    for (size_t i = 0; i < self->n_loops; i++) {
        atomic_store_explicit(&self->loops[i].pending, true, memory_order_relaxed);
        worker_post(self->loops[i].worker, &self->loops[i].ping_msg);
    }
}

static void log_hang(struct watchdog *self) {
    self->warned = true;
    for (size_t i = 0; i < self->n_loops; i++) {
        struct watchdog_loop *loop = &self->loops[i];
        if (atomic_load_explicit(&loop->pending, memory_order_relaxed)) {
            log_event(LOG_WARNING, "event loop does not respond: no watchdog keep-alive sent",
                      LOG_CSTR("thread", worker_name(loop->worker)), LOG_U64("number", i));
        }
    }
}

static void on_timer(uv_timer_t *timer) {
    struct watchdog *self = timer->data;
    if (!self->check_running) {
        ping_loops(self);
    } else if (!self->warned) {
        log_hang(self);
    }
}

/* ---- open and close -------------------------------------------------------------------------- */

enum status watchdog_open(struct watchdog *self, struct service_manager *manager,
                          struct worker *main, size_t max_loops, struct error *err) {
    self->loops = calloc(max_loops, sizeof(*self->loops));
    if (!self->loops) {
        return error_no_memory(err, "a watchdog of %zu loops", max_loops);
    }
    self->manager = manager;
    self->main = main;
    self->all_answered_msg.run = run_all_answered;
    self->timer.data = self;
    uv_timer_init(worker_loop(main), &self->timer); /* cannot fail */
    return ST_OK;
}

void watchdog_add(struct watchdog *self, struct worker *worker) {
    struct watchdog_loop *loop = &self->loops[self->n_loops++];
    loop->watchdog = self;
    loop->worker = worker;
    loop->ping_msg.run = run_ping;
}

void watchdog_start(struct watchdog *self) {
    uint64_t ms = self->manager->watchdog_ns / SIGNS_IN_SPAN / NS_PER_MS;
    if (self->manager->watchdog_ns == 0) {
        return;
    }
    self->running = true;
    uv_timer_start(&self->timer, on_timer, 0, ms > 0 ? ms : 1);
}

void watchdog_stop(struct watchdog *self) {
    self->running = false;
    uv_timer_stop(&self->timer);
}

void watchdog_close(struct watchdog *self, uv_close_cb closed, void *data) {
    watchdog_stop(self);
    self->timer.data = data;
    uv_close((uv_handle_t *)&self->timer, closed);
}

void watchdog_free(struct watchdog *self) {
    free(self->loops);
}
