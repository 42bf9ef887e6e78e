/* A worker: libuv's loop, a lock-free stack of posted messages, and one async handle that wakes the
 * loop.
 *
 * A poster that finds the stack empty wakes the loop; the others need not. The worker takes the
 * whole stack in one exchange and reverses it, so that the messages of one poster run in order.
 * Those that do not fit into an iteration wait for the next one. */
#include "core/event/worker.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/thread.h"

enum { WORKER_NAME_BYTES = 16 /* the kernel's limit */, WORKER_ARENA_CHUNKS = 256 };

struct worker {
    uv_loop_t loop;
    uv_async_t async;
    _Atomic(struct worker_msg *) posted; /* newest first */
    struct worker_msg *waiting, **end;   /* taken from there, in order */
    atomic_bool stopping;
    _Atomic uint64_t loop_thread; /* the thread that runs the loop; 0: none */
    uv_thread_t thread;
    bool started;
    struct arena_cache *arenas;
    struct worker_msg trim_msg;
    atomic_bool trim_posted;
    struct loop_timers timers;
    struct loop_iteration iteration;
    char name[WORKER_NAME_BYTES];
};

/* Moves what was posted to the end of `waiting`. */
static void take_posted(struct worker *worker) {
    struct worker_msg *msg = atomic_exchange_explicit(&worker->posted, NULL, memory_order_acquire);
    struct worker_msg *ordered = NULL, **end = msg ? &msg->next : worker->end;
    while (msg) {
        struct worker_msg *next = msg->next;
        msg->next = ordered;
        ordered = msg;
        msg = next;
    }
    *worker->end = ordered;
    worker->end = end;
}

/* Runs the messages, `all` or as many as fit into the iteration. */
static void run_posted(struct worker *worker, bool all) {
    take_posted(worker);
    while (worker->waiting) {
        struct worker_msg *msg = worker->waiting;
        if (loop_share_is_spent(&worker->iteration.messages, LOOP_MESSAGES_NS) && !all) {
            uv_async_send(&worker->async); /* after the other events */
            return;
        }
        worker->waiting = msg->next; /* running the message may free it or post it again */
        worker->end = worker->waiting ? worker->end : &worker->waiting;
        msg->run(msg);
    }
}

static void on_async(uv_async_t *async) {
    struct worker *worker = async->data;
    /* Read first: messages that were posted before the stop are then surely on the stack. */
    bool stopping = atomic_load_explicit(&worker->stopping, memory_order_acquire);
    run_posted(worker, stopping);
    if (stopping) {
        uv_stop(&worker->loop);
    }
}

static void trim_arenas(struct worker_msg *msg) {
    struct worker *worker = CONTAINER_OF(msg, struct worker, trim_msg);
    atomic_store(&worker->trim_posted, false);
    arena_cache_trim(worker->arenas);
}

void worker_trim_arenas(struct worker *worker) {
    if (!atomic_exchange(&worker->trim_posted, true)) {
        worker_post(worker, &worker->trim_msg);
    }
}

enum status worker_new(const char *name, struct worker **out, struct error *err) {
    enum status st = ST_OK;
    bool have_loop = false;
    struct worker *worker = calloc(1, sizeof(*worker));
    struct arena_cache *arenas = arena_cache_new(WORKER_ARENA_CHUNKS);
    if (!worker || !arenas) {
        st = error_no_memory(err, "worker %s", name);
        goto out;
    }
    snprintf(worker->name, sizeof(worker->name), "%s", name);
    worker->arenas = arenas;
    worker->trim_msg.run = trim_arenas;
    worker->end = &worker->waiting;
    int rc = uv_loop_init(&worker->loop);
    have_loop = rc == 0;
    if (rc == 0) {
        rc = uv_async_init(&worker->loop, &worker->async, on_async);
    }
    if (rc == 0) {
        rc = loop_timers_init(&worker->timers, &worker->loop, &worker->iteration);
    }
    if (rc != 0) {
        st = error_set(err, ST_IO, "cannot create the event loop of worker %s: %s", name,
                       uv_strerror(rc));
        goto out;
    }
    loop_iteration_init(&worker->iteration, &worker->loop);
    worker->loop.data = worker;
    worker->async.data = worker;
    *out = worker;
out:
    if (st != ST_OK) {
        if (have_loop) {
            uv_loop_close(&worker->loop);
        }
        arena_cache_free(arenas);
        free(worker);
    }
    return st;
}

