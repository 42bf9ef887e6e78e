/* A list in the order of service. To find where a call belongs is a look at the marks of the
 * classes before its own: there are few. */
#include "serve/scheduler/queue.h"

#include <assert.h>

enum status queue_init(struct queue *queue, struct arena *arena, size_t n_levels,
                       struct error *err) {
    *queue = (struct queue){.n_levels = n_levels,
                            .classes = arena_calloc(arena, n_levels, 2 * sizeof(*queue->classes))};
    if (!queue->classes) {
        return error_set(err, ST_NO_MEMORY, "out of memory for a queue of %zu priorities",
                         n_levels);
    }
    return ST_OK;
}

static size_t class_of(const struct call *call) {
    return call->patience.level * 2 + (call->patience.yielded ? 1 : 0);
}

/* The last call that is served before the end of that class; NULL: there is none. */
static struct call *last_until(const struct queue *queue, size_t class) {
    while (class > 0 && !queue->classes[class].last) {
        class --;
    }
    return queue->classes[class].last;
}

void queue_add(struct queue *queue, struct call *call) {
    size_t class = class_of(call);
    assert(class < queue->n_levels * 2);
    struct call *before = last_until(queue, class);
    call->prev = before;
    call->next = before ? before->next : queue->first;
    if (before) {
        before->next = call;
    } else {
        queue->first = call;
    }
    if (call->next) {
        call->next->prev = call;
    }
    queue->classes[class].last = call;
    queue->classes[class].n++;
    queue->n++;
}

void queue_remove(struct queue *queue, struct call *call) {
    struct queue_class *class = &queue->classes[class_of(call)];
    if (call->prev) {
        call->prev->next = call->next;
    } else {
        queue->first = call->next;
    }
    if (call->next) {
        call->next->prev = call->prev;
    }
    class->n--;
    queue->n--;
    if (class->last == call) {
        class->last = class->n > 0 ? call->prev : NULL;
    }
    call->next = call->prev = NULL;
}

size_t queue_at_level(const struct queue *queue, size_t level) {
    return queue->classes[level * 2].n + queue->classes[level * 2 + 1].n;
}
