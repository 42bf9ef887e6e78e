/* Lists of deadlines, one for each class. */
#include "net/server/timeouts.h"

#include <assert.h>
#include <stddef.h>

void timeouts_disarm(struct timeouts *timeouts, struct timeout *timeout) {
    if (!timeout->armed) {
        return;
    }
    struct timeout **before =
        timeout->prev ? &timeout->prev->next : &timeouts->first[timeout->klass];
    struct timeout **behind =
        timeout->next ? &timeout->next->prev : &timeouts->last[timeout->klass];
    *before = timeout->next;
    *behind = timeout->prev;
    timeout->armed = false;
}

void timeouts_arm(struct timeouts *timeouts, struct timeout *timeout, uint8_t klass,
                  uint64_t now_ns) {
    assert(klass < TIMEOUTS_MOST_CLASSES);
    timeouts_disarm(timeouts, timeout);
    uint64_t after_ns = timeouts->after_ns[klass];
    if (after_ns == 0 || after_ns > UINT64_MAX - now_ns) {
        return;
    }
    timeout->due_ns = now_ns + after_ns;
    timeout->klass = klass;
    timeout->armed = true;
    timeout->next = NULL;
    timeout->prev = timeouts->last[klass];
    if (timeout->prev) {
        timeout->prev->next = timeout;
    } else {
        timeouts->first[klass] = timeout;
    }
    timeouts->last[klass] = timeout;
}

struct timeout *timeouts_take_due(struct timeouts *timeouts, uint64_t now_ns) {
    for (unsigned i = 0; i < TIMEOUTS_MOST_CLASSES; i++) {
        struct timeout *first = timeouts->first[i];
        if (first && first->due_ns <= now_ns) {
            timeouts_disarm(timeouts, first);
            return first;
        }
    }
    return NULL;
}

uint64_t timeouts_next_ns(const struct timeouts *timeouts) {
    uint64_t next_ns = UINT64_MAX;
    for (unsigned i = 0; i < TIMEOUTS_MOST_CLASSES; i++) {
        const struct timeout *first = timeouts->first[i];
        if (first && first->due_ns < next_ns) {
            next_ns = first->due_ns;
        }
    }
    return next_ns;
}
