/* Timers of the monotonic clock in a heap, ordered by due times of their own. Sans I/O: the caller
 * passes the time in and collects the due timers.
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_EVENT_TIMER_HEAP_H
#define SLUICE_CORE_EVENT_TIMER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/compiler.h"

/* Embed it in the object that has a due time. Zeroed memory is in no heap. */
struct timer_node {
    uint64_t due_ns;
    size_t heap_index; /* its index in the heap, from 1; 0: in none */
};

/* Zeroed memory is an empty heap. */
struct timer_heap {
    struct timer_node **nodes;
    size_t n, cap;
};

/* Frees the heap's array; timers in it are not touched. */
void timer_heap_fini(struct timer_heap *heap);
/* Adds the timer, or moves it to another due time. Returns: false when out of memory; it is in no
 * heap then. */
bool timer_heap_set(struct timer_heap *heap, struct timer_node *node,
                    uint64_t due_ns) SLUICE_MUST_USE;
/* A timer that is in no heap is left alone. */
void timer_heap_remove(struct timer_heap *heap, struct timer_node *node);
/* Returns: a timer that is due, removed from the heap; NULL when none is (left). */
struct timer_node *timer_heap_pop_due(struct timer_heap *heap, uint64_t now_ns);
/* Returns: the first timer, which stays in the heap; NULL when it is empty. */
static inline struct timer_node *timer_heap_first(const struct timer_heap *heap) {
    return heap->n > 0 ? heap->nodes[0] : NULL;
}
/* Returns: when the first timer is due; UINT64_MAX when there is none. */
uint64_t timer_heap_next_ns(const struct timer_heap *heap);

#endif
