/* The process of a model server or a picker: its threads, signals, draining and shutdown. The main
 * thread accepts connections and handles signals; workers serve.
 *
 *     process_start → process_run: SIGTERM or SIGINT: draining → nothing in flight: stopping
 *                   → process_join → (the servers are freed) → process_free
 *
 * SIGUSR2 logs the state, SIGHUP reloads files. A second SIGTERM or SIGINT exits at once, and a few
 * seconds later when the main thread is blocked. The
 * service manager is notified of each state, and by the watchdog that the event loops are alive.
 *
 * Thread: main, for everything. */
#ifndef SLUICE_PROGRAM_PROCESS_PROCESS_H
#define SLUICE_PROGRAM_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/event/worker.h"
#include "core/os/memory_pressure.h"
#include "core/os/ready_file.h"
#include "core/os/service_manager.h"
#include "core/os/watchdog.h"
#include "net/transport/budget.h"

/* The threads of the servers. */
struct process_threads {
    struct worker *main; /* accepts connections */
    struct worker **workers;
    size_t n_workers;
    /* Serves the admin listener only: metrics are answered whatever the other threads do, and a
     * long page delays none of them. */
    struct worker *admin;
    const struct loop_health *health; /* of all of these */
};

/* The callbacks of what is served. All but health_changed run on the main thread. */
struct process_handlers {
    uint64_t (*in_flight)(void *user); /* the number of requests in flight */
    void (*log_state)(void *user);     /* logs every connection and request */
    void (*reload)(void *user);        /* checks now whether files have changed */
    void (*shrink)(void *user);        /* memory is short: frees half of what is cached; may be
                                          NULL */
    void (*drain)(void *user);         /* tells clients to use another server */
    /* The answers to health checks have changed (process.watchdog.health). May be NULL. Thread: the
     * watchdog's. */
    void (*health_changed)(void *user);
    /* Is an orderly shutdown possible? Called when no request is in flight; false: the process
     * exits. */
    bool (*can_stop)(void *user);
    /* Closes everything on the loops, then calls `stopped`. */
    void (*stop)(void *user, void (*stopped)(void *), void *stopped_user);
    void (*unlink)(void *user); /* removes the files of Unix sockets before an exit */
};

/* Loops that a server may add to the watchdog besides the workers', before process_run. */
enum { PROCESS_EXTRA_LOOPS = 4 };

enum { PROCESS_SIGNALS = 4 };

struct process {
    const struct process_handlers *handlers;
    void *user;
    uint64_t drain_timeout_ns;
    uint64_t loop_unready_after_ns, loop_dead_after_ns; /* of watchdog_options */
    struct ready_file ready_file;                       /* removed when draining begins */
    struct process_threads threads;
    struct service_manager manager;
    struct watchdog watchdog; /* of the workers, and of at most PROCESS_EXTRA_LOOPS more */
    bool draining;
    bool failed;        /* of process_fail */
    const char *status; /* of process_set_ready; NULL: not ready yet */
    /* internal */
    uv_signal_t signals[PROCESS_SIGNALS];
    uv_timer_t drain_timer;  /* polls while draining whether requests are in flight */
    uv_timer_t second_timer; /* checks memory pressure, and notifies the service manager again */
    struct memory_pressure pressure;
    uint64_t pressure_logged_ns; /* last; 0: never */
    size_t n_handles;            /* of the main loop, still to be closed */
    unsigned n_idle_polls;       /* consecutive polls without a request in flight */
    uint64_t drain_until_ns;
};

/* Starts the workers and the signal handlers, in a struct whose members up to ready_file are set
 * and the others zero. Signal handlers come before anything that takes time, because the first
 * process of a container loses a signal without a handler. They run once the loop runs. Owns:
 * process_join and process_free, also after a failure. */
enum status process_start(struct process *process, uint64_t n_workers,
                          struct error *err) SLUICE_MUST_USE;
/* Sets the limit on connections: `max_connections`, or as many as the limit on descriptors leaves
 * besides a reserve for health, metrics, checks and models; says in the log when it is lower. Once
 * the listeners' and workers' descriptors are open. */
void process_limit_connections(struct net_budget *budget, uint64_t max_connections);
/* The server is ready; `status` describes its state to the service manager, and must stay valid. */
void process_set_ready(struct process *process, const char *status);
/* Begins the shutdown, as SIGTERM does, of a process that exits with EXIT_CODE_FAILED. */
void process_fail(struct process *process);
/* Serves until the shutdown is complete. */
void process_run(struct process *process);
/* Instead of process_run, after a start that failed half-way: closes what is open on the loops. */
void process_abort(struct process *process);
/* Stops and joins the workers. */
void process_join(struct process *process);
/* Call it after the servers are freed. */
void process_free(struct process *process);

#endif
