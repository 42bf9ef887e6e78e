/* The position of a new call is found through the last call of each class before its own, as there
 * are few classes. */
#include "serve/scheduler/priority_queue.h"

#include <assert.h>

enum status priority_queue_init(struct priority_queue *queue, struct arena *arena, size_t n_levels,
                                struct error *err) {
    *queue = (struct priority_queue){
        .n_levels = n_levels,
        .classes = arena_calloc(arena, n_levels, 2 * sizeof(*queue->classes))};
    TAILQ_INIT(&queue->calls);
    if (!queue->classes) {
        return error_no_memory(err, "a queue of %zu priorities", n_levels);
    }
    return ST_OK;
}

static size_t class_of(const struct call *call) {
    return call->run->queue_deadline.level * 2 + (call->run->queue_deadline.deprioritized ? 1 : 0);
}

void priority_queue_add(struct priority_queue *queue, struct call *call) {
    size_t class = class_of(call);
    assert(class < queue->n_levels * 2);
    size_t from = class; /* or an earlier one, whose last call is before it */
    while (from > 0 && !queue->classes[from].last) {
        from--;
    }
    struct call *before = queue->classes[from].last;
    if (before) {
        TAILQ_INSERT_AFTER(&queue->calls, before, call, run->queue_link);
    } else {
        TAILQ_INSERT_HEAD(&queue->calls, call, run->queue_link);
    }
    queue->classes[class].last = call;
    queue->classes[class].n++;
    queue->n++;
}

void priority_queue_remove(struct priority_queue *queue, struct call *call) {
    struct priority_class *class = &queue->classes[class_of(call)];
    class->n--;
    queue->n--;
    if (class->last == call) {
        class->last = class->n > 0 ? TAILQ_PREV(call, call_list, run->queue_link) : NULL;
    }
    TAILQ_REMOVE(&queue->calls, call, run->queue_link);
}

size_t priority_queue_count_level(const struct priority_queue *queue, size_t level) {
    return queue->classes[level * 2].n + queue->classes[level * 2 + 1].n;
}

/* Within a class the first call is the oldest; it follows the last one of the class before. */
uint64_t priority_queue_oldest_ns(const struct priority_queue *queue, uint64_t now_ns) {
    const struct call *before = NULL;
    uint64_t oldest_ns = now_ns;
    for (size_t i = 0; i < 2 * queue->n_levels; i++) {
        const struct call *last = queue->classes[i].last;
        if (last) {
            const struct call *first =
                before ? TAILQ_NEXT(before, run->queue_link) : TAILQ_FIRST(&queue->calls);
            oldest_ns = first->queued_ns < oldest_ns ? first->queued_ns : oldest_ns;
            before = last;
        }
    }
    return oldest_ns;
}
