/* Deadlines of many things that each end at a time of their own: a heap. Sans I/O: who has a clock
 * passes the time in. (Where all wait equally long, a list is cheaper: net/server/timer_list.h.)
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_EVENT_TIMER_HEAP_H
#define SLUICE_CORE_EVENT_TIMER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
