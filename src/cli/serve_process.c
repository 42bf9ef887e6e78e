/* Starting the server, and ending it in order. What happens in between is not this file's. */
#include "cli/serve_process.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/ready_file.h"
#include "cli/serve_listeners.h"
#include "loop/clock.h"
#include "net/descriptors.h"

enum {
    N_SIGNALS = 3,
    EXIT_CODE_SIGNAL = 128,
    POLL_MS = 10,    /* while draining */
    QUIET_POLLS = 5, /* nothing in flight so often in a row: what was on its way has come */
};

struct serve_process {
    const struct serve_settings *settings;
    struct serve_threads threads;
    struct repository *repository;
    atomic_bool loaded;
    struct worker_msg loaded_msg;
    struct serve_listeners listeners;
    uv_signal_t signals[N_SIGNALS];
    uv_timer_t drain_timer; /* while draining: looks whether all have been answered */
    size_t n_handles;       /* of the main loop, to be closed */
    bool draining;
    unsigned n_quiet; /* polls in a row that found nothing in flight */
    uint64_t drain_until_ns;
};

/* ---- ready ----------------------------------------------------------------------------------- */

static void on_loaded(struct worker_msg *msg) {
    struct serve_process *self =
        (struct serve_process *)((char *)msg - offsetof(struct serve_process, loaded_msg));
    serve_listeners_loaded(&self->listeners);
    if (!repository_is_ready(self->repository)) {
        log_plain(LOG_WARNING, "loading has ended, not ready: a model failed to load");
        return;
    }
    log_plain(LOG_INFO, "ready");
    if (!self->draining) {
        serve_listeners_tell(&self->listeners);
    }
}

/* On the loading thread. */
static void loading_done(void *cookie) {
    struct serve_process *self = cookie;
    atomic_store(&self->loaded, true);
    worker_post(self->threads.main, &self->loaded_msg);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct serve_process *self = handle->data;
    if (--self->n_handles == 0) {
        worker_stop(self->threads.main);
    }
}

static void on_listeners_stopped(void *cookie) {
    struct serve_process *self = cookie;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        uv_close((uv_handle_t *)&self->signals[i], on_closed);
    }
    uv_close((uv_handle_t *)&self->drain_timer, on_closed);
}

/* Ends the process without waiting for anything. What that would leave behind are the files of Unix
 * sockets. */
static _Noreturn void leave(const struct serve_process *self, int code) {
    serve_listeners_unlink(&self->listeners);
    _exit(code);
}

/* Models that are still loading, or requests that outlast the drain, would keep an orderly end
 * waiting: their threads can't be interrupted. */
static void give_up(struct serve_process *self) {
    uint64_t left = serve_listeners_in_flight(&self->listeners);
    if (left > 0) {
        log_event(LOG_WARNING, "drain timeout: requests are cut off", LOG_U64("requests", left));
    }
    leave(self, EXIT_CODE_OK);
}

static void on_drain_timer(uv_timer_t *timer) {
    struct serve_process *self = timer->data;
    bool in_flight = serve_listeners_in_flight(&self->listeners) > 0;
    self->n_quiet = in_flight ? 0 : self->n_quiet + 1;
    if (self->n_quiet < QUIET_POLLS && clock_now_ns() < self->drain_until_ns) {
        return;
    }
    if (in_flight || !atomic_load(&self->loaded)) {
        give_up(self);
    }
    uv_timer_stop(timer);
    serve_listeners_stop(&self->listeners, on_listeners_stopped, self);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct serve_process *self = handle->data;
    if (signum == SIGUSR2) {
        serve_listeners_log_state(&self->listeners);
        return;
    }
    if (self->draining) {
        leave(self, EXIT_CODE_SIGNAL + signum);
    }
    log_event(LOG_INFO, "ending: requests in flight are answered first",
              LOG_TEXT_OF("signal", signum == SIGTERM ? "SIGTERM" : "SIGINT"),
              LOG_U64("requests", serve_listeners_in_flight(&self->listeners)));
    self->draining = true;
    self->drain_until_ns = clock_now_ns() + self->settings->drain_timeout_ns;
    ready_file_remove(self->settings->ready_file);
    serve_listeners_drain(&self->listeners);
    uv_timer_start(&self->drain_timer, on_drain_timer, 0, POLL_MS);
}

