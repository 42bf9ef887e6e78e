/* Alarms: things that a worker does at a time of the monotonic clock, unless they are called off
 * before. Each worker has a heap of them behind one timer of its loop, so that setting one costs no
 * system call. They ring within two milliseconds of their time, or as soon as the worker is free.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_EVENT_TIMER_H
#define SLUICE_CORE_EVENT_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/event/timer_heap.h"

/* Embedded in what has one. Zeroed but for `ring`, it is not set. */
struct timer {
    struct timer_node node;
    void (*on_expire)(struct timer *timer); /* the alarm is off by then; may set it again, or free
                                               it */
};

/* A worker's. */
struct loop_timers {
    struct timer_heap heap;
    uv_timer_t uv_timer;
    uint64_t wakeup_ns; /* when the timer looks at the heap; UINT64_MAX: not at all */
};

/* Sets it, or moves it. Returns: false when out of memory; it is off then. */
bool timer_start(struct loop_timers *timers, struct timer *timer, uint64_t due_ns)
    __attribute__((warn_unused_result));
/* One that is off is left alone. */
void timer_stop(struct loop_timers *timers, struct timer *timer);

/* For worker.c. Returns: an error of libuv, or 0. */
int loop_timers_init(struct loop_timers *timers, uv_loop_t *loop)
    __attribute__((warn_unused_result));
/* Closes the timer: the loop must run once more before loop_timers_fini. */
void loop_timers_close(struct loop_timers *timers);
void loop_timers_fini(struct loop_timers *timers);

#endif
