/* The table of workers, and wakeups. A wakeup is not lost: when the request whose scheduler was
 * called leaves, that of another one is called. */
#include "pick/envoy/worker.h"

#include <stdlib.h>

#include "core/event/clock.h"
#include "pick/envoy/abi.h"
#include "pick/envoy/stream.h"

enum { ARENA_CHUNKS = 256 /* kept for the next requests: 1 MiB */ };

/* pool_tick of pools that requests wait for; more frequent calls of it have no effect. */
static const uint64_t TICK_NS = 50000000;

struct envoy_workers {
    struct envoy_workers_options options;
    atomic_size_t n_waiting;
    struct envoy_worker *_Atomic items[ENVOY_MAX_WORKERS]; /* each is set by its own thread */
};

/* ---- wakeups --------------------------------------------------------------------------------- */

/* Under the worker's lock. */
static void call_first(struct envoy_worker *worker) {
    struct envoy_stream *first = TAILQ_FIRST(&worker->waiting);
    worker->is_woken = first != NULL;
    if (first) {
        envoy_dynamic_module_callback_http_filter_scheduler_commit(first->scheduler, 0);
    }
}

/* Thread: any. Without requests that wait there is nothing to be woken for. */
static void wake(void *user) {
    struct envoy_worker *worker = user;
    lock_acquire(&worker->lock);
    if (!worker->is_woken) {
        call_first(worker);
    }
    lock_release(&worker->lock);
}

void envoy_worker_add_waiting(struct envoy_worker *worker, struct envoy_stream *stream) {
    struct envoy_workers *workers = worker->workers;
    lock_acquire(&worker->lock);
    TAILQ_INSERT_TAIL(&worker->waiting, stream, waiting_link);
    lock_release(&worker->lock);
    if (atomic_fetch_add(&workers->n_waiting, 1) == 0 && workers->options.on_waiting) {
        workers->options.on_waiting(workers->options.user);
    }
}

void envoy_worker_remove_waiting(struct envoy_worker *worker, struct envoy_stream *stream) {
    lock_acquire(&worker->lock);
    TAILQ_REMOVE(&worker->waiting, stream, waiting_link);
    if (worker->is_woken) {
        call_first(worker);
    }
    lock_release(&worker->lock);
    atomic_fetch_sub(&worker->workers->n_waiting, 1);
}

static void call_turns(struct envoy_worker *worker) {
    const struct envoy_workers_options *options = &worker->workers->options;
    atomic_store(&worker->has_turns, true);
    if (options->on_turn) {
        options->on_turn(options->user);
    } else {
        wake(worker);
    }
}

void envoy_worker_add_turn(struct envoy_worker *worker, struct envoy_stream *stream) {
    TAILQ_INSERT_TAIL(&worker->turns, stream, turn_link);
    if (!atomic_load(&worker->has_turns)) {
        call_turns(worker);
    }
}

void envoy_workers_call_turns(struct envoy_workers *workers) {
    for (size_t i = 0; i < ENVOY_MAX_WORKERS; i++) {
        struct envoy_worker *worker = atomic_load(&workers->items[i]);
        if (worker && atomic_load(&worker->has_turns)) {
            wake(worker);
        }
    }
}

bool envoy_workers_tick(struct envoy_workers *workers) {
    for (size_t i = 0; i < ENVOY_MAX_WORKERS; i++) {
        struct envoy_worker *worker = atomic_load(&workers->items[i]);
        if (worker) {
            wake(worker);
        }
    }
    return atomic_load(&workers->n_waiting) > 0;
}

/* Streams leave the list when they are continued. */
static void check_deadlines(struct envoy_worker *worker) {
    uint64_t now_ns = clock_now_ns();
    struct envoy_stream *stream;
    TAILQ_FOREACH(stream, &worker->waiting, waiting_link) {
        uint64_t due_ns = pick_session_deadline_ns(stream->shared.session);
        if (due_ns > 0 && due_ns <= now_ns) {
            pick_session_on_timeout(stream->shared.session);
            envoy_stream_note_resumed(stream);
        }
    }
}

void envoy_worker_on_woken(struct envoy_worker *worker) {
    struct pick_worker *shared = &worker->shared;
    struct loop_share share = {.began_ns = 0};
    struct envoy_stream *stream;
    lock_acquire(&worker->lock);
    worker->is_woken = false;
    lock_release(&worker->lock);
    pool_set_reader_refresh_all(shared->context.pools);
    uint64_t begun_ns = pool_waited_is_empty(&shared->waited) ? 0 : clock_now_ns();
    if (pick_session_resume_some(&shared->wakeup, &share)) {
        wake(worker);
    }
    pool_waited_tick(&shared->waited, TICK_NS);
    pool_waited_evict(&shared->waited);
    check_deadlines(worker);
    if (begun_ns > 0) {
        pick_worker_count_dispatch(shared, begun_ns);
    }
    while ((stream = TAILQ_FIRST(&worker->resumed))) {
        envoy_stream_continue(stream);
    }
    if ((stream = TAILQ_FIRST(&worker->turns))) {
        envoy_stream_begin_turn(stream);
    }
    atomic_store(&worker->has_turns, false);
    if (!TAILQ_EMPTY(&worker->turns)) {
        call_turns(worker);
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

static void free_worker(struct envoy_worker *worker) {
    pick_worker_fini(&worker->shared);
    arena_cache_free(worker->arenas);
    lock_fini(&worker->lock);
    free(worker);
}

static struct envoy_worker *make_worker(struct envoy_workers *workers) {
    struct envoy_worker *worker = calloc(1, sizeof(*worker));
    struct arena_cache *arenas = worker ? arena_cache_new(ARENA_CHUNKS) : NULL;
    struct error err;
    if (!arenas) {
        free(worker);
        return NULL;
    }
    worker->workers = workers;
    worker->arenas = arenas;
    lock_init(&worker->lock);
    TAILQ_INIT(&worker->waiting);
    TAILQ_INIT(&worker->resumed);
    TAILQ_INIT(&worker->turns);
    if (pick_worker_init(&worker->shared, workers->options.shared, wake, worker, &err) != ST_OK) {
        free_worker(worker);
        return NULL;
    }
    return worker;
}

enum status envoy_workers_new(const struct envoy_workers_options *options,
                              struct envoy_workers **out, struct error *err) {
    struct envoy_workers *workers = calloc(1, sizeof(*workers));
    if (!workers) {
        return error_no_memory(err, "the table of workers");
    }
    workers->options = *options;
    *out = workers;
    return ST_OK;
}

void envoy_workers_free(struct envoy_workers *workers) {
    for (size_t i = 0; workers && i < ENVOY_MAX_WORKERS; i++) {
        struct envoy_worker *worker = atomic_load(&workers->items[i]);
        if (worker) {
            free_worker(worker);
        }
    }
    free(workers);
}

struct envoy_worker *envoy_workers_get(struct envoy_workers *workers, uint32_t index) {
    if (index >= ENVOY_MAX_WORKERS) {
        return NULL;
    }
    struct envoy_worker *worker =
        atomic_load_explicit(&workers->items[index], memory_order_relaxed);
    if (!worker) {
        worker = make_worker(workers);
        atomic_store_explicit(&workers->items[index], worker, memory_order_release);
    }
    return worker;
}
