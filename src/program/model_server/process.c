/* Start and shutdown of `sluice serve`. */
#include "program/model_server/process.h"

#include <stdatomic.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/log_file.h"
#include "core/os/ready_file.h"
#include "program/model_server/greeting.h"
#include "program/model_server/listeners.h"
#include "program/model_server/load_progress.h"
#include "program/process/memory_share.h"
#include "serve/inference/model_call.h"

struct serve_process {
    const struct serve_settings *settings;
    struct process process;
    struct repository *repository;
    atomic_bool loaded;
    struct worker_msg loaded_msg;
    struct serve_listeners listeners;
    struct model_calls calls;
    struct load_progress progress;
    void (*stopped)(void *user);
    void *stopped_user;
    struct error failure; /* why the process ends by itself; ST_OK: it does not */
};

/* ---- ready ----------------------------------------------------------------------------------- */

/* The process ends because of self->failure. */
static void fail(struct serve_process *self) {
    if (!self->process.draining) {
        process_fail(&self->process);
    }
}

static void on_loaded(struct worker_msg *msg) {
    struct serve_process *self = CONTAINER_OF(msg, struct serve_process, loaded_msg);
    load_progress_clear(&self->progress);
    if (repository_start_failed(self->repository, &self->failure)) {
        fail(self);
        return;
    }
    serve_listeners_on_models_loaded(&self->listeners);
    if (self->settings->exit_on_error && !self->process.draining &&
        repository_has_failed(self->repository, true, &self->failure)) {
        error_prefix(&self->failure, "a model could not be loaded (--exit-on-error=false serves "
                                     "without)");
        fail(self);
        return;
    }
    bool ready = repository_is_ready(self->repository);
    /* Models that are in two repositories don't make it unready. */
    bool needs_models = !ready || self->settings->strict_readiness;
    if (needs_models && !self->settings->keep_going && !self->process.draining &&
        repository_has_failed(self->repository, false, &self->failure)) {
        error_prefix(&self->failure, "no model could be loaded (--keep-going serves without)");
        fail(self);
        return;
    }
    /* For a service manager the start is complete also when a model failed: a restart would not
     * mend it. */
    process_set_ready(&self->process, ready ? "ready" : "not ready: a model failed to load");
    if (!ready) {
        log_message(LOG_WARNING, "loading has ended, not ready: a model failed to load");
        greeting_print(&self->listeners, false);
        return;
    }
    log_message(LOG_INFO, "ready");
    greeting_print(&self->listeners, true);
    if (!self->process.draining) {
        serve_listeners_write_ready_file(&self->listeners, &self->process.ready_file);
    }
}

/* Thread: a loading thread. */
static enum status on_models_found(void *user, struct error *err) {
    struct serve_process *self = user;
    return serve_listeners_on_models_found(&self->listeners, err);
}

/* Thread: the loading thread. */
static void on_load_ended(void *user) {
    struct serve_process *self = user;
    atomic_store(&self->loaded, true);
    worker_post(self->process.threads.main, &self->loaded_msg);
}

/* Thread: a loading thread, or the watchdog's. */
static void health_changed(void *user) {
    struct serve_process *self = user;
    serve_listeners_on_models_changed(&self->listeners);
}

/* ---- callbacks of the process --------------------------------------------------------------- */

static uint64_t in_flight(void *user) {
    struct serve_process *self = user;
    return serve_listeners_in_flight(&self->listeners) + model_calls_count(&self->calls);
}

static void log_state(void *user) {
    struct serve_process *self = user;
    serve_listeners_log_state(&self->listeners);
}

static void reload_files(void *user) {
    struct serve_process *self = user;
    struct error err;
    if (self->settings->log_file && log_file_open(self->settings->log_file, &err) != ST_OK) {
        log_event(LOG_ERROR, "log file can't be opened again: the old one stays in use",
                  LOG_CSTR("reason", err.text));
    }
    serve_security_reload(&self->listeners.security);
    repository_poll_now(self->repository);
}

static void shrink_cache(void *user) {
    struct serve_process *self = user;
    if (self->repository) {
        int64_t n_bytes = metric_read(METRIC_RESPONSE_CACHE_BYTES);
        repository_shrink_cache(self->repository, n_bytes > 0 ? (uint64_t)n_bytes / 2 + 1 : 1);
    }
}

static void drain_listeners(void *user) {
    struct serve_process *self = user;
    repository_drain(self->repository);
    model_calls_drain(&self->calls);
    serve_listeners_drain(&self->listeners);
}

