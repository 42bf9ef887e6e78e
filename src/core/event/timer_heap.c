/* A binary heap in an array that grows. */
#include "core/event/timer_heap.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 8 };

static void heap_store(struct timer_heap *heap, struct timer_node *node, size_t index) {
    heap->nodes[index - 1] = node;
    node->heap_index = index;
}

static struct timer_node *heap_at(const struct timer_heap *heap, size_t index) {
    return heap->nodes[index - 1];
}

static void heap_sift_up(struct timer_heap *heap, struct timer_node *node, size_t index) {
    while (index > 1 && heap_at(heap, index / 2)->due_ns > node->due_ns) {
        heap_store(heap, heap_at(heap, index / 2), index);
        index /= 2;
    }
    heap_store(heap, node, index);
}

static void heap_sift_down(struct timer_heap *heap, struct timer_node *node, size_t index) {
    for (size_t child = index * 2; child <= heap->n; child = index * 2) {
        if (child < heap->n && heap_at(heap, child + 1)->due_ns < heap_at(heap, child)->due_ns) {
            child++;
        }
        if (heap_at(heap, child)->due_ns >= node->due_ns) {
            break;
        }
        heap_store(heap, heap_at(heap, child), index);
        index = child;
    }
    heap_store(heap, node, index);
}

void timer_heap_fini(struct timer_heap *heap) {
    free(heap->nodes);
    *heap = (struct timer_heap){0};
}

void timer_heap_remove(struct timer_heap *heap, struct timer_node *node) {
    size_t index = node->heap_index;
    if (index == 0) {
        return;
    }
    struct timer_node *last = heap_at(heap, heap->n--);
    node->heap_index = 0;
    if (last != node) { /* it may belong above or below the gap */
        heap_sift_up(heap, last, index);
        heap_sift_down(heap, last, last->heap_index);
    }
}

bool timer_heap_set(struct timer_heap *heap, struct timer_node *node, uint64_t due_ns) {
    timer_heap_remove(heap, node);
    if (heap->n == heap->cap) {
        size_t cap = heap->cap ? heap->cap * 2 : FIRST_CAPACITY;
        struct timer_node **nodes = realloc(heap->nodes, cap * sizeof(struct timer_node *));
        if (!nodes) {
            return false;
        }
        heap->nodes = nodes;
        heap->cap = cap;
    }
    node->due_ns = due_ns;
    heap_sift_up(heap, node, ++heap->n);
    return true;
}

struct timer_node *timer_heap_pop_due(struct timer_heap *heap, uint64_t now_ns) {
    if (heap->n == 0 || heap_at(heap, 1)->due_ns > now_ns) {
        return NULL;
    }
    struct timer_node *first = heap_at(heap, 1);
    timer_heap_remove(heap, first);
    return first;
}

uint64_t timer_heap_next_ns(const struct timer_heap *heap) {
    return heap->n == 0 ? UINT64_MAX : heap_at(heap, 1)->due_ns;
}
