/* Starting the server, and ending it in order. What happens in between is not this file's. */
#include "cli/serve_process.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/ready_file.h"
#include "loop/clock.h"
#include "net/budget.h"
#include "net/descriptors.h"
#include "net/http_server.h"
#include "serve/http_api.h"

enum {
    MAX_ADDRESSES = 64,
    N_SIGNALS = 2,
    EXIT_CODE_SIGNAL = 128,
    POLL_MS = 10,    /* while draining */
    QUIET_POLLS = 5, /* nothing in flight so often in a row: what was on its way has come */
};

struct serve_process {
    const struct serve_settings *settings;
    struct worker *main; /* runs on the main thread */
    struct worker **workers;
    size_t n_workers;
    struct repository *repository;
    atomic_bool loaded;
    struct worker_msg loaded_msg;
    struct net_budget budget;
    struct http_api api;
    struct http_server *http;
    struct address addresses[MAX_ADDRESSES];
    size_t n_addresses;
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
    struct error err;
    if (!repository_is_ready(self->repository)) {
        log_plain(LOG_WARNING, "loading has ended, not ready: a model failed to load");
        return;
    }
    log_plain(LOG_INFO, "ready");
    const char *file = self->settings->ready_file;
    if (file && !self->draining &&
        ready_file_write(file, self->addresses, self->n_addresses, &err) != ST_OK) {
        log_event(LOG_ERROR, "cannot write the ready file", LOG_TEXT_OF("reason", err.text));
    }
}

/* On the loading thread. */
static void loading_done(void *cookie) {
    struct serve_process *self = cookie;
    atomic_store(&self->loaded, true);
    worker_post(self->main, &self->loaded_msg);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct serve_process *self = handle->data;
    if (--self->n_handles == 0) {
        worker_stop(self->main);
    }
}

static void on_http_stopped(void *cookie) {
    struct serve_process *self = cookie;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        uv_close((uv_handle_t *)&self->signals[i], on_closed);
    }
    uv_close((uv_handle_t *)&self->drain_timer, on_closed);
}

/* Ends the process without waiting for anything. What that would leave behind are the files of Unix
 * sockets. */
static _Noreturn void leave(const struct serve_process *self, int code) {
    for (size_t i = 0; i < self->n_addresses; i++) {
        char text[ADDRESS_TEXT_BYTES];
        struct str path = str_of(address_print(&self->addresses[i], text));
        if (str_starts(path, STR("unix:"))) {
            unlink(path.ptr + sizeof "unix:" - 1);
        }
    }
    _exit(code);
}

/* Models that are still loading, or requests that outlast the drain, would keep an orderly end
 * waiting: their threads can't be interrupted. */
static void give_up(struct serve_process *self) {
    uint64_t left = http_server_in_flight(self->http);
    if (left > 0) {
        log_event(LOG_WARNING, "drain timeout: requests are cut off", LOG_U64("requests", left));
    }
    leave(self, EXIT_CODE_OK);
}

static void on_drain_timer(uv_timer_t *timer) {
    struct serve_process *self = timer->data;
    bool in_flight = http_server_in_flight(self->http) > 0;
    self->n_quiet = in_flight ? 0 : self->n_quiet + 1;
    if (self->n_quiet < QUIET_POLLS && clock_now_ns() < self->drain_until_ns) {
        return;
    }
    if (in_flight || !atomic_load(&self->loaded)) {
        give_up(self);
    }
    uv_timer_stop(timer);
    http_server_stop(self->http, on_http_stopped, self);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct serve_process *self = handle->data;
    if (self->draining) {
        leave(self, EXIT_CODE_SIGNAL + signum);
    }
    log_event(LOG_INFO, "ending: requests in flight are answered first",
              LOG_TEXT_OF("signal", signum == SIGTERM ? "SIGTERM" : "SIGINT"),
              LOG_U64("requests", http_server_in_flight(self->http)));
    self->draining = true;
    self->drain_until_ns = clock_now_ns() + self->settings->drain_timeout_ns;
    ready_file_remove(self->settings->ready_file);
    http_server_drain(self->http); /* first: who sees 503 shall see `Connection: close` too */
    http_api_drain(&self->api);
    uv_timer_start(&self->drain_timer, on_drain_timer, 0, POLL_MS);
}

/* ---- the start ------------------------------------------------------------------------------- */