void worker_limit_iterations(struct worker *worker) {
#ifdef SLUICE_LOOP_CPU_LIMIT_MS
    loop_iteration_limit_cpu(&worker->iteration, SLUICE_LOOP_CPU_LIMIT_MS * UINT64_C(1000000));
#else
    (void)worker;
#endif
}

static void thread_main(void *arg) {
    struct worker *worker = arg;
    pthread_setname_np(pthread_self(), worker->name);
    worker_run(worker);
}

enum status worker_start(struct worker *worker, struct error *err) {
    int rc = uv_thread_create(&worker->thread, thread_main, worker);
    if (rc != 0) {
        return error_set(err, ST_IO, "cannot start the thread of worker %s: %s", worker->name,
                         thread_start_error(rc));
    }
    worker->started = true;
    return ST_OK;
}

void worker_run(struct worker *worker) {
    /* Writing to a connection that the peer closed must be an error, not a signal. */
    sigset_t pipes;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, NULL);

    uint64_t self = (uint64_t)uv_thread_self();
    uint64_t before = atomic_exchange_explicit(&worker->loop_thread, self, memory_order_relaxed);
    assert(before == 0);
    (void)before;
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    while (loop_iteration_run_deferred(&worker->iteration)) { /* until no deferred task is left */
    }
    atomic_store_explicit(&worker->loop_thread, 0, memory_order_relaxed);
}

void worker_stop(struct worker *worker) {
    atomic_store_explicit(&worker->stopping, true, memory_order_release);
    uv_async_send(&worker->async);
}

void worker_join(struct worker *worker) {
    if (worker->started) {
        uv_thread_join(&worker->thread);
        worker->started = false;
    }
}

void worker_free(struct worker *worker) {
    if (!worker) {
        return;
    }
    assert(!worker->started);
    uv_close((uv_handle_t *)&worker->async, NULL);
    loop_timers_close(&worker->timers);
    loop_iteration_close(&worker->iteration);
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&worker->loop);
    assert(rc == 0); /* fails when a handle was left open */
    (void)rc;
    loop_timers_fini(&worker->timers);
    arena_cache_free(worker->arenas);
    free(worker);
}

void worker_post(struct worker *worker, struct worker_msg *msg) {
    struct worker_msg *top = atomic_load_explicit(&worker->posted, memory_order_relaxed);
    do {
        msg->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&worker->posted, &top, msg,
                                                    memory_order_release, memory_order_relaxed));
    if (!top) {
        uv_async_send(&worker->async);
    }
}

struct worker_call {
    struct worker_msg msg;
    void (*run)(void *arg);
    void *arg;
    uv_sem_t returned;
};

static void run_call(struct worker_msg *msg) {
    struct worker_call *call = CONTAINER_OF(msg, struct worker_call, msg);
    call->run(call->arg);
    uv_sem_post(&call->returned);
}

void worker_call(struct worker *worker, void (*run)(void *arg), void *arg) {
    struct worker_call call = {.msg = {.run = run_call}, .run = run, .arg = arg};
    uv_sem_init(&call.returned, 0); /* cannot fail */
    worker_post(worker, &call.msg);
    uv_sem_wait(&call.returned);
    uv_sem_destroy(&call.returned);
}

uv_loop_t *worker_loop(struct worker *worker) {
    return &worker->loop;
}

struct arena_cache *worker_arenas(struct worker *worker) {
    return worker->arenas;
}

struct loop_timers *worker_timers(struct worker *worker) {
    return &worker->timers;
}

struct loop_iteration *worker_loop_iteration(struct worker *worker) {
    return &worker->iteration;
}

bool worker_is_current(const struct worker *worker) {
    return atomic_load_explicit(&worker->loop_thread, memory_order_relaxed) ==
           (uint64_t)uv_thread_self();
}

const char *worker_name(const struct worker *worker) {
    return worker->name;
}
