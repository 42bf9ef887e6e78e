/* A worker: a thread with an event loop (libuv). The objects of a worker (connections, requests,
 * timers) are used on its thread only; other threads reach it by posted messages. A worker may also
 * run on the calling thread (worker_run), as the main thread's and the unit tests' do. */
#ifndef SLUICE_CORE_EVENT_WORKER_H
#define SLUICE_CORE_EVENT_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/event/loop_iteration.h"
#include "core/event/timer.h"

struct worker;

/* A message: embed it in the object that is sent. It may be posted again once it has run. */
struct worker_msg {
    struct worker_msg *next;
    /* Runs on the worker's thread; may free the object that embeds it. */
    void (*run)(struct worker_msg *msg);
};

/* Makes a worker that is not started; `name` is its thread's. Returns: ST_IO, ST_NO_MEMORY. Owns:
 * the caller, until worker_free. */
enum status worker_new(const char *name, struct worker **out, struct error *err);
/* The worker serves requests, so that others must not wait for one of them: in builds with
 * SLUICE_LOOP_CPU_LIMIT_MS, as those with a sanitizer, loop_iteration_limit_cpu applies to it.
 * Before it is started. */
void worker_limit_iterations(struct worker *worker);
/* Starts the thread. */
enum status worker_start(struct worker *worker, struct error *err);
/* Runs the loop on the calling thread until worker_stop. */
void worker_run(struct worker *worker);
/* Stops the loop after the messages that were posted before; never blocks, idempotent. Thread:
 * any. */
void worker_stop(struct worker *worker);
/* Waits for the thread. */
void worker_join(struct worker *worker);
/* Frees a worker that has ended (or never started). Every handle on its loop must be closed. */
void worker_free(struct worker *worker);

/* Posts a message. The messages of one poster run in the order of posting. A burst of posts wakes
 * the loop once. Thread: any. Never blocks, never fails. */
void worker_post(struct worker *worker, struct worker_msg *msg);
/* Runs the function on a started worker's thread and waits for its return. Thread: any other. */
void worker_call(struct worker *worker, void (*run)(void *arg), void *arg);

/* Memory is short: the worker frees the spare chunks of its arena cache soon. Thread: any. */
void worker_trim_arenas(struct worker *worker);

/* Thread: the worker's (loop, arena cache, timers, loop iteration); any (worker_name,
 * worker_is_current). */
uv_loop_t *worker_loop(struct worker *worker);
struct arena_cache *worker_arenas(struct worker *worker);
struct loop_timers *worker_timers(struct worker *worker);
struct loop_iteration *worker_loop_iteration(struct worker *worker);
bool worker_is_current(const struct worker *worker);
const char *worker_name(const struct worker *worker);

#endif
