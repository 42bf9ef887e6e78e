/* A list of tasks, run at the two places of libuv's loop where nothing is left of the turn: right
 * after the events that the kernel reported, and, for what timers and closed handles asked for,
 * right before it is asked again. */
#include "core/event/turn.h"

#include <stddef.h>

static struct turn_task *take_first(struct turn_task **list) {
    struct turn_task *task = *list;
    *list = task->next;
    task->asked = false;
    return task;
}

bool turn_run(struct turn *turn) {
    struct turn_task *asked = turn->first;
    turn->first = NULL;
    turn->full = false;
    while (asked) {
        struct turn_task *task = take_first(&asked);
        task->run(task);
    }
    return turn->first != NULL;
}

bool turn_end_full(struct turn *turn) {
    bool full = turn->full;
    if (full) {
        turn_run(turn);
        turn->spent_ns = 0;
    }
    return full;
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void after_events(uv_check_t *check) {
    turn_run(check->data);
}

static void on_idle(uv_idle_t *idle) {
    (void)idle; /* that it is active is all */
}

/* The last that happens in a turn. */
static void before_events(uv_prepare_t *prepare) {
    struct turn *turn = prepare->data;
    if (turn_run(turn)) {
        uv_idle_start(&turn->more, on_idle);
    } else {
        turn->active = false;
        uv_idle_stop(&turn->more);
        uv_check_stop(&turn->after);
        uv_prepare_stop(&turn->before);
    }
    turn->spent_ns = 0;
}

/* A turn for which nothing is asked costs nothing. */
static void activate(struct turn *turn) {
    turn->active = true;
    uv_check_start(&turn->after, after_events); /* the starts cannot fail either */
    uv_prepare_start(&turn->before, before_events);
}

void turn_ask(struct turn *turn, struct turn_task *task) {
    if (task->asked) {
        return;
    }
    task->asked = true;
    task->next = NULL;
    *(turn->first ? &turn->last->next : &turn->first) = task;
    turn->last = task;
    if (!turn->active) {
        activate(turn);
    }
}

void turn_init(struct turn *turn, uv_loop_t *loop) {
    *turn = (struct turn){0};
    uv_check_init(loop, &turn->after); /* these cannot fail */
    uv_prepare_init(loop, &turn->before);
    uv_idle_init(loop, &turn->more);
    turn->after.data = turn;
    turn->before.data = turn;
}

void turn_close(struct turn *turn) {
    uv_close((uv_handle_t *)&turn->after, NULL);
    uv_close((uv_handle_t *)&turn->before, NULL);
    uv_close((uv_handle_t *)&turn->more, NULL);
}
