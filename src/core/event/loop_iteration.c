/* Two lists of deferred tasks, run at two places of libuv's loop: after the events that the kernel
 * reported and, for tasks that timers and closed handles deferred, before the next poll. */
#include "core/event/loop_iteration.h"

static void add_task(struct loop_iteration *iteration, struct deferred_task *task) {
    task->queued = true;
    STAILQ_INSERT_TAIL(task->runs_last ? &iteration->last_tasks : &iteration->tasks, task, link);
}

/* Runs the tasks of one list, but not those that are added meanwhile. */
static void run_tasks(struct loop_iteration *iteration, struct deferred_tasks *list) {
    struct deferred_tasks queued = STAILQ_HEAD_INITIALIZER(queued);
    STAILQ_CONCAT(&queued, list);
    while (!STAILQ_EMPTY(&queued)) {
        struct deferred_task *task = STAILQ_FIRST(&queued);
        STAILQ_REMOVE_HEAD(&queued, link);
        task->queued = false;
        iteration->running = task;
        if (task->run(task)) {
            add_task(iteration, task);
        }
        iteration->running = NULL;
    }
}

bool loop_iteration_run_deferred(struct loop_iteration *iteration) {
    iteration->full = false;
    run_tasks(iteration, &iteration->tasks);
    run_tasks(iteration, &iteration->last_tasks);
    return !STAILQ_EMPTY(&iteration->tasks) || !STAILQ_EMPTY(&iteration->last_tasks);
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

static void end_iteration(struct loop_iteration *iteration) {
    iteration->active = false;
    iteration->spent_ns = 0;
    uv_idle_stop(&iteration->idle);
}

/* After the events of the poll. What is left or deferred after it, by timers and closed handles,
 * runs in on_idle. */
static void on_check(uv_check_t *check) {
    struct loop_iteration *iteration = check->data;
    if (iteration->active && !loop_iteration_run_deferred(iteration)) {
        end_iteration(iteration);
    }
}

/* Before the next poll, which does not wait as long as the handle is active. */
static void on_idle(uv_idle_t *idle) {
    struct loop_iteration *iteration = idle->data;
    if (!loop_iteration_run_deferred(iteration)) {
        end_iteration(iteration);
    }
    iteration->spent_ns = 0;
}

void loop_iteration_defer(struct loop_iteration *iteration, struct deferred_task *task) {
    if (task->queued || task == iteration->running) {
        return;
    }
    add_task(iteration, task);
    if (!iteration->active) {
        iteration->active = true;
        uv_idle_start(&iteration->idle, on_idle); /* cannot fail either */
    }
}

void loop_iteration_init(struct loop_iteration *iteration, uv_loop_t *loop) {
    *iteration = (struct loop_iteration){0};
    STAILQ_INIT(&iteration->tasks);
    STAILQ_INIT(&iteration->last_tasks);
    uv_check_init(loop, &iteration->check); /* these cannot fail */
    uv_idle_init(loop, &iteration->idle);
    iteration->check.data = iteration;
    iteration->idle.data = iteration;
    uv_check_start(&iteration->check, on_check);
}

void loop_iteration_close(struct loop_iteration *iteration) {
    uv_close((uv_handle_t *)&iteration->check, NULL);
    uv_close((uv_handle_t *)&iteration->idle, NULL);
}
