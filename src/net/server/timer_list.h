/* Deadlines of many things at the cost of a list: things of one class all wait equally long, so a
 * list of each class in the order of arming is in the order of time too. Sans I/O: who has a clock
 * passes the time in. */
#ifndef SLUICE_NET_SERVER_TIMER_LIST_H
#define SLUICE_NET_SERVER_TIMER_LIST_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
