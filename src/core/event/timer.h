/* Timers of the monotonic clock beside those of timer_heap.h, in two forms. A timer_list is cheaper
 * than a heap where all timers of a class wait equally long; it is sans I/O: the caller passes the
 * time in and collects the due timers. A worker's loop_timers are a heap that drives one timer of
 * libuv, which is restarted only for an earlier due time and
 * never for a stopped timer: most timers are stopped before they expire, and looking at the heap in
 * vain is cheaper. They expire within two milliseconds of their due time, or as soon as the worker
 * is free; of many that are due at once, some in each iteration (LOOP_TIMERS_NS).
 *
 * Thread: one at a time; the worker's for its loop_timers. */
#ifndef SLUICE_CORE_EVENT_TIMER_H
#define SLUICE_CORE_EVENT_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "core/base/compiler.h"
#include "core/event/timer_heap.h"

/* ---- list ------------------------------------------------------------------------------------ */

enum { TIMER_LIST_MAX_CLASSES = 9 };

/* Embed it in the object that has a timeout. Zeroed memory is not armed. */
struct list_timer {
    TAILQ_ENTRY(list_timer) link;
    uint64_t due_ns;
    uint8_t timer_class; /* valid while armed */
    bool armed;
};

struct timer_list {
    TAILQ_HEAD(, list_timer) classes[TIMER_LIST_MAX_CLASSES]; /* in order of their due times */
    uint64_t after_ns[TIMER_LIST_MAX_CLASSES]; /* the timeout of each class, set by the owner; 0:
                                                  its timers never expire */
};

/* Makes the list empty; leaves `after_ns`. */
void timer_list_init(struct timer_list *timers);
/* Arms the timer for the timeout of its class from `now_ns`; moves one that is armed already. */
void timer_list_start(struct timer_list *timers, struct list_timer *timer, uint8_t timer_class,
                      uint64_t now_ns);
/* A timer that is not armed is left alone. */
void timer_list_stop(struct timer_list *timers, struct list_timer *timer);
/* Returns: a timer that is due, disarmed; NULL when none is (left). */
struct list_timer *timer_list_pop_due(struct timer_list *timers, uint64_t now_ns);
/* Returns: when the next timer is due; UINT64_MAX when none is armed. */
uint64_t timer_list_next_ns(const struct timer_list *timers);

/* Returns: whether the process was stopped or held up (SIGSTOP, a throttled control group, a
 * migrated machine) so long that a peer may have sent meanwhile what a timer is about to miss. The
 * loop then polls once more before it runs timers: late_timer_check. */
static inline bool timer_is_late(uint64_t due_ns, uint64_t now_ns) {
    const uint64_t late_ns = 100000000u;
    return now_ns > due_ns && now_ns - due_ns > late_ns;
}

struct loop_iteration;

/* Of a timer of a loop. Zeroed, it does not wait. */
struct late_timer {
    bool waits;
    uint64_t n_polls; /* when it began to wait */
};
enum late_timer_result {
    TIMER_IN_TIME,
    TIMER_WAITS_FOR_POLL, /* the caller sets it for now: it may expire again before the poll, with
                           * other timers of the loop */
    TIMER_AFTER_POLL,
};
/* The timer, which was due at `due_ns`, has expired. `iteration` NULL: the next time is after a
 * poll. */
enum late_timer_result late_timer_check(struct late_timer *late,
                                        const struct loop_iteration *iteration, uint64_t due_ns,
                                        uint64_t now_ns);

/* ---- a worker's timers ----------------------------------------------------------------------- */

/* Embed it in the object that has a timer. Zeroed but for `on_expire`, it is stopped. */
struct timer {
    struct timer_node node;
    LIST_ENTRY(timer) beside_link;
    bool is_beside;                         /* it is in loop_timers.beside */
    void (*on_expire)(struct timer *timer); /* the timer is stopped by then; may start it again,
                                               or free the object */
};

/* The timers of a worker. */
struct loop_timers {
    struct timer_heap heap;
    LIST_HEAD(, timer) beside; /* that the heap had no memory for; in no order */
    uv_timer_t uv_timer;
    uint64_t wakeup_ns; /* when uv_timer expires; UINT64_MAX: it is stopped */
    struct late_timer late;
    struct loop_iteration *iteration; /* of which timers have a share; NULL: no limit */
};

/* Starts the timer, or moves it to another due time. Never fails: what waits for a timer would wait
 * for ever. */
void timer_start(struct loop_timers *timers, struct timer *timer, uint64_t due_ns);
/* A timer that is stopped is left alone. */
void timer_stop(struct loop_timers *timers, struct timer *timer);

static inline bool timer_is_started(const struct timer *timer) {
    return timer->node.heap_index > 0 || timer->is_beside;
}

/* For worker.c. Returns: 0, or an error of libuv. */
int loop_timers_init(struct loop_timers *timers, uv_loop_t *loop,
                     struct loop_iteration *iteration) SLUICE_MUST_USE;
/* Closes the timer: the loop must run once more before loop_timers_fini. */
void loop_timers_close(struct loop_timers *timers);
void loop_timers_fini(struct loop_timers *timers);

#endif
