/* Tasks deferred to the end of a worker's event-loop iteration. An iteration is what the loop does
 * between two polls: all events that were read, all messages that were posted, all timers that were
 * due. Work that is cheaper once for all of it than for each event (running together what several
 * connections received, writing together what a connection sends) and work that must not run inside
 * a callback (freeing what the callback uses) is deferred to its end, before the next poll: that
 * takes no system call and does not delay a request that is alone. The servers, the gRPC client and
 * inline execution all use it.
 *
 * Order: tasks run in the order in which they were deferred, and after all others those with
 * `runs_last`, which send and free what the others produced.
 *
 * An iteration is short, whatever the number of connections that have sent something: once their
 * events have taken LOOP_EVENTS_NS together, the other connections wait for a turn in one of the
 * next iterations, first come, first served (struct loop_turn). The more wait, the shorter is the
 * turn of each (loop_iteration_turn_is_over), so that a connection with one request does not wait
 * for all that a crowd has sent ahead. Messages of other threads and timers have times of their
 * own, so that no kind waits for all of another. In between the loop accepts connections and sends
 * responses.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_EVENT_LOOP_ITERATION_H
#define SLUICE_CORE_EVENT_LOOP_ITERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

/* Embed it in the object that defers work. Zeroed but for `run` and `runs_last`, it is not
 * deferred. */
struct deferred_task {
    STAILQ_ENTRY(deferred_task) link;
    /* May defer other tasks, which run before or after the next poll, which does not wait. Returns:
     * whether to run again, likewise; deferring the task while it runs does nothing. May free the
     * object that embeds it, last of all, and returns false then. */
    bool (*run)(struct deferred_task *task);
    bool runs_last;
    bool queued;
};

STAILQ_HEAD(deferred_tasks, deferred_task);

/* The name of the model that a loop executes now, cut to its space, padded with NULs. Other threads
 * may read it at any time, so it is kept as words: a name that is being replaced may be read as a
 * mixture. */
enum { LOOP_WORK_WORDS = 8, LOOP_WORK_BYTES = LOOP_WORK_WORDS * 8 };
struct loop_work {
    _Atomic uint64_t words[LOOP_WORK_WORDS];
};

/* What the events of connections may take of an iteration, and what messages and timers may. The
 * one that has begun is completed. */
static const uint64_t LOOP_EVENTS_NS = 2000000u, LOOP_MESSAGES_NS = 1000000u,
                      LOOP_TIMERS_NS = 1000000u;
/* About what a round of all turns takes, shared evenly by those that wait, and the least that one
 * of them has. */
static const uint64_t LOOP_ROUND_NS = 50000000u, LOOP_TURN_MIN_NS = 50000u;

/* The time that one kind of events has taken of an iteration. The first one of a kind reads no
 * clock. */
struct loop_share {
    uint64_t began_ns; /* 0: fewer than two events */
    uint64_t now_ns;   /* the last reading of the clock */
    bool has_event;
    bool is_spent;
};

/* Embed it in the object that waits for its turn. Zeroed but for `run`, it does not wait. */
struct loop_turn {
    TAILQ_ENTRY(loop_turn) link;
    /* May wait for the next turn, and may end the wait of others. */
    void (*run)(struct loop_turn *turn);
    bool queued;
};

/* The deferred tasks of a worker, and what waits for a turn in its loop. */
struct loop_iteration {
    struct deferred_tasks tasks, last_tasks;
    TAILQ_HEAD(, loop_turn) turns;              /* first come, first served */
    _Atomic size_t n_turns;                     /* written by the worker */
    struct loop_share events, messages, timers; /* of this iteration */
    uint64_t turn_began_ns;              /* the event of a connection that is handled; 0: unknown */
    const struct deferred_task *running; /* NULL: none */
    uint64_t n_polls;  /* that have returned, and their events are handled or wait for a turn */
    uint64_t spent_ns; /* spent by tasks in this iteration, as they report it: for tasks that
                          share a limit */
    bool active;       /* a task is deferred: `idle` is active */
    bool full;         /* enough is deferred that it should run before the remaining events; set
                          by the deferring code */
    bool watched;      /* this iteration is measured: `prepare` is active */
    uint64_t began_ms; /* of a measured iteration: when the poll returned, in uv_now's time */
    const char *longest_work; /* of this iteration, as loop_iteration_note tells; NULL: unknown */
    uint64_t longest_work_ns;
    struct loop_work work; /* of this moment */
    uint64_t cpu_limit_ns; /* 0: none */
    uint64_t cpu_ns;       /* of the thread, when the current iteration began */
    uint64_t n_over_limit; /* iterations */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_prepare_t cpu_prepare; /* active with a cpu_limit_ns */
    uv_idle_t idle;           /* while it is active the loop does not block */
};

