/* The event heap. */
#include "events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const void *sim_find(const void *rows, size_t n, size_t row_bytes, const char *name) {
    for (size_t i = 0; i < n; i++) {
        const char *row = (const char *)rows + i * row_bytes;
        const char *own;
        memcpy(&own, row, sizeof(own));
        if (strcmp(own, name) == 0) {
            return row;
        }
    }
    return NULL;
}

void sim_no_memory(void) {
    fprintf(stderr, "simulate: no memory for so many servers and seconds\n");
    exit(1);
}

void sim_events_fini(struct sim_events *events) {
    free(events->heap);
    *events = (struct sim_events){.n = 0};
}

static bool is_before(const struct sim_event *a, const struct sim_event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_events_add(struct sim_events *events, uint64_t at_ns, enum sim_event_kind kind,
                    uint32_t index) {
    struct sim_event event = {at_ns, events->n_added++, kind, index};
    if (events->n == events->cap) {
        events->cap = events->cap > 0 ? 2 * events->cap : 256;
        events->heap = realloc(events->heap, events->cap * sizeof(event));
        if (!events->heap) {
            sim_no_memory();
        }
    }
    size_t at = events->n++;
    for (; at > 0 && is_before(&event, &events->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        events->heap[at] = events->heap[(at - 1) / 2];
    }
    events->heap[at] = event;
}

bool sim_events_next(struct sim_events *events, struct sim_event *out) {
    if (events->n == 0) {
        return false;
    }
    *out = events->heap[0];
    struct sim_event last = events->heap[--events->n];
    size_t at = 0, child = 1;
    for (; child < events->n; at = child, child = 2 * at + 1) {
        if (child + 1 < events->n && is_before(&events->heap[child + 1], &events->heap[child])) {
            child++;
        }
        if (!is_before(&events->heap[child], &last)) {
            break;
        }
        events->heap[at] = events->heap[child];
    }
    events->heap[at] = last;
    return true;
}
