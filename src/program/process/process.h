/* What a running server is, whatever it serves: its threads, the signals it hears, how it drains
 * and ends. The main thread accepts connections, hears signals and waits; workers serve.
 *
 *     process_start → process_run: SIGTERM or SIGINT: draining → nothing in flight: stopping
 *                   → process_join → (what was served is freed) → process_free
 *
 * SIGUSR2 writes the state into the log, SIGHUP reads files again. A second SIGTERM or SIGINT ends
 * the process at once. A service manager hears of all this, and that the event loops live.
 *
 * Thread: main, for everything. */
#ifndef SLUICE_PROGRAM_PROCESS_PROCESS_H
#define SLUICE_PROGRAM_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/event/worker.h"
#include "core/os/service_manager.h"
#include "core/os/watchdog.h"

/* Who runs the servers. */
struct process_threads {
    struct worker *main; /* accepts connections */
    struct worker **workers;
    size_t n_workers;
};

/* What is served, as its process sees it. */
struct process_handlers {
    uint64_t (*in_flight)(void *user); /* requests begun and not ended */
    void (*log_state)(void *user);     /* every connection and request, into the log */
    void (*reload)(void *user);        /* looks now at the files that may change */
    void (*drain)(void *user);         /* clients are told to go elsewhere */
    /* Can it be ended in order? Asked when nothing is in flight; false: the process just ends. */
    bool (*can_stop)(void *user);
    /* Closes everything on the loops; `stopped` runs when it is closed. */
    void (*stop)(void *user, void (*stopped)(void *), void *stopped_user);
    void (*unlink)(void *user); /* the files of Unix sockets, for an end without the rest */
};

/* Loops that a server may have watched besides the workers', before process_run. */
enum { PROCESS_EXTRA_LOOPS = 4 };

enum { PROCESS_SIGNALS = 4 };

struct process {
    const struct process_handlers *handlers;
    void *user;
    uint64_t drain_timeout_ns;
    const char *ready_file; /* removed when it drains; may be NULL */
    struct process_threads threads;
    struct service_manager manager;
    struct watchdog watchdog; /* of the workers, and of PROCESS_EXTRA_LOOPS more */
    bool draining;
    const char *status; /* as process_set_ready was told; NULL: not yet */
    /* its own */
    uv_signal_t signals[PROCESS_SIGNALS];
    uv_timer_t drain_timer; /* while draining: looks whether all have been answered */
    size_t n_handles;       /* of the main loop, to be closed */
    unsigned n_idle_polls;  /* polls in a row that found nothing in flight */
    uint64_t drain_until_ns;
};

/* Starts the workers and hears signals, in a struct whose first four members are set and the others
 * zero. Signals are heard before anything that takes time: as the first process of a container, one
 * that nobody hears is lost. They are acted on once the loop runs. Owns: process_join and
 * process_free, also after a failure. */
enum status process_start(struct process *process, uint64_t n_workers, struct error *err)
    __attribute__((warn_unused_result));
/* It has started, and serves as `status` says in words, which must stay. */
void process_set_ready(struct process *process, const char *status);
/* Serves until it has ended in order. */
void process_run(struct process *process);
/* Instead of process_run, after a start that failed half-way: what is open on the loops is
 * closed. */
void process_abort(struct process *process);
/* The workers end. */
void process_join(struct process *process);
/* After what was served is freed. */
void process_free(struct process *process);

#endif
