/* The phases of an Envoy, its polls, and its log lines. */
#include "program/gateway/envoy_process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "core/base/backoff.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "core/event/clock.h"

#define MS UINT64_C(1000000)
static const uint64_t POLL_NS = 20 * MS;
static const uint64_t POLL_TIMEOUT_NS = 5000 * MS;
static const uint64_t FIRST_PAUSE_NS = 100 * MS, LONGEST_PAUSE_NS = 30000 * MS;
/* One that has served so long has not failed at its start. */
static const uint64_t STEADY_NS = 60000 * MS;
static const uint64_t KILL_NS = 5000 * MS;
static const uint64_t SLOW_START_NS = 10000 * MS;

enum { MOST_STATS_BYTES = 4096, IDLE_CONNECTIONS = 2 };

#define REQUESTS_STAT "http.inference.downstream_rq_active"

/* ---- log lines ------------------------------------------------------------------------------- */

/* As the gateway has Envoy write its lines: "[envoy][warning][main] text". */
static bool read_envoy_line(struct str line, struct str *level, struct str *part,
                            struct str *text) {
    static const char BEFORE[] = "[envoy][";
    struct str rest = line;
    if (!str_starts_with(rest, STR(BEFORE))) {
        return false;
    }
    rest = str_make(rest.ptr + sizeof(BEFORE) - 1, rest.len - (sizeof(BEFORE) - 1));
    *level = str_cut(&rest, ']');
    if (!rest.ptr || rest.len == 0) {
        return false;
    }
    rest = str_make(rest.ptr + 1, rest.len - 1);
    *part = str_cut(&rest, ']');
    *text = rest.ptr ? str_trim(rest) : STR("");
    return rest.ptr != NULL;
}

static enum log_level level_of(struct str level) {
    return str_is(level, "critical") || str_is(level, "error") ? LOG_ERROR
           : str_is(level, "warning")                          ? LOG_WARNING
           : str_is(level, "info")                             ? LOG_INFO
                                                               : LOG_DEBUG;
}

/* Lines of the picker are lines of ours: "2026-11-30T10:00:00.123Z INFO …", or JSON. */
static bool is_our_line(struct str line) {
    return str_starts_with(line, STR("{\"time\":")) ||
           (line.len > 24 && line.ptr[4] == '-' && line.ptr[10] == 'T' && line.ptr[23] == 'Z');
}

static void keep_error(struct envoy_process *self, struct str text) {
    snprintf(self->last_error, sizeof(self->last_error), "%.*s", STR_ARG(text));
}

static bool is_our_error(struct str line) {
    return memmem(line.ptr, line.len, " ERROR ", 7) != NULL ||
           memmem(line.ptr, line.len, "\"level\":\"error\"", 15) != NULL;
}

static void on_line(void *user, struct str line) {
    struct envoy_process *self = user;
    struct str level, part, text;
    if (is_our_line(line)) {
        if (is_our_error(line)) {
            keep_error(self, line);
        }
        log_pass(line);
        return;
    }
    if (!read_envoy_line(line, &level, &part, &text)) {
        keep_error(self, line);
        log_event(LOG_WARNING, "Envoy: output", LOG_STR("text", line));
        return;
    }
    /* Envoy's last words, "exiting", say nothing. */
    if (level_of(level) == LOG_ERROR && !str_is(text, "exiting")) {
        keep_error(self, text);
    }
    /* Of a signal of ours Envoy warns. */
    bool is_expected = self->stopping && level_of(level) == LOG_WARNING;
    log_event(is_expected ? LOG_DEBUG : level_of(level), "Envoy", LOG_STR("part", part),
              LOG_STR("text", text));
}

/* ---- polls ----------------------------------------------------------------------------------- */

static void wait_ns(struct envoy_process *self, uint64_t ns) {
    timer_start(worker_timers(self->options.worker), &self->timer, clock_now_ns() + ns);
}

