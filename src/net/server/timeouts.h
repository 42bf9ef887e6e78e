/* Deadlines of many things at the cost of a list: things of one class all wait equally long, so a
 * list of each class in the order of arming is in the order of time too. Sans I/O: who has a clock
 * passes the time in. */
#ifndef SLUICE_NET_SERVER_TIMEOUTS_H
#define SLUICE_NET_SERVER_TIMEOUTS_H

#include <stdbool.h>
#include <stdint.h>

enum { TIMEOUTS_MOST_CLASSES = 8 };

/* Embedded in what has a deadline. Zeroed memory is not armed. */
struct timeout {
    struct timeout *prev, *next;
    uint64_t due_ns;
    uint8_t klass; /* valid while armed */
    bool armed;
};

struct timeouts {
    struct timeout *first[TIMEOUTS_MOST_CLASSES];
    struct timeout *last[TIMEOUTS_MOST_CLASSES];
    uint64_t after_ns[TIMEOUTS_MOST_CLASSES]; /* set by the owner; 0: that class never ends */
};

/* `after_ns` of the class from now; moves one that is armed already. */
void timeouts_arm(struct timeouts *timeouts, struct timeout *timeout, uint8_t klass,
                  uint64_t now_ns);
/* One that is not armed is left alone. */
void timeouts_disarm(struct timeouts *timeouts, struct timeout *timeout);
/* Returns: one whose time has come, disarmed; NULL when there is none (any more). */
struct timeout *timeouts_take_due(struct timeouts *timeouts, uint64_t now_ns);
/* Returns: when the next one is due; UINT64_MAX: never. */
uint64_t timeouts_next_ns(const struct timeouts *timeouts);

#endif
