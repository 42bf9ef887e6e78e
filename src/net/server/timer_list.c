/* Lists of deadlines, one for each class. */
#include "net/server/timer_list.h"

#include <assert.h>
#include <stddef.h>

void timer_list_stop(struct timer_list *timers, struct list_timer *timer) {
    if (!timer->armed) {
        return;
    }
    struct list_timer **before =
        timer->prev ? &timer->prev->next : &timers->first[timer->timer_class];
    struct list_timer **behind =
        timer->next ? &timer->next->prev : &timers->last[timer->timer_class];
    *before = timer->next;
    *behind = timer->prev;
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
    timer->next = NULL;
    timer->prev = timers->last[timer_class];
    if (timer->prev) {
        timer->prev->next = timer;
    } else {
        timers->first[timer_class] = timer;
    }
    timers->last[timer_class] = timer;
}

struct list_timer *timer_list_pop_due(struct timer_list *timers, uint64_t now_ns) {
    for (unsigned i = 0; i < TIMER_LIST_MAX_CLASSES; i++) {
        struct list_timer *first = timers->first[i];
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
        const struct list_timer *first = timers->first[i];
        if (first && first->due_ns < next_ns) {
            next_ns = first->due_ns;
        }
    }
    return next_ns;
}