static enum status start_workers(struct serve_process *self, struct error *err) {
    enum status st = worker_new("main", &self->main, err);
    self->workers = calloc(self->settings->workers, sizeof(struct worker *));
    if (st == ST_OK && !self->workers) {
        return error_set(err, ST_NO_MEMORY, "no memory for %llu workers",
                         (unsigned long long)self->settings->workers);
    }
    for (size_t i = 0; st == ST_OK && i < self->settings->workers; i++) {
        st = worker_new("worker", &self->workers[i], err);
        if (st != ST_OK) {
            break;
        }
        self->n_workers++;
        st = worker_start(self->workers[i], err);
    }
    return st;
}

static struct http_limits limits_of(const struct serve_settings *settings) {
    return (struct http_limits){
        .max_header_bytes = settings->max_header_size,
        .max_body_bytes = settings->max_body_size,
        .request_memory_bytes = settings->request_memory,
        .idle_timeout_ns = settings->idle_timeout_ns,
        .header_timeout_ns = settings->header_timeout_ns,
        .body_timeout_ns = settings->body_timeout_ns,
        .min_body_rate = settings->min_body_rate,
        .write_timeout_ns = settings->write_timeout_ns,
        .discard_bytes = settings->discard_size,
    };
}

static enum status start_http(struct serve_process *self, struct error *err) {
    const struct serve_settings *settings = self->settings;
    self->api = (struct http_api){
        .repository = self->repository,
        .limits = {.max_json_bytes = settings->max_json_size,
                   .max_json_depth = settings->max_json_depth,
                   .max_elements = settings->max_tensor_elements},
        .max_body_bytes = settings->max_body_size,
        .server_name = settings->server_id,
        .server_version = SLUICE_VERSION,
    };
    struct http_server_options options = {.limits = limits_of(settings),
                                          .budget = &self->budget,
                                          .handler = http_api_handler(&self->api),
                                          .workers = self->workers,
                                          .n_workers = self->n_workers,
                                          .acceptor = self->main,
                                          .server_name = "sluice/" SLUICE_VERSION};
    return http_server_new(&options, &self->http, err);
}

static enum status listen_on(struct serve_process *self, const char *text, struct error *err) {
    struct address address;
    enum status st = address_parse(str_of(text), &address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--http %s", text);
    }
    if (self->n_addresses == MAX_ADDRESSES) {
        return error_set(err, ST_BAD_CONFIG, "--http is given more than %d times", MAX_ADDRESSES);
    }
    struct address *bound = &self->addresses[self->n_addresses];
    st = http_server_listen(self->http, &address, bound, err);
    if (st != ST_OK) {
        return error_prefix(err, "--http %s", text);
    }
    self->n_addresses++;
    char printed[ADDRESS_TEXT_BYTES];
    log_event(LOG_INFO, "listening", LOG_TEXT_OF("http", address_print(bound, printed)));
    return ST_OK;
}

static enum status start_listening(struct serve_process *self, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < self->settings->http.n; i++) {
        st = listen_on(self, self->settings->http.items[i], err);
    }
    return st;
}

static void hear_signals(struct serve_process *self) {
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT};
    uv_loop_t *loop = worker_loop(self->main);
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
        st = start_http(self, err);
    }
    if (st == ST_OK) {
        st = start_listening(self, err);
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
    if (self->http) {
        http_server_stop(self->http, on_http_stopped, self);
    } else if (self->n_handles > 0) {
        on_http_stopped(self);
    } else if (self->main) {
        worker_stop(self->main);
    }
    if (self->main) {
        worker_run(self->main);
    }
}

static void take_apart(struct serve_process *self) {
    for (size_t i = 0; i < self->n_workers; i++) {
        worker_stop(self->workers[i]);
    }
    for (size_t i = 0; i < self->n_workers; i++) {
        worker_join(self->workers[i]);
    }
    if (self->repository) {
        repository_stop(self->repository);
    }
    if (self->http) {
        http_server_free(self->http);
    }
    for (size_t i = 0; i < self->n_workers; i++) {
        worker_free(self->workers[i]);
    }
    if (self->main) {
        worker_free(self->main);
    }
    if (self->repository) {
        repository_free(self->repository);
    }
    free(self->workers);
}

enum status serve_process_run(const struct serve_settings *settings,
                              const struct repository_options *models, struct error *err) {
    struct serve_process self = {
        .settings = settings,
        .loaded_msg = {.run = on_loaded},
        .budget = {.body_memory_bytes = settings->body_memory,
                   .max_connections = settings->max_connections},
    };
    enum status st = start(&self, models, err);
    if (st == ST_OK) {
        worker_run(self.main);
    } else {
        stop_unstarted(&self);
    }
    take_apart(&self);
    if (st == ST_OK) {
        log_plain(LOG_INFO, "ended");
    }
    return st;
}
