/* A list of deferred tasks, run at two places of libuv's loop: after the events that the kernel
 * reported and, for tasks that timers and closed handles deferred, before the next poll. */
#include "core/event/loop_iteration.h"

#include <stddef.h>

static struct deferred_task *pop_first(struct deferred_task **list) {
    struct deferred_task *task = *list;
    *list = task->next;
    task->queued = false;
    return task;
}

bool loop_iteration_run_deferred(struct loop_iteration *iteration) {
    struct deferred_task *queued = iteration->first;
    iteration->first = NULL;
    iteration->full = false;
    while (queued) {
        struct deferred_task *task = pop_first(&queued);
        task->run(task);
    }
    return iteration->first != NULL;
}

bool loop_iteration_run_if_full(struct loop_iteration *iteration) {
    bool full = iteration->full;
    if (full) {
        loop_iteration_run_deferred(iteration);
        iteration->spent_ns = 0;
    }
    return full;
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void on_check(uv_check_t *check) {
    loop_iteration_run_deferred(check->data);
}

static void on_idle(uv_idle_t *idle) {
    (void)idle; /* being active is its only purpose */
}

/* Runs last in an iteration. */
static void on_prepare(uv_prepare_t *prepare) {
    struct loop_iteration *iteration = prepare->data;
    if (loop_iteration_run_deferred(iteration)) {
        uv_idle_start(&iteration->idle, on_idle);
    } else {
        iteration->active = false;
        uv_idle_stop(&iteration->idle);
        uv_check_stop(&iteration->check);
        uv_prepare_stop(&iteration->prepare);
    }
    iteration->spent_ns = 0;
}

/* The handles are active only while a task is deferred: an iteration without one costs nothing. */
static void start_handles(struct loop_iteration *iteration) {
    iteration->active = true;
    uv_check_start(&iteration->check, on_check); /* cannot fail either */
    uv_prepare_start(&iteration->prepare, on_prepare);
}

void loop_iteration_defer(struct loop_iteration *iteration, struct deferred_task *task) {
    if (task->queued) {
        return;
    }
    task->queued = true;
    task->next = NULL;
    *(iteration->first ? &iteration->last->next : &iteration->first) = task;
    iteration->last = task;
    if (!iteration->active) {
        start_handles(iteration);
    }
}

void loop_iteration_init(struct loop_iteration *iteration, uv_loop_t *loop) {
    *iteration = (struct loop_iteration){0};
    uv_check_init(loop, &iteration->check); /* these cannot fail */
    uv_prepare_init(loop, &iteration->prepare);
    uv_idle_init(loop, &iteration->idle);
    iteration->check.data = iteration;
    iteration->prepare.data = iteration;
}

void loop_iteration_close(struct loop_iteration *iteration) {
    uv_close((uv_handle_t *)&iteration->check, NULL);
    uv_close((uv_handle_t *)&iteration->prepare, NULL);
    uv_close((uv_handle_t *)&iteration->idle, NULL);
}
