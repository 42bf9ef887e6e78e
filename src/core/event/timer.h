/* Timers of the monotonic clock, in three forms. A timer_heap orders timers that each have a due
 * time of their own; a timer_list is cheaper where all timers of a class wait equally long. Both
 * are sans I/O: the caller passes the time in and collects the due timers. A worker's loop_timers
 * are a heap with one timer of libuv, so that starting a timer costs no system call; a timer
 * expires within two milliseconds of its due time, or as soon as the worker is free.
 *
 * Thread: one at a time; the worker's for its loop_timers. */
#ifndef SLUICE_CORE_EVENT_TIMER_H
#define SLUICE_CORE_EVENT_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* ---- heap ------------------------------------------------------------------------------------ */

/* Embedded in what has a deadline. Zeroed memory is in no heap. */
struct timer_node {
    uint64_t due_ns;
    size_t heap_index; /* in the heap, from 1; 0: in none */
};

/* Zeroed memory is an empty heap. */
struct timer_heap {
    struct timer_node **nodes;
    size_t n, cap;
};

void timer_heap_fini(struct timer_heap *heap);
/* Puts it in, or moves it. Returns: false when out of memory; it is then in none. */
bool timer_heap_set(struct timer_heap *heap, struct timer_node *node, uint64_t due_ns)
    __attribute__((warn_unused_result));
/* One that is in none is left alone. */
void timer_heap_remove(struct timer_heap *heap, struct timer_node *node);
/* Returns: one whose time has come, taken out; NULL when there is none (any more). */
struct timer_node *timer_heap_pop_due(struct timer_heap *heap, uint64_t now_ns);
/* Returns: when the first one is due; UINT64_MAX: never. */
uint64_t timer_heap_next_ns(const struct timer_heap *heap);

/* ---- list ------------------------------------------------------------------------------------ */

enum { TIMER_LIST_MAX_CLASSES = 8 };

/* Embedded in what has a deadline. Zeroed memory is not armed. */
struct list_timer {
    struct list_timer *prev, *next;
    uint64_t due_ns;
    uint8_t timer_class; /* valid while armed */
    bool armed;
};

struct timer_list {
    struct list_timer *first[TIMER_LIST_MAX_CLASSES];
    struct list_timer *last[TIMER_LIST_MAX_CLASSES];
    uint64_t after_ns[TIMER_LIST_MAX_CLASSES]; /* set by the owner; 0: that class never ends */
};

/* `after_ns` of the class from now; moves one that is armed already. */
void timer_list_start(struct timer_list *timers, struct list_timer *timer, uint8_t timer_class,
                      uint64_t now_ns);
/* One that is not armed is left alone. */
void timer_list_stop(struct timer_list *timers, struct list_timer *timer);
/* Returns: one whose time has come, disarmed; NULL when there is none (any more). */
struct list_timer *timer_list_pop_due(struct timer_list *timers, uint64_t now_ns);
/* Returns: when the next one is due; UINT64_MAX: never. */
uint64_t timer_list_next_ns(const struct timer_list *timers);

/* ---- a worker's timers ----------------------------------------------------------------------- */

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
