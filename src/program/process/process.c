/* Signals, draining, and shutdown of a server process. */
#include "program/process/process.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/must/must.h"
#include "core/os/cgroup.h"
#include "core/os/division_trap.h"
#include "core/os/fd_limit.h"
#include "core/os/ready_file.h"
#include "program/options/exit_code.h"

enum {
    /* Descriptors that are not left to connections, at most half of all: 256 each for connections
     * that are refused, of --metrics and of --health, the rest for checks, scrapes and models. */
    FD_RESERVE = 1024,
    EXIT_CODE_SIGNAL = 128,
    POLL_MS = 10, /* while draining */
    SECOND_MS = 1000,
    FORCED_EXIT_SECONDS = 2, /* after the second signal, when the main thread does not exit */
    IDLE_POLLS = 5, /* consecutive polls without a request in flight: requests that were being
                       received have begun by then */
};

/* ---- shutdown -------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct process *process = handle->data;
    if (--process->n_handles == 0) {
        worker_stop(process->threads.main);
    }
}

static void on_stopped(void *user) {
    struct process *process = user;
    for (size_t i = 0; i < PROCESS_SIGNALS; i++) {
        uv_close((uv_handle_t *)&process->signals[i], on_closed);
    }
    uv_close((uv_handle_t *)&process->drain_timer, on_closed);
    uv_close((uv_handle_t *)&process->second_timer, on_closed);
}

/* Exits without waiting. Only the files of Unix sockets would remain. */
static _Noreturn void exit_now(const struct process *process, int code) {
    process->handlers->unlink(process->user);
    _exit(code);
}

/* A thread that loads models, or a request that outlasts the drain, cannot be interrupted: an
 * orderly shutdown would wait for it. */
static void exit_on_drain_timeout(struct process *process) {
    uint64_t left = process->handlers->in_flight(process->user);
    if (left > 0) {
        log_event(LOG_WARNING, "drain timeout: requests in flight are aborted",
                  LOG_U64("requests", left));
    }
    exit_now(process, process->failed ? EXIT_CODE_FAILED : EXIT_CODE_OK);
}

static void on_drain_timer(uv_timer_t *timer) {
    struct process *process = timer->data;
    bool in_flight = process->handlers->in_flight(process->user) > 0;
    process->n_idle_polls = in_flight ? 0 : process->n_idle_polls + 1;
    if (process->n_idle_polls < IDLE_POLLS && clock_now_ns() < process->drain_until_ns) {
        return;
    }
    if (in_flight || !process->handlers->can_stop(process->user)) {
        exit_on_drain_timeout(process);
    }
    uv_timer_stop(timer);
    watchdog_stop(&process->watchdog); /* the event loops end from here on */
    process->handlers->stop(process->user, on_stopped, process);
}

static void start_draining(struct process *process) {
    process->draining = true;
    process->drain_until_ns = clock_now_ns() + process->drain_timeout_ns;
    service_manager_stopping(&process->manager, process->drain_timeout_ns);
    ready_file_remove(&process->ready_file);
    process->handlers->drain(process->user);
    uv_timer_start(&process->drain_timer, on_drain_timer, 0, POLL_MS);
}

/* No reload before the server is ready (it is about to read the files) or while it drains. */
static void reload_files(struct process *process) {
    if (process->draining || !process->status) {
        return;
    }
    log_message(LOG_INFO, "reloading files");
    service_manager_reloading(&process->manager);
    process->handlers->reload(process->user);
    service_manager_ready(&process->manager, process->status);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct process *process = handle->data;
    if (signum == SIGUSR2) {
        process->handlers->log_state(process->user);
    } else if (signum == SIGHUP) {
        reload_files(process);
    } else if (process->draining) {
        exit_now(process, process->failed ? EXIT_CODE_FAILED : EXIT_CODE_SIGNAL + signum);
    } else {
        log_event(LOG_INFO, "draining: completing requests in flight",
                  LOG_CSTR("signal", signum == SIGTERM ? "SIGTERM" : "SIGINT"),
                  LOG_U64("requests", process->handlers->in_flight(process->user)));
        start_draining(process);
    }
}

/* ---- memory pressure ------------------------------------------------------------------------- */

static const uint64_t PRESSURE_LOG_NS = UINT64_C(60000000000);