static enum status ask(struct envoy_process *self, const char *method, const char *url,
                       http_fetch_done_cb *done) {
    struct error err;
    struct http_fetch_request request = {.url = url,
                                         .unix_socket = self->options.admin_socket,
                                         .method = method,
                                         .timeout_ns = POLL_TIMEOUT_NS,
                                         .max_body_size = MOST_STATS_BYTES,
                                         .done = done,
                                         .user = self};
    if (method) {
        request.body = STR("");
    }
    return http_fetch_start(self->fetcher, &request, NULL, &err);
}

static void warn_of_slow_start(struct envoy_process *self) {
    if (!self->is_slow && clock_between_ns(self->started_ns, clock_now_ns()) >= SLOW_START_NS) {
        self->is_slow = true;
        log_message(LOG_WARNING, "Envoy runs, and is not ready yet");
    }
}

static void on_ready_answer(void *user, const struct http_fetch_result *fetched) {
    struct envoy_process *self = user;
    self->fetching = false;
    if (self->stopping || self->phase != ENVOY_STARTING) {
        return;
    }
    if (fetched->error.status != ST_OK || fetched->status != 200) {
        warn_of_slow_start(self);
        wait_ns(self, POLL_NS);
        return;
    }
    self->phase = ENVOY_READY;
    self->ready_ns = clock_now_ns();
    self->was_ready = true;
    self->options.on_ready(self->options.user);
}

static void on_stats_answer(void *user, const struct http_fetch_result *fetched) {
    struct envoy_process *self = user;
    struct str body = fetched->body, line = str_cut(&body, '\n'); /* "NAME: 3" */
    self->fetching = false;
    if (self->stopping || self->phase != ENVOY_READY) {
        return;
    }
    if (fetched->error.status == ST_OK && fetched->status == 200) {
        (void)str_cut(&line, ':');
        (void)num_parse_u64(str_trim(line.ptr ? line : STR("0")), &self->n_in_flight);
    }
    wait_ns(self, POLL_NS);
}

