/* A worker: a thread with an event loop (libuv). What belongs to a worker (connections, requests,
 * timers) is touched on its thread only; everything else reaches it as a posted message. A worker
 * also runs on the calling thread (worker_run), which is how the main thread and the unit tests use
 * one. */
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

/* A message: embed it in what is sent. It may be posted again once it has run. */
struct worker_msg {
    struct worker_msg *next;
    /* On the worker's thread; may free what it is embedded in. */
    void (*run)(struct worker_msg *msg);
};

enum status worker_new(const char *name, struct worker **out, struct error *err);
/* Starts the thread. */
enum status worker_start(struct worker *worker, struct error *err);
/* Runs the loop on the calling thread until worker_stop. */
void worker_run(struct worker *worker);
/* Asks the loop to end after what was posted before; never blocks, idempotent. Thread: any. */
void worker_stop(struct worker *worker);
/* Waits for the thread. */
void worker_join(struct worker *worker);
/* Frees a worker that has ended (or never started). Every handle on its loop must be closed. */
void worker_free(struct worker *worker);

/* Posts a message: runs in order of posting (per poster). A burst of posts wakes the loop once.
 * Thread: any. Never blocks, never fails. */
void worker_post(struct worker *worker, struct worker_msg *msg);

/* Thread: the worker's (uv_loop, arena cache, alarms, turn), any (name, is_current). */
uv_loop_t *worker_loop(struct worker *worker);
struct arena_cache *worker_arenas(struct worker *worker);
struct loop_timers *worker_timers(struct worker *worker);
struct loop_iteration *worker_loop_iteration(struct worker *worker);
bool worker_is_current(const struct worker *worker);
const char *worker_name(const struct worker *worker);

#endif