/* Measures this iteration. One of more than LOOP_HELD_MS held the loop: it is counted
 * (METRIC_EVENT_LOOP_HOLDS_TOTAL) and logged, with the work that took longest. Called for what may
 * take long: large data that is read or sent, and work that is noted. An iteration of small
 * requests is not measured, which saves a fortieth of the shortest ones. */
enum { LOOP_HELD_MS = 20, LOOP_NOTE_MIN_NS = 1000 * 1000, LOOP_WATCH_MIN_BYTES = 16384 };
void loop_iteration_watch(struct loop_iteration *iteration);

/* Names work of the current iteration that took, or is estimated to take, `ns`; only what takes at
 * least LOOP_NOTE_MIN_NS matters. `work` is a string that stays: "a model". */
static inline void loop_iteration_note(struct loop_iteration *iteration, const char *work,
                                       uint64_t ns) {
    if (ns >= LOOP_NOTE_MIN_NS && ns > iteration->longest_work_ns) {
        iteration->longest_work = work;
        iteration->longest_work_ns = ns;
        loop_iteration_watch(iteration);
    }
}

/* Thread: the worker's. */
static inline void loop_work_set(struct loop_work *work, const uint64_t name[LOOP_WORK_WORDS]) {
    for (int i = 0; i < LOOP_WORK_WORDS; i++) {
        atomic_store_explicit(&work->words[i], name[i], memory_order_relaxed);
    }
}
static inline void loop_work_clear(struct loop_work *work) {
    atomic_store_explicit(&work->words[0], 0, memory_order_relaxed);
}
/* Reads the name, NUL-terminated; "": it executes none. Thread: any. */
void loop_work_read(const struct loop_work *work, char name[LOOP_WORK_BYTES]);

/* From now on an iteration whose thread uses more CPU time is an error in the log, whatever the
 * iteration does. CPU time grows no faster on a busy machine. For tests: each iteration costs a
 * system call. */
void loop_iteration_limit_cpu(struct loop_iteration *iteration, uint64_t limit_ns);

/* An event is about to be handled. Returns: whether events of its kind have spent their time in
 * this iteration, so that it must wait: one of a connection by loop_iteration_wait. */
bool loop_share_check(struct loop_share *share, uint64_t limit_ns);
static inline bool loop_share_is_spent(struct loop_share *share, uint64_t limit_ns) {
    bool is_first = !share->has_event;
    share->has_event = true;
    return !is_first && loop_share_check(share, limit_ns);
}
static inline bool loop_iteration_is_over(struct loop_iteration *iteration) {
    bool is_over = loop_share_is_spent(&iteration->events, LOOP_EVENTS_NS);
    iteration->turn_began_ns = iteration->events.now_ns;
    return is_over;
}
/* For an event of a connection that is handled in pieces, in a turn or before: whether the next
 * piece must wait for a turn, which lasts `most_ns` at most even if no other one waits. */
bool loop_iteration_turn_is_over(struct loop_iteration *iteration, uint64_t most_ns);
/* Waits for a turn, after those that wait; no effect when it waits already. */
void loop_iteration_wait(struct loop_iteration *iteration, struct loop_turn *turn);
/* Ends the wait, if it waits. */
void loop_iteration_end_wait(struct loop_iteration *iteration, struct loop_turn *turn);

/* Returns: how many turns are waited for. Thread: any. */
static inline size_t loop_iteration_n_turns(const struct loop_iteration *iteration) {
    return atomic_load_explicit(&iteration->n_turns, memory_order_relaxed);
}

/* Runs the task at the end of the iteration; once, however often it is deferred. */
void loop_iteration_defer(struct loop_iteration *iteration, struct deferred_task *task);

/* Runs the deferred tasks in the middle of an iteration that is full, while the data of its events
 * is still in the CPU's caches and before the first of them has waited long. The caller has
 * finished an event and holds no pointer that a task may free. Returns: whether it was full. */
bool loop_iteration_run_if_full(struct loop_iteration *iteration);

/* The functions below are for worker.c. */
void loop_iteration_init(struct loop_iteration *iteration, uv_loop_t *loop);
/* Runs the turns that fit into the iteration, then the deferred tasks, but not what these add.
 * Returns: whether turns or tasks are left. */
bool loop_iteration_run_deferred(struct loop_iteration *iteration);
/* Closes the handles: the loop must run once more before the memory of `iteration` is freed. */
void loop_iteration_close(struct loop_iteration *iteration);

#endif