static void shrink_caches(struct process *process, uint64_t now_ns) {
    metric_add(METRIC_MEMORY_PRESSURE_TOTAL, 1);
    if (process->handlers->shrink) {
        process->handlers->shrink(process->user);
    }
    for (size_t i = 0; i < process->threads.n_workers; i++) {
        worker_trim_arenas(process->threads.workers[i]);
    }
    heap_purge();
    if (process->pressure_logged_ns == 0 ||
        now_ns - process->pressure_logged_ns >= PRESSURE_LOG_NS) {
        process->pressure_logged_ns = now_ns;
        log_message(LOG_WARNING, "memory pressure: the kernel is short of memory for this process, "
                                 "caches are shrunk");
    }
}

static void on_second(uv_timer_t *timer) {
    static const struct memory_pressure_files FILES = {
        .proc_cgroup = CGROUP_PROC, .mount = CGROUP_MOUNT, .machine = MEMORY_PRESSURE_MACHINE};
    struct process *process = timer->data;
    uint64_t now_ns = clock_now_ns();
    service_manager_retry(&process->manager);
    if (memory_pressure_check(&process->pressure, &FILES, now_ns)) {
        shrink_caches(process, now_ns);
    }
}

/* ---- start ------------------------------------------------------------------------------- */

static enum status start_worker(const char *name, struct worker **out, struct error *err) {
    enum status st = worker_new(name, out, err);
    if (st == ST_OK) {
        worker_limit_iterations(*out);
        st = worker_start(*out, err);
    }
    return st;
}

/* NULL in a build with another allocator, such as a sanitizer's. */
extern int mallctl(const char *name, void *old_value, size_t *old_bytes, void *new_value,
                   size_t new_bytes) __attribute__((weak));

static bool use_arena(unsigned i) {
    return mallctl("thread.arena", NULL, NULL, &i, sizeof(i)) == 0;
}

/* Makes all arenas of jemalloc now: a thread that is assigned to one creates it. Later, a thread
 * that gets none for lack of address space would crash at its first allocation, also one of a
 * library. */
static enum status make_heap_arenas(struct error *err) {
    unsigned n, own;
    size_t n_bytes = sizeof(n);
    if (!mallctl || mallctl("opt.narenas", &n, &n_bytes, NULL, 0) != 0 ||
        mallctl("thread.arena", &own, &n_bytes, NULL, 0) != 0) {
        return ST_OK;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!use_arena(i)) {
            (void)use_arena(own);
            return error_set(err, ST_NO_MEMORY,
                             "no address space for arena %u of the heap's %u (ulimit -v; "
                             "MALLOC_CONF=narenas:N takes fewer)",
                             i + 1, n);
        }
    }
    (void)use_arena(own);
    return ST_OK;
}

static enum status start_workers(struct process_threads *threads, uint64_t n, struct error *err) {
    enum status st = worker_new("main", &threads->main, err);
    threads->workers = must_calloc(n, sizeof(struct worker *), "the workers");
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = start_worker("worker", &threads->workers[i], err);
        threads->n_workers += threads->workers[i] != NULL;
    }
    return st == ST_OK ? start_worker("admin", &threads->admin, err) : st;
}

/* The main thread may be blocked and never see the second signal, so an alarm ends the process
 * then. Signal handlers have no argument of ours: this is one for the process. */
static struct {
    struct sigaction loop; /* libuv's, which wakes the main loop */
    volatile sig_atomic_t n_signals;
    volatile sig_atomic_t signum; /* the second one */
} ending;

static void on_forced_exit(int signum) {
    (void)signum;
    _exit(EXIT_CODE_SIGNAL + (int)ending.signum);
}

static void on_ending_signal(int signum) {
    if (ending.n_signals < 2 && ++ending.n_signals == 2) {
        ending.signum = signum;
        alarm(FORCED_EXIT_SECONDS);
    }
    ending.loop.sa_handler(signum);
}

static void count_ending_signals(void) {
    struct sigaction on_alarm = {.sa_handler = on_forced_exit};
    sigaction(SIGALRM, &on_alarm, NULL);
    sigaction(SIGTERM, NULL, &ending.loop);
    struct sigaction counting = ending.loop;
    counting.sa_handler = on_ending_signal;
    sigaction(SIGTERM, &counting, NULL);
    sigaction(SIGINT, &counting, NULL);
}

static void start_signal_handlers(struct process *process) {
    static const int numbers[PROCESS_SIGNALS] = {SIGTERM, SIGINT, SIGUSR2, SIGHUP};
    uv_loop_t *loop = worker_loop(process->threads.main);
    for (size_t i = 0; i < PROCESS_SIGNALS; i++) {
        uv_signal_init(loop, &process->signals[i]);
        process->signals[i].data = process;
        uv_signal_start(&process->signals[i], on_signal, numbers[i]);
    }
    count_ending_signals();
    uv_timer_init(loop, &process->drain_timer);
    process->drain_timer.data = process;
    uv_timer_init(loop, &process->second_timer);
    process->second_timer.data = process;
    process->n_handles = PROCESS_SIGNALS + 2; /* and those of both timers */
}

