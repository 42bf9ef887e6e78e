/* The picker's state on each of Envoy's worker threads: readers of the pools, and the requests that
 * wait. A worker's state is made by its first request, and lives as long as the picker.
 *
 * Envoy has no message and no timer for a worker, only schedulers of single requests: a wakeup of
 * the worker is one of any request that waits there, which then resumes all that can go on. The
 * times of requests that wait are checked by envoy_workers_tick, which another thread calls while
 * there are any. A request whose body is long is read in turns: another thread calls for the next
 * one, so that the worker has polled in between. */
#ifndef SLUICE_PICK_ENVOY_WORKER_H
#define SLUICE_PICK_ENVOY_WORKER_H

#include <stdatomic.h>

#include "core/event/lock.h"
#include "pick/stream/stream.h"

struct envoy_stream;
TAILQ_HEAD(envoy_streams, envoy_stream);

struct envoy_worker {
    struct pick_worker shared;
    struct envoy_workers *workers;
    struct arena_cache *arenas;
    struct envoy_streams resumed; /* by the session, and not continued yet */
    struct envoy_streams turns;   /* their bodies are read next, in this order */
    atomic_bool has_turns;
    struct lock lock;             /* of what follows */
    struct envoy_streams waiting; /* each has a scheduler */
    bool is_woken;                /* a scheduler of the first one was called */
};

struct envoy_workers_options {
    struct pick_workers *shared; /* with proxy_keeps_body */
    /* Requests wait: envoy_workers_tick is to be called soon, and again until it returns false. May
     * be NULL. Thread: any worker's. */
    void (*on_waiting)(void *user);
    /* A request waits for its turn: envoy_workers_call_turns is to be called at once, by another
     * thread. NULL: the worker's own scheduler is called. Thread: any worker's. */
    void (*on_turn)(void *user);
    void *user;
};

struct envoy_workers;

/* Returns: ST_NO_MEMORY. Owns: *out until envoy_workers_free, after the last request and before
 * `shared` is freed. */
enum status envoy_workers_new(const struct envoy_workers_options *options,
                              struct envoy_workers **out, struct error *err) SLUICE_MUST_USE;
void envoy_workers_free(struct envoy_workers *workers);
/* The worker with Envoy's number for it. Returns: NULL when out of memory, or when there are more
 * workers than ENVOY_MAX_WORKERS. Thread: that worker's. */
enum { ENVOY_MAX_WORKERS = PICK_MAX_WORKERS };
struct envoy_worker *envoy_workers_get(struct envoy_workers *workers, uint32_t index);
/* Has the requests that wait check their times. Returns: whether there are any. Thread: any. */
bool envoy_workers_tick(struct envoy_workers *workers);
/* Wakes the workers with requests that wait for a turn. Thread: any. */
void envoy_workers_call_turns(struct envoy_workers *workers);

/* For stream.c. `stream` is, or is no longer, one of those that wait, and has a scheduler. Thread:
 * the worker's. */
void envoy_worker_add_waiting(struct envoy_worker *worker, struct envoy_stream *stream);
void envoy_worker_remove_waiting(struct envoy_worker *worker, struct envoy_stream *stream);
/* It waits for its turn, too. */
void envoy_worker_add_turn(struct envoy_worker *worker, struct envoy_stream *stream);
/* A scheduler of the worker has called: resumes requests, gives one a turn, and checks the times of
 * those that wait.
 * Thread: the worker's. */
void envoy_worker_on_woken(struct envoy_worker *worker);

#endif