/* A thread that loads models cannot be interrupted. */
static bool can_stop(void *user) {
    struct serve_process *self = user;
    return atomic_load(&self->loaded) && !repository_is_busy(self->repository);
}

/* The requests of clients have ended; calls of models that were cancelled with them may not. */
static void on_listeners_stopped(void *user) {
    struct serve_process *self = user;
    model_calls_stop(&self->calls, self->process.threads.main, self->stopped, self->stopped_user);
}

static void stop_listeners(void *user, void (*stopped)(void *), void *stopped_user) {
    struct serve_process *self = user;
    self->stopped = stopped;
    self->stopped_user = stopped_user;
    load_progress_stop(&self->progress);
    serve_listeners_stop(&self->listeners, on_listeners_stopped, self);
}

static void unlink_sockets(void *user) {
    const struct serve_process *self = user;
    serve_listeners_unlink(&self->listeners);
}

static const struct process_handlers handlers = {
    .in_flight = in_flight,
    .log_state = log_state,
    .reload = reload_files,
    .shrink = shrink_cache,
    .drain = drain_listeners,
    .health_changed = health_changed,
    .can_stop = can_stop,
    .stop = stop_listeners,
    .unlink = unlink_sockets,
};

/* ---- open and close ------------------------------------------------------- */

static enum status open_calls(struct serve_process *self, struct error *err) {
    const struct model_calls_options options = {
        .services = {.repository = self->repository,
                     .helpers = self->listeners.services.helpers,
                     .tracer = self->listeners.services.tracer},
        .budget = &self->listeners.budget,
        .workers = self->process.threads.workers,
        .n_workers = self->process.threads.n_workers};
    return model_calls_open(&self->calls, &options, err);
}

static enum status start_server(struct serve_process *self, const struct repository_options *models,
                                struct error *err) {
    struct repository_options options = *models;
    if (process_start(&self->process, self->settings->workers, err) != ST_OK) {
        return err->status;
    }
    options.workers = self->process.threads.workers;
    options.n_workers = self->process.threads.n_workers;
    options.main = self->process.threads.main;
    options.admin = self->process.threads.admin;
    options.on_state_changed = health_changed;
    options.on_state_changed_user = self;
    options.on_scanned = on_models_found;
    options.on_scanned_user = self;
    options.calls = &self->calls.table;
    if (repository_new(&options, &self->repository, err) != ST_OK ||
        serve_listeners_open(&self->listeners, self->settings, self->repository,
                             &self->process.threads, err) != ST_OK ||
        open_calls(self, err) != ST_OK) {
        return err->status;
    }
    /* Only now: the addresses are bound, so that the file is not of another running server. */
    ready_file_remove_stale(self->settings->ready_file);
    enum status st = repository_load_start(self->repository, on_load_ended, self, err);
    if (st == ST_OK) {
        load_progress_start(&self->progress, self->repository, self->process.threads.main,
                            self->settings->log_format == LOG_TEXT);
    }
    return st;
}

static void free_parts(struct serve_process *self) {
    model_calls_close(&self->calls);
    serve_listeners_stop_threads(&self->listeners);
    process_join(&self->process);
    if (self->repository) {
        repository_stop(self->repository);
    }
    serve_listeners_free(&self->listeners);
    process_free(&self->process);
    if (self->repository) {
        repository_free(self->repository);
    }
    model_calls_fini(&self->calls);
}

enum status serve_process_run(const struct serve_settings *settings,
                              const struct repository_options *models, struct error *err) {
    struct serve_process self = {
        .settings = settings,
        .process = {.handlers = &handlers,
                    .user = &self,
                    .drain_timeout_ns = settings->drain_timeout_ns,
                    .loop_unready_after_ns = settings->loop_unready_after_ns,
                    .loop_dead_after_ns = settings->loop_dead_after_ns,
                    .ready_file = {.path = settings->ready_file}},
        .loaded_msg = {.run = on_loaded},
    };
    bool failed = false;
    model_calls_init(&self.calls);
    enum status st = start_server(&self, models, err);
    if (st == ST_OK) {
        memory_share_log("client memory", &settings->client_memory, &settings->memory_limit);
        memory_share_log("body memory", &settings->body_memory, &settings->memory_limit);
        process_run(&self.process);
        failed = self.failure.status != ST_OK;
    } else {
        process_abort(&self.process);
    }
    free_parts(&self);
    if (failed) {
        *err = self.failure;
        return err->status;
    }
    if (st == ST_OK) {
        log_message(LOG_INFO, "ended");
    }
    return st;
}
