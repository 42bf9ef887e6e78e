/* Alarms: things that a worker does at a time of the monotonic clock, unless they are called off
 * before. Each worker has a heap of them behind one timer of its loop, so that setting one costs no
 * system call. They ring within two milliseconds of their time, or as soon as the worker is free.
 *
 * Thread: the worker's, for everything. */
#ifndef SLUICE_CORE_EVENT_ALARM_H
#define SLUICE_CORE_EVENT_ALARM_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/event/deadlines.h"

/* Embedded in what has one. Zeroed but for `ring`, it is not set. */
struct alarm {
    struct deadline deadline;
    void (*ring)(struct alarm *alarm); /* the alarm is off by then; may set it again, or free it */
};

/* A worker's. */
struct alarms {
    struct deadlines heap;
    uv_timer_t timer;
    uint64_t timer_ns; /* when the timer looks at the heap; UINT64_MAX: not at all */
};

/* Sets it, or moves it. Returns: false when out of memory; it is off then. */
bool alarm_set(struct alarms *alarms, struct alarm *alarm, uint64_t due_ns)
    __attribute__((warn_unused_result));
/* One that is off is left alone. */
void alarm_clear(struct alarms *alarms, struct alarm *alarm);

/* For worker.c. Returns: an error of libuv, or 0. */
int alarms_init(struct alarms *alarms, uv_loop_t *loop) __attribute__((warn_unused_result));
/* Closes the timer: the loop must run once more before alarms_fini. */
void alarms_close(struct alarms *alarms);
void alarms_fini(struct alarms *alarms);

#endif
