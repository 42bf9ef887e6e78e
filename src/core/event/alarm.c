/* A heap of deadlines behind a timer. The timer is started anew for an alarm that is earlier than
 * what it waits for, and never for one that is cleared: most alarms are cleared before they ring,
 * and one look at the heap in vain is cheaper than a timer started for each. */
#include "core/event/alarm.h"

#include <assert.h>
#include <stddef.h>

#include "core/event/clock.h"

enum { NS_PER_MS = 1000000 };

static void on_timer(uv_timer_t *timer);

static void wake_at(struct alarms *alarms, uint64_t due_ns) {
    if (due_ns >= alarms->timer_ns) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    alarms->timer_ns = due_ns;
    uv_update_time(alarms->timer.loop); /* the loop's idea of now is that of when it last slept */
    uv_timer_start(&alarms->timer, on_timer, delay_ns / NS_PER_MS + 1, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct alarms *alarms = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct deadline *due;
    alarms->timer_ns = UINT64_MAX;
    while ((due = deadlines_take_due(&alarms->heap, now_ns))) {
        struct alarm *alarm =
            (struct alarm *)(void *)((char *)due - offsetof(struct alarm, deadline));
        alarm->ring(alarm);
    }
    wake_at(alarms, deadlines_next_ns(&alarms->heap));
}

bool alarm_set(struct alarms *alarms, struct alarm *alarm, uint64_t due_ns) {
    if (!deadlines_set(&alarms->heap, &alarm->deadline, due_ns)) {
        return false;
    }
    wake_at(alarms, due_ns);
    return true;
}

void alarm_clear(struct alarms *alarms, struct alarm *alarm) {
    deadlines_remove(&alarms->heap, &alarm->deadline);
}

int alarms_init(struct alarms *alarms, uv_loop_t *loop) {
    *alarms = (struct alarms){.timer_ns = UINT64_MAX};
    int rc = uv_timer_init(loop, &alarms->timer);
    alarms->timer.data = alarms;
    return rc;
}

void alarms_close(struct alarms *alarms) {
    uv_close((uv_handle_t *)&alarms->timer, NULL);
}

void alarms_fini(struct alarms *alarms) {
    assert(alarms->heap.n == 0); /* whatever it is in would be gone */
    deadlines_fini(&alarms->heap);
}
