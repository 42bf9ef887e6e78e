/* Deadlines of many things that each end at a time of their own: a heap. Sans I/O: who has a clock
 * passes the time in. (Where all wait equally long, a list is cheaper: net/server/timeouts.h.)
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_EVENT_DEADLINES_H
#define SLUICE_CORE_EVENT_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in what has a deadline. Zeroed memory is in no heap. */
struct deadline {
    uint64_t due_ns;
    size_t place; /* in the heap, from 1; 0: in none */
};

/* Zeroed memory is an empty heap. */
struct deadlines {
    struct deadline **heap;
    size_t n, cap;
};

void deadlines_fini(struct deadlines *deadlines);
/* Puts it in, or moves it. Returns: false when out of memory; it is then in none. */
bool deadlines_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t due_ns)
    __attribute__((warn_unused_result));
/* One that is in none is left alone. */
void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline);
/* Returns: one whose time has come, taken out; NULL when there is none (any more). */
struct deadline *deadlines_take_due(struct deadlines *deadlines, uint64_t now_ns);
/* Returns: when the first one is due; UINT64_MAX: never. */
uint64_t deadlines_next_ns(const struct deadlines *deadlines);

#endif
