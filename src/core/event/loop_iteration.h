/* The end of a worker's turn. A turn is what the loop does from one look at the kernel to the next:
 * all that was read, posted and due. What is better done once for all of it than for each event
 * (to run together what several connections brought) is put off to its end, which comes before the
 * loop looks again: it costs no system call and delays nobody who is alone.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_EVENT_LOOP_ITERATION_H
#define SLUICE_CORE_EVENT_LOOP_ITERATION_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Embedded in what has one. Zeroed but for `run`, it was not asked for. */
struct deferred_task {
    struct deferred_task *next;
    void (*run)(struct deferred_task *task); /* may ask for more, itself too: that is run after
                                                another
                                            look at the kernel at the latest, which does not wait;
                                            may free what it is embedded in */
    bool queued;
};

/* A worker's. */
struct loop_iteration {
    struct deferred_task *first, *last;
    uint64_t spent_ns; /* by tasks in this turn, as they say: for those that share a limit */
    bool active;       /* something was asked for: the handles are started */
    bool full;         /* so much was put off that it should not wait for the rest of the events;
                          set by who puts off */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_idle_t idle; /* while it is active the loop does not sleep */
};

/* Runs the task at the end of the turn, after those asked for before; once, however often it is
 * asked for. */
void loop_iteration_defer(struct loop_iteration *iteration, struct deferred_task *task);

/* Ends a turn that is full in the midst of its events: what they brought is still in the caches
 * when it is run, and whoever was read first has not long to wait. For who has dealt with an event
 * and holds nothing that a task may free. Returns: whether it was full. */
bool loop_iteration_run_if_full(struct loop_iteration *iteration);

/* For worker.c. */
void loop_iteration_init(struct loop_iteration *iteration, uv_loop_t *loop);
/* Runs what was asked for, and not what that asks for. Returns: is there any of that? */
bool loop_iteration_run_deferred(struct loop_iteration *iteration);
/* Closes the handles: the loop must run once more before the turn's memory goes. */
void loop_iteration_close(struct loop_iteration *iteration);

#endif
