/* A binary heap whose members know their place, so that any of them can be taken out. */
#include "core/event/deadlines.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64 };

static void put(struct deadlines *deadlines, struct deadline *deadline, size_t place) {
    deadlines->heap[place - 1] = deadline;
    deadline->place = place;
}

static struct deadline *at(const struct deadlines *deadlines, size_t place) {
    return deadlines->heap[place - 1];
}

static void rise(struct deadlines *deadlines, struct deadline *deadline, size_t place) {
    while (place > 1 && at(deadlines, place / 2)->due_ns > deadline->due_ns) {
        put(deadlines, at(deadlines, place / 2), place);
        place /= 2;
    }
    put(deadlines, deadline, place);
}

static void sink(struct deadlines *deadlines, struct deadline *deadline, size_t place) {
    for (size_t child = place * 2; child <= deadlines->n; child = place * 2) {
        if (child < deadlines->n &&
            at(deadlines, child + 1)->due_ns < at(deadlines, child)->due_ns) {
            child++;
        }
        if (at(deadlines, child)->due_ns >= deadline->due_ns) {
            break;
        }
        put(deadlines, at(deadlines, child), place);
        place = child;
    }
    put(deadlines, deadline, place);
}

void deadlines_fini(struct deadlines *deadlines) {
    free(deadlines->heap);
    *deadlines = (struct deadlines){0};
}

void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline) {
    size_t place = deadline->place;
    if (place == 0) {
        return;
    }
    struct deadline *last = at(deadlines, deadlines->n--);
    deadline->place = 0;
    if (last != deadline) { /* it may belong above or below the gap */
        rise(deadlines, last, place);
        sink(deadlines, last, last->place);
    }
}

bool deadlines_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t due_ns) {
    deadlines_remove(deadlines, deadline);
    if (deadlines->n == deadlines->cap) {
        size_t cap = deadlines->cap ? deadlines->cap * 2 : FIRST_ROOM;
        struct deadline **heap = realloc(deadlines->heap, cap * sizeof(struct deadline *));
        if (!heap) {
            return false;
        }
        deadlines->heap = heap;
        deadlines->cap = cap;
    }
    deadline->due_ns = due_ns;
    rise(deadlines, deadline, ++deadlines->n);
    return true;
}

struct deadline *deadlines_take_due(struct deadlines *deadlines, uint64_t now_ns) {
    if (deadlines->n == 0 || at(deadlines, 1)->due_ns > now_ns) {
        return NULL;
    }
    struct deadline *first = at(deadlines, 1);
    deadlines_remove(deadlines, first);
    return first;
}

uint64_t deadlines_next_ns(const struct deadlines *deadlines) {
    return deadlines->n == 0 ? UINT64_MAX : at(deadlines, 1)->due_ns;
}