static void poll_envoy(struct envoy_process *self) {
    bool starting = self->phase == ENVOY_STARTING;
    enum status st = starting ? ask(self, NULL, "http://envoy/ready", on_ready_answer)
                              : ask(self, NULL, "http://envoy/stats?filter=^" REQUESTS_STAT "$",
                                    on_stats_answer);
    self->fetching = st == ST_OK;
    if (st != ST_OK) {
        wait_ns(self, POLL_NS);
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

static void on_exit(void *user, int wait_status);

static enum status start(struct envoy_process *self, struct error *err) {
    struct subprocess_spec spec = {.argv = self->options.argv,
                                   .env = self->options.env,
                                   .on_line = on_line,
                                   .on_exit = on_exit,
                                   .user = self};
    self->last_error[0] = '\0';
    enum status st = subprocess_start(self->options.worker, &spec, &self->subprocess, err);
    if (st == ST_OK) {
        self->phase = ENVOY_STARTING;
        self->started_ns = clock_now_ns();
        self->is_slow = false;
        atomic_fetch_add(&self->n_starts, 1);
        wait_ns(self, POLL_NS);
    }
    return st;
}

static void pause_before_start(struct envoy_process *self) {
    self->n_failures++;
    self->phase = ENVOY_PAUSED;
    wait_ns(self, backoff_wait(FIRST_PAUSE_NS, LONGEST_PAUSE_NS, self->n_failures));
}

static void on_timer(struct timer *timer) {
    struct envoy_process *self = CONTAINER_OF(timer, struct envoy_process, timer);
    struct error err;
    if (self->stopping || self->fetching) {
        return;
    }
    if (self->phase == ENVOY_PAUSED && !self->draining) {
        if (start(self, &err) != ST_OK) {
            log_event(LOG_ERROR, "Envoy can't be started", LOG_CSTR("reason", err.text));
            pause_before_start(self);
        }
    } else if (self->phase == ENVOY_STARTING || (self->phase == ENVOY_READY && self->draining)) {
        poll_envoy(self);
    }
}

static const char *print_end(int wait_status, char out[64]) {
    if (WIFSIGNALED(wait_status)) {
        snprintf(out, 64, "signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(out, 64, "exit code %d", WEXITSTATUS(wait_status));
    }
    return out;
}

static void finish_stop(struct envoy_process *self);

static void on_exit(void *user, int wait_status) {
    struct envoy_process *self = user;
    struct error err;
    char end[64];
    bool ready = self->phase == ENVOY_READY;
    self->subprocess = NULL;
    self->n_in_flight = 0;
    self->phase = ENVOY_STOPPED;
    print_end(wait_status, end);
    timer_stop(worker_timers(self->options.worker), &self->timer);
    if (self->stopping) {
        finish_stop(self);
        return;
    }
    if (!self->was_ready) {
        error_set(&err, ST_IO, "Envoy ended before it was ready (%s)%s%s", end,
                  self->last_error[0] ? ": " : "", self->last_error);
        self->options.on_failed(self->options.user, &err);
        return;
    }
    if (ready && clock_between_ns(self->ready_ns, clock_now_ns()) >= STEADY_NS) {
        self->n_failures = 0;
    }
    pause_before_start(self);
    log_event(
        LOG_ERROR, "Envoy has ended, and is started again", LOG_CSTR("end", end),
        LOG_CSTR("last_error", self->last_error),
        LOG_U64("pause_ms", backoff_wait(FIRST_PAUSE_NS, LONGEST_PAUSE_NS, self->n_failures) / MS));
}

enum status envoy_process_start(struct envoy_process *self,
                                const struct envoy_process_options *options, struct error *err) {
    self->options = *options;
    self->phase = ENVOY_STOPPED;
    self->timer.on_expire = on_timer;
    enum status st = http_fetcher_new(options->worker, NULL, IDLE_CONNECTIONS, &self->fetcher, err);
    return st == ST_OK ? start(self, err) : st;
}

/* ---- drain and stop -------------------------------------------------------------------------- */

static void on_ignored(void *user, const struct http_fetch_result *fetched) {
    (void)user;
    (void)fetched;
}

void envoy_process_drain(struct envoy_process *self) {
    self->draining = true;
    if (self->phase != ENVOY_READY) {
        return;
    }
    self->n_in_flight = 1;
    /* The first makes Envoy close connections after their answers, the second refuse new ones. */
    (void)ask(self, "POST", "http://envoy/healthcheck/fail", on_ignored);
    (void)ask(self, "POST", "http://envoy/drain_listeners", on_ignored);
    wait_ns(self, POLL_NS);
}

void envoy_process_reopen_logs(const struct envoy_process *self) {
    if (self->subprocess) {
        subprocess_signal(self->subprocess, SIGUSR1);
    }
}

uint64_t envoy_process_in_flight(const struct envoy_process *self) {
    return self->phase == ENVOY_READY ? self->n_in_flight : 0;
}

static void on_fetcher_stopped(void *user) {
    struct envoy_process *self = user;
    self->stopped(self->stopped_user);
}

static void finish_stop(struct envoy_process *self) {
    timer_stop(worker_timers(self->options.worker), &self->kill_timer);
    if (self->fetcher) {
        http_fetcher_stop(self->fetcher, on_fetcher_stopped, self);
    } else {
        self->stopped(self->stopped_user);
    }
}

static void on_kill_timer(struct timer *timer) {
    struct envoy_process *self = CONTAINER_OF(timer, struct envoy_process, kill_timer);
    if (self->subprocess) {
        log_message(LOG_WARNING, "Envoy does not end on SIGTERM: it is killed");
        subprocess_signal(self->subprocess, SIGKILL);
    }
}

void envoy_process_stop(struct envoy_process *self, void (*stopped)(void *user), void *user) {
    self->stopping = true;
    self->stopped = stopped;
    self->stopped_user = user;
    if (!self->options.worker) { /* it was never started */
        stopped(user);
        return;
    }
    timer_stop(worker_timers(self->options.worker), &self->timer);
    if (!self->subprocess) {
        finish_stop(self);
        return;
    }
    self->kill_timer.on_expire = on_kill_timer;
    timer_start(worker_timers(self->options.worker), &self->kill_timer, clock_now_ns() + KILL_NS);
    subprocess_signal(self->subprocess, SIGTERM);
}

void envoy_process_free(struct envoy_process *self) {
    http_fetcher_free(self->fetcher);
}