/* Thread: the watchdog's. */
static void on_health_changed(void *user) {
    struct process *process = user;
    if (process->handlers->health_changed) {
        process->handlers->health_changed(process->user);
    }
}

static enum status open_watchdog(struct process *process, struct error *err) {
    const struct process_threads *threads = &process->threads;
    const struct watchdog_options options = {.manager = &process->manager,
                                             .main = threads->main,
                                             .unready_after_ns = process->loop_unready_after_ns,
                                             .dead_after_ns = process->loop_dead_after_ns,
                                             .on_change = on_health_changed,
                                             .user = process};
    enum status st =
        watchdog_open(&process->watchdog, &options, threads->n_workers + PROCESS_EXTRA_LOOPS, err);
    for (size_t i = 0; st == ST_OK && i < threads->n_workers; i++) {
        watchdog_add(&process->watchdog, threads->workers[i]);
    }
    process->threads.health = &process->watchdog.health;
    if (st == ST_OK) {
        watchdog_add(&process->watchdog, threads->admin);
        watchdog_add(&process->watchdog, threads->main);
    }
    return st;
}

enum status process_start(struct process *process, uint64_t n_workers, struct error *err) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* a common mistake for SIGUSR2; by default it ends the process */
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit is a write error, like a full disk */
    division_trap_handle();
    fd_limit_raise();
    service_manager_open_from_env(&process->manager);
    if (make_heap_arenas(err) != ST_OK ||
        start_workers(&process->threads, n_workers, err) != ST_OK ||
        open_watchdog(process, err) != ST_OK) {
        return err->status;
    }
    start_signal_handlers(process);
    return ST_OK;
}

void process_limit_connections(struct net_budget *budget, uint64_t max_connections) {
    uint64_t n_left = fd_limit_left();
    uint64_t reserve = n_left / 2 < FD_RESERVE ? n_left / 2 : FD_RESERVE;
    uint64_t most = n_left - reserve > 0 ? n_left - reserve : 1;
    budget->max_connections = max_connections < most ? max_connections : most;
    budget->max_refusals = reserve / 4 > 0 ? reserve / 4 : 1;
    if (most < max_connections) {
        log_event(most < max_connections / 2 ? LOG_WARNING : LOG_INFO,
                  "fewer connections than --max-connections, for the limit on open files "
                  "(RLIMIT_NOFILE, ulimit -n)",
                  LOG_U64("max_connections", max_connections), LOG_U64("used", most),
                  LOG_U64("reserved_files", reserve));
    }
}

void process_set_ready(struct process *process, const char *status) {
    if (!process->draining) {
        process->status = status;
        service_manager_ready(&process->manager, status);
    }
}

void process_fail(struct process *process) {
    process->failed = true;
    if (!process->draining) {
        start_draining(process);
    }
}

void process_run(struct process *process) {
    watchdog_start(&process->watchdog);
    uv_timer_start(&process->second_timer, on_second, 0, SECOND_MS);
    worker_run(process->threads.main);
}

void process_abort(struct process *process) {
    if (process->n_handles > 0) {
        process->handlers->stop(process->user, on_stopped, process);
    } else if (process->threads.main) {
        worker_stop(process->threads.main);
    }
    if (process->threads.main) {
        worker_run(process->threads.main);
    }
}

/* ---- join and free --------------------------------------------------------------------------- */

void process_join(struct process *process) {
    for (size_t i = 0; i < process->threads.n_workers; i++) {
        worker_stop(process->threads.workers[i]);
    }
    for (size_t i = 0; i < process->threads.n_workers; i++) {
        worker_join(process->threads.workers[i]);
    }
    if (process->threads.admin) {
        worker_stop(process->threads.admin);
        worker_join(process->threads.admin);
    }
}

void process_free(struct process *process) {
    for (size_t i = 0; i < process->threads.n_workers; i++) {
        worker_free(process->threads.workers[i]);
    }
    worker_free(process->threads.admin);
    if (process->threads.main) {
        worker_free(process->threads.main);
    }
    watchdog_free(&process->watchdog);
    service_manager_close(&process->manager);
    free(process->threads.workers);
}
