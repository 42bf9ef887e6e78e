/* The Envoy that the gateway runs: started, watched until it is ready, restarted when it ends, and
 * drained. Its log lines become lines of ours, those of the picker in it pass as they are.
 *
 * Thread: the worker's. */
#ifndef SLUICE_PROGRAM_GATEWAY_ENVOY_PROCESS_H
#define SLUICE_PROGRAM_GATEWAY_ENVOY_PROCESS_H

#include <stdatomic.h>

#include "core/base/status.h"
#include "core/event/timer.h"
#include "core/event/worker.h"
#include "core/os/subprocess.h"
#include "net/client/http_fetch.h"

enum envoy_phase {
    ENVOY_STARTING, /* it runs, and has not said yet that it is ready */
    ENVOY_READY,
    ENVOY_PAUSED, /* it has ended, and is started again in a while */
    ENVOY_STOPPED,
};

struct envoy_process_options {
    struct worker *worker;
    const char *const *argv;
    const char *const *env;
    const char *admin_socket; /* of its admin interface */
    /* It is ready for the first time, or again. */
    void (*on_ready)(void *user);
    /* It has ended before it was ready for the first time; it is not started again. */
    void (*on_failed)(void *user, const struct error *err);
    void *user;
};

struct envoy_process {
    struct envoy_process_options options;
    enum envoy_phase phase;
    bool was_ready, draining, stopping;
    struct subprocess *subprocess;  /* NULL: it does not run */
    struct http_fetcher *fetcher;   /* of the admin interface */
    bool fetching;                  /* the poll of `timer` has not been answered yet */
    struct timer timer;             /* the next poll, or the end of the pause */
    struct timer kill_timer;        /* while stopping */
    unsigned n_failures;            /* in a row */
    uint64_t started_ns, ready_ns;  /* when it was started, and when it became ready */
    bool is_slow;                   /* it was logged that it is not ready yet */
    uint64_t n_in_flight;           /* requests, when it was asked last; while draining */
    atomic_uint_least64_t n_starts; /* for the metrics */
    char last_error[512];           /* its last line that was an error; "": none */
    void (*stopped)(void *user);
    void *stopped_user;
};

/* Starts it; zeroed memory. Returns: ST_IO, ST_NO_MEMORY. Owns: envoy_process_stop, also after a
 * failure. */
enum status envoy_process_start(struct envoy_process *self,
                                const struct envoy_process_options *options,
                                struct error *err) SLUICE_MUST_USE;
/* It accepts no further connections, and closes those of HTTP/1 after their answers. */
void envoy_process_drain(struct envoy_process *self);
/* Its log files are opened again. */
void envoy_process_reopen_logs(const struct envoy_process *self);
/* Requests in flight: 0 where it does not run; at least 1 while that is not known. */
uint64_t envoy_process_in_flight(const struct envoy_process *self);
/* Ends it; `stopped` is called when it has ended and nothing of it is on the loop. */
void envoy_process_stop(struct envoy_process *self, void (*stopped)(void *user), void *user);
/* After `stopped`. */
void envoy_process_free(struct envoy_process *self);

#endif
