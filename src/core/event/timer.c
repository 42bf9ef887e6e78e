/* Lists of equal timeouts, and the timers of a worker. */
#include "core/event/timer.h"

#include <assert.h>
#include <stddef.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "core/event/loop_iteration.h"

/* ---- list ------------------------------------------------------------------------------------ */

void timer_list_init(struct timer_list *timers) {
    for (unsigned i = 0; i < TIMER_LIST_MAX_CLASSES; i++) {
        TAILQ_INIT(&timers->classes[i]);
    }
}

void timer_list_stop(struct timer_list *timers, struct list_timer *timer) {
    if (!timer->armed) {
        return;
    }
    TAILQ_REMOVE(&timers->classes[timer->timer_class], timer, link);
    timer->armed = false;
}

void timer_list_start(struct timer_list *timers, struct list_timer *timer, uint8_t timer_class,
                      uint64_t now_ns) {
    assert(timer_class < TIMER_LIST_MAX_CLASSES);
    timer_list_stop(timers, timer);
    uint64_t after_ns = timers->after_ns[timer_class];
    if (after_ns == 0 || after_ns > UINT64_MAX - now_ns) {
        return;
    }
    timer->due_ns = now_ns + after_ns;
    timer->timer_class = timer_class;
    timer->armed = true;
    TAILQ_INSERT_TAIL(&timers->classes[timer_class], timer, link);
}

struct list_timer *timer_list_pop_due(struct timer_list *timers, uint64_t now_ns) {
    for (unsigned i = 0; i < TIMER_LIST_MAX_CLASSES; i++) {
        struct list_timer *first = TAILQ_FIRST(&timers->classes[i]);
        if (first && first->due_ns <= now_ns) {
            timer_list_stop(timers, first);
            return first;
        }
    }
    return NULL;
}

uint64_t timer_list_next_ns(const struct timer_list *timers) {
    uint64_t next_ns = UINT64_MAX;
    for (unsigned i = 0; i < TIMER_LIST_MAX_CLASSES; i++) {
        const struct list_timer *first = TAILQ_FIRST(&timers->classes[i]);
        if (first && first->due_ns < next_ns) {
            next_ns = first->due_ns;
        }
    }
    return next_ns;
}

/* ---- a worker's timers ----------------------------------------------------------------------- */

enum { NS_PER_MS = 1000000 };

static void on_timer(uv_timer_t *uv_timer);

static void schedule_wakeup(struct loop_timers *timers, uint64_t due_ns) {
    if (due_ns >= timers->wakeup_ns) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = clock_between_ns(now_ns, due_ns);
    timers->wakeup_ns = now_ns + delay_ns;
    uv_update_time(timers->uv_timer.loop); /* libuv's cached time is that of the last poll */
    uv_timer_start(&timers->uv_timer, on_timer, delay_ns / NS_PER_MS + 1, 0);
}

enum late_timer_result late_timer_check(struct late_timer *late,
                                        const struct loop_iteration *iteration, uint64_t due_ns,
                                        uint64_t now_ns) {
    if (late->waits) {
        late->waits = iteration && iteration->n_polls == late->n_polls;
        return late->waits ? TIMER_WAITS_FOR_POLL : TIMER_AFTER_POLL;
    }
    if (!timer_is_late(due_ns, now_ns)) {
        return TIMER_IN_TIME;
    }
    *late = (struct late_timer){true, iteration ? iteration->n_polls : 0};
    return TIMER_WAITS_FOR_POLL;
}

static uint64_t next_due_ns(const struct loop_timers *timers) {
    uint64_t next_ns = timer_heap_next_ns(&timers->heap);
    const struct timer *timer;
    LIST_FOREACH(timer, &timers->beside, beside_link) {
        next_ns = timer->node.due_ns < next_ns ? timer->node.due_ns : next_ns;
    }
    return next_ns;
}

/* Returns: a timer that is due, stopped; NULL when none is (left). */
static struct timer *pop_due(struct loop_timers *timers, uint64_t now_ns) {
    struct timer_node *due = timer_heap_pop_due(&timers->heap, now_ns);
    struct timer *timer;
    if (due) {
        return CONTAINER_OF(due, struct timer, node);
    }
    LIST_FOREACH(timer, &timers->beside, beside_link) {
        if (timer->node.due_ns <= now_ns) {
            timer_stop(timers, timer);
            return timer;
        }
    }
    return NULL;
}

static void on_timer(uv_timer_t *uv_timer) {
    struct loop_timers *timers = uv_timer->data;
    uint64_t now_ns = clock_now_ns();
    struct timer *due;
    enum late_timer_result late =
        late_timer_check(&timers->late, timers->iteration, timers->wakeup_ns, now_ns);
    timers->wakeup_ns = UINT64_MAX;
    if (late == TIMER_WAITS_FOR_POLL) {
        schedule_wakeup(timers, now_ns);
        return;
    }
    while (
        !(timers->iteration && loop_share_is_spent(&timers->iteration->timers, LOOP_TIMERS_NS)) &&
        (due = pop_due(timers, now_ns))) {
        due->on_expire(due);
    }
    schedule_wakeup(timers, next_due_ns(timers));
}

void timer_start(struct loop_timers *timers, struct timer *timer, uint64_t due_ns) {
    timer_stop(timers, timer);
    if (!timer_heap_set(&timers->heap, &timer->node, due_ns)) {
        timer->node.due_ns = due_ns;
        timer->is_beside = true;
        LIST_INSERT_HEAD(&timers->beside, timer, beside_link);
    }
    schedule_wakeup(timers, due_ns);
}

void timer_stop(struct loop_timers *timers, struct timer *timer) {
    if (timer->is_beside) {
        timer->is_beside = false;
        LIST_REMOVE(timer, beside_link);
    }
    timer_heap_remove(&timers->heap, &timer->node);
}

int loop_timers_init(struct loop_timers *timers, uv_loop_t *loop,
                     struct loop_iteration *iteration) {
    *timers = (struct loop_timers){.wakeup_ns = UINT64_MAX, .iteration = iteration};
    int rc = uv_timer_init(loop, &timers->uv_timer);
    timers->uv_timer.data = timers;
    return rc;
}

void loop_timers_close(struct loop_timers *timers) {
    uv_close((uv_handle_t *)&timers->uv_timer, NULL);
}

void loop_timers_fini(struct loop_timers *timers) {
    /* A timer in the heap would be left with a dangling index. */
    assert(timers->heap.n == 0 && LIST_EMPTY(&timers->beside));
    timer_heap_fini(&timers->heap);
}