/* ---- the start ------------------------------------------------------------------------------- */

static enum status start_workers(struct serve_process *self, struct error *err) {
    enum status st = worker_new("main", &self->threads.main, err);
    self->threads.workers = calloc(self->settings->workers, sizeof(struct worker *));
    if (st == ST_OK && !self->threads.workers) {
        return error_set(err, ST_NO_MEMORY, "no memory for %llu workers",
                         (unsigned long long)self->settings->workers);
    }
    for (size_t i = 0; st == ST_OK && i < self->settings->workers; i++) {
        st = worker_new("worker", &self->threads.workers[i], err);
        if (st != ST_OK) {
            break;
        }
        self->threads.n_workers++;
        st = worker_start(self->threads.workers[i], err);
    }
    return st;
}

static void hear_signals(struct serve_process *self) {
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT, SIGUSR2};
    uv_loop_t *loop = worker_loop(self->threads.main);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        uv_signal_init(loop, &self->signals[i]);
        self->signals[i].data = self;
        uv_signal_start(&self->signals[i], on_signal, numbers[i]);
    }
    uv_timer_init(loop, &self->drain_timer);
    self->drain_timer.data = self;
    self->n_handles = N_SIGNALS + 1;
}

/* ---- putting together and taking apart ------------------------------------------------------- */

/* Signals are heard before anything that takes time: as the first process of a container, one that
 * nobody hears is lost. They are acted on once the loop runs. */
static enum status start(struct serve_process *self, const struct repository_options *models,
                         struct error *err) {
    signal(SIGPIPE, SIG_IGN);
    descriptors_raise();
    enum status st = start_workers(self, err);
    if (st == ST_OK) {
        hear_signals(self);
        st = repository_new(models, &self->repository, err);
    }
    if (st == ST_OK) {
        st = serve_listeners_open(&self->listeners, self->settings, self->repository,
                                  &self->threads, err);
    }
    if (st == ST_OK) {
        /* Only now: the addresses are ours, so no other server is the one that is ready. */
        ready_file_remove(self->settings->ready_file);
        st = repository_load_start(self->repository, loading_done, self, err);
    }
    return st;
}

/* After a start that failed half-way what is open on the loop still has to be closed, though it
 * never ran. */
static void stop_unstarted(struct serve_process *self) {
    if (self->n_handles > 0) {
        serve_listeners_stop(&self->listeners, on_listeners_stopped, self);
    } else if (self->threads.main) {
        worker_stop(self->threads.main);
    }
    if (self->threads.main) {
        worker_run(self->threads.main);
    }
}

static void take_apart(struct serve_process *self) {
    serve_listeners_end_threads(&self->listeners);
    for (size_t i = 0; i < self->threads.n_workers; i++) {
        worker_stop(self->threads.workers[i]);
    }
    for (size_t i = 0; i < self->threads.n_workers; i++) {
        worker_join(self->threads.workers[i]);
    }
    if (self->repository) {
        repository_stop(self->repository);
    }
    serve_listeners_free(&self->listeners);
    for (size_t i = 0; i < self->threads.n_workers; i++) {
        worker_free(self->threads.workers[i]);
    }
    if (self->threads.main) {
        worker_free(self->threads.main);
    }
    if (self->repository) {
        repository_free(self->repository);
    }
    free(self->threads.workers);
}

enum status serve_process_run(const struct serve_settings *settings,
                              const struct repository_options *models, struct error *err) {
    struct serve_process self = {
        .settings = settings,
        .loaded_msg = {.run = on_loaded},
    };
    enum status st = start(&self, models, err);
    if (st == ST_OK) {
        worker_run(self.threads.main);
    } else {
        stop_unstarted(&self);
    }
    take_apart(&self);
    if (st == ST_OK) {
        log_plain(LOG_INFO, "ended");
    }
    return st;
}
