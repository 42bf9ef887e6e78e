/* A heap of deadlines behind a timer. The timer is started anew for an alarm that is earlier than
 * what it waits for, and never for one that is cleared: most alarms are cleared before they ring,
 * and one look at the heap in vain is cheaper than a timer started for each. */
#include "core/event/timer.h"

#include <assert.h>
#include <stddef.h>

#include "core/event/clock.h"

enum { NS_PER_MS = 1000000 };

static void on_timer(uv_timer_t *uv_timer);

static void schedule_wakeup(struct loop_timers *timers, uint64_t due_ns) {
    if (due_ns >= timers->wakeup_ns) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    timers->wakeup_ns = due_ns;
    uv_update_time(timers->uv_timer.loop); /* the loop's idea of now is that of when it last
                                              slept */
    uv_timer_start(&timers->uv_timer, on_timer, delay_ns / NS_PER_MS + 1, 0);
}

static void on_timer(uv_timer_t *uv_timer) {
    struct loop_timers *timers = uv_timer->data;
    uint64_t now_ns = clock_now_ns();
    struct timer_node *due;
    timers->wakeup_ns = UINT64_MAX;
    while ((due = timer_heap_pop_due(&timers->heap, now_ns))) {
        struct timer *timer = (struct timer *)(void *)((char *)due - offsetof(struct timer, node));
        timer->on_expire(timer);
    }
    schedule_wakeup(timers, timer_heap_next_ns(&timers->heap));
}

bool timer_start(struct loop_timers *timers, struct timer *timer, uint64_t due_ns) {
    if (!timer_heap_set(&timers->heap, &timer->node, due_ns)) {
        return false;
    }
    schedule_wakeup(timers, due_ns);
    return true;
}

void timer_stop(struct loop_timers *timers, struct timer *timer) {
    timer_heap_remove(&timers->heap, &timer->node);
}

int loop_timers_init(struct loop_timers *timers, uv_loop_t *loop) {
    *timers = (struct loop_timers){.wakeup_ns = UINT64_MAX};
    int rc = uv_timer_init(loop, &timers->uv_timer);
    timers->uv_timer.data = timers;
    return rc;
}

void loop_timers_close(struct loop_timers *timers) {
    uv_close((uv_handle_t *)&timers->uv_timer, NULL);
}

void loop_timers_fini(struct loop_timers *timers) {
    assert(timers->heap.n == 0); /* whatever it is in would be gone */
    timer_heap_fini(&timers->heap);
}
