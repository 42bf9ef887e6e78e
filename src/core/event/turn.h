/* The end of a worker's turn. A turn is what the loop does from one look at the kernel to the next:
 * all that was read, posted and due. What is better done once for all of it than for each event
 * (to run together what several connections brought) is put off to its end, which comes before the
 * loop looks again: it costs no system call and delays nobody who is alone.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_EVENT_TURN_H
#define SLUICE_CORE_EVENT_TURN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Embedded in what has one. Zeroed but for `run`, it was not asked for. */
struct turn_task {
    struct turn_task *next;
    void (*run)(struct turn_task *task); /* may ask for more, itself too: that is run after another
                                            look at the kernel at the latest, which does not wait;
                                            may free what it is embedded in */
    bool asked;
};

/* A worker's. */
struct turn {
    struct turn_task *first, *last;
    uint64_t spent_ns; /* by tasks in this turn, as they say: for those that share a limit */
    bool active;       /* something was asked for: the handles are started */
    bool full;         /* so much was put off that it should not wait for the rest of the events;
                          set by who puts off */
    uv_check_t after;
    uv_prepare_t before;
    uv_idle_t more; /* while it is active the loop does not sleep */
};

/* Runs the task at the end of the turn, after those asked for before; once, however often it is
 * asked for. */
void turn_ask(struct turn *turn, struct turn_task *task);

/* Ends a turn that is full in the midst of its events: what they brought is still in the caches
 * when it is run, and whoever was read first has not long to wait. For who has dealt with an event
 * and holds nothing that a task may free. Returns: whether it was full. */
bool turn_end_full(struct turn *turn);

/* For worker.c. */
void turn_init(struct turn *turn, uv_loop_t *loop);
/* Runs what was asked for, and not what that asks for. Returns: is there any of that? */
bool turn_run(struct turn *turn);
/* Closes the handles: the loop must run once more before the turn's memory goes. */
void turn_close(struct turn *turn);

#endif
