/* Bands are a list, ids of a band a ring, items of an id a line; ids are found in a table. */
#include "pick/pool/flow/flow.h"

#include <assert.h>
#include <stdlib.h>

/* Of one band. Those for which something is queued stand in its ring, the one whose turn it is
 * first. */
struct flow_id {
    struct keyed_hash hash;
    struct flow_band *band;
    struct flow_id *next_in_slot;
    struct flow_id *before, *after; /* in the ring; NULL: not in it */
    struct flow_item *first, *last; /* the line */
    size_t n_items;                 /* queued or called; without any it goes */
};

struct flow_band {
    struct flow_band *next; /* with a lower priority */
    int64_t priority;
    struct flow_id *turn; /* the first of the ring; NULL: nothing is queued */
    uint64_t n_waiting, n_bytes;
    size_t n_ids;
    uint64_t n_full;
    struct metric_histogram waited[FLOW_OUTCOMES];
};

enum { FIRST_SLOTS = 64 };

void flow_init(struct flow *flow) {
    *flow = (struct flow){.bands = NULL};
    hash_key_init(&flow->key);
}

void flow_fini(struct flow *flow) {
    assert(flow->n_queued + flow->n_called == 0 && flow->n_ids == 0);
    while (flow->bands) {
        struct flow_band *band = flow->bands;
        flow->bands = band->next;
        free(band);
    }
    free(flow->slots);
}

/* ---- bands ----------------------------------------------------------------------------------- */

static struct flow_band *find_band(const struct flow *flow, int64_t priority) {
    struct flow_band *band = flow->bands;
    while (band && band->priority > priority) {
        band = band->next;
    }
    return band && band->priority == priority ? band : NULL;
}

/* Returns: NULL when out of memory. */
static struct flow_band *need_band(struct flow *flow, int64_t priority) {
    struct flow_band **link = &flow->bands;
    while (*link && (*link)->priority > priority) {
        link = &(*link)->next;
    }
    if (*link && (*link)->priority == priority) {
        return *link;
    }
    struct flow_band *band = calloc(1, sizeof(*band));
    if (band) {
        band->priority = priority;
        band->next = *link;
        *link = band;
    }
    return band;
}

void flow_forget(struct flow *flow, bool (*keep)(const void *context, int64_t priority),
                 const void *context) {
    struct flow_band **link = &flow->bands;
    while (*link) {
        struct flow_band *band = *link;
        if (band->n_waiting > 0 || keep(context, band->priority)) {
            link = &band->next;
        } else {
            *link = band->next;
            free(band);
        }
    }
}

bool flow_count_full(struct flow *flow, int64_t priority) {
    struct flow_band *band = need_band(flow, priority);
    if (band) {
        band->n_full++;
    }
    return band != NULL;
}

static const struct flow_band_limits *limits_of(const struct flow_limits *limits,
                                                int64_t priority) {
    for (size_t i = 0; i < limits->n_bands; i++) {
        if (limits->bands[i].priority == priority) {
            return &limits->bands[i];
        }
    }
    return NULL;
}

enum flow_full flow_check(const struct flow *flow, const struct flow_limits *limits,
                          int64_t priority, uint64_t n_bytes) {
    const struct flow_band *band = find_band(flow, priority);
    const struct flow_band_limits *own = limits_of(limits, priority);
    if (flow->n_queued + flow->n_called >= limits->max_requests) {
        return FLOW_FULL_REQUESTS;
    }
    if (flow->n_bytes > limits->max_bytes || n_bytes > limits->max_bytes - flow->n_bytes) {
        return FLOW_FULL_BYTES;
    }
    uint64_t others = limits->max_of_others > 0 ? limits->max_of_others : UINT64_MAX;
    uint64_t most = own ? own->max_requests : others;
    return (band ? band->n_waiting : 0) >= most ? FLOW_FULL_BAND : FLOW_FITS;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static struct flow_id **slot_of(const struct flow *flow, struct keyed_hash hash) {
    return &flow->slots[hash.low & flow->slots_mask];
}

/* Returns: false when there is no table, and no memory for one; one that can't grow goes on as it
 * is. */
static bool make_slots(struct flow *flow) {
    size_t n_old = flow->slots ? flow->slots_mask + 1 : 0;
    if (flow->n_ids < n_old) {
        return true;
    }
    size_t n = n_old > 0 ? 2 * n_old : FIRST_SLOTS;
    struct flow_id **old = flow->slots, **slots = calloc(n, sizeof(struct flow_id *));
    if (!slots) {
        return old != NULL;
    }
    flow->slots = slots;
    flow->slots_mask = n - 1;
    for (size_t i = 0; i < n_old; i++) {
        for (struct flow_id *id = old[i], *next; id; id = next) {
            struct flow_id **slot = slot_of(flow, id->hash);
            next = id->next_in_slot;
            id->next_in_slot = *slot;
            *slot = id;
        }
    }
    free(old);
    return true;
}

/* Returns: NULL when out of memory. */
static struct flow_id *need_id(struct flow *flow, struct flow_band *band, struct str fairness) {
    struct keyed_hash hash = keyed_hash_of(&flow->key, fairness);
    if (!make_slots(flow)) {
        return NULL;
    }
    for (struct flow_id *id = *slot_of(flow, hash); id; id = id->next_in_slot) {
        if (id->band == band && keyed_hash_equal(id->hash, hash)) {
            return id;
        }
    }
    struct flow_id *id = calloc(1, sizeof(*id));
    if (id) {
        struct flow_id **slot = slot_of(flow, hash);
        id->hash = hash;
        id->band = band;
        id->next_in_slot = *slot;
        *slot = id;
        flow->n_ids++;
        band->n_ids++;
    }
    return id;
}

static void drop_id(struct flow *flow, struct flow_id *id) {
    struct flow_id **link = slot_of(flow, id->hash);
    while (*link != id) {
        link = &(*link)->next_in_slot;
    }
    *link = id->next_in_slot;
    id->band->n_ids--;
    flow->n_ids--;
    free(id);
}

/* ---- the ring -------------------------------------------------------------------------------- */

/* At its end. */
static void enter_ring(struct flow_id *id) {
    struct flow_band *band = id->band;
    if (!band->turn) {
        band->turn = id->before = id->after = id;
        return;
    }
    id->after = band->turn;
    id->before = band->turn->before;
    id->before->after = id->after->before = id;
}

static void leave_ring(struct flow_id *id) {
    struct flow_band *band = id->band;
    if (id->after == id) {
        band->turn = NULL;
    } else {
        id->before->after = id->after;
        id->after->before = id->before;
        band->turn = band->turn == id ? id->after : band->turn;
    }
    id->before = id->after = NULL;
}

/* ---- the line -------------------------------------------------------------------------------- */

/* Among those of its id, by the order of arrival; from the front, where one that is put back
 * belongs. */
static void enter_line(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    struct flow_item *after = id->first;
    if (!after) {
        enter_ring(id);
    }
    if (id->last && id->last->number < item->number) {
        after = NULL;
    }
    while (after && after->number < item->number) {
        after = after->after;
    }
    item->after = after;
    item->before = after ? after->before : id->last;
    *(item->before ? &item->before->after : &id->first) = item;
    *(after ? &after->before : &id->last) = item;
    item->state = FLOW_QUEUED;
    flow->n_queued++;
}

static void leave_line(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    *(item->before ? &item->before->after : &id->first) = item->after;
    *(item->after ? &item->after->before : &id->last) = item->before;
    item->before = item->after = NULL;
    if (!id->first) {
        leave_ring(id);
    }
    flow->n_queued--;
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool flow_add(struct flow *flow, struct flow_item *item, int64_t priority, struct str fairness,
              uint64_t now_ns) {
    assert(item->state == FLOW_OUT);
    struct flow_band *band = need_band(flow, priority);
    item->id = band ? need_id(flow, band, fairness) : NULL;
    if (!item->id) {
        return false;
    }
    item->number = flow->next_number++;
    item->since_ns = now_ns;
    item->id->n_items++;
    band->n_waiting++;
    band->n_bytes += item->n_bytes;
    flow->n_bytes += item->n_bytes;
    enter_line(flow, item);
    return true;
}

void flow_grow(struct flow *flow, struct flow_item *item, uint64_t n_bytes) {
    assert(item->state != FLOW_OUT);
    item->n_bytes += n_bytes;
    item->id->band->n_bytes += n_bytes;
    flow->n_bytes += n_bytes;
}

static struct flow_item *first_of_line(const struct flow_id *id,
                                       bool (*fits)(void *context, const struct flow_item *item),
                                       void *context) {
    struct flow_item *item = id->first;
    while (item && !fits(context, item)) {
        item = item->after;
    }
    return item;
}

struct flow_item *flow_first(struct flow *flow,
                             bool (*fits)(void *context, const struct flow_item *item),
                             void *context) {
    for (const struct flow_band *band = flow->bands; band; band = band->next) {
        const struct flow_id *id = band->turn;
        while (id) {
            struct flow_item *item = first_of_line(id, fits, context);
            if (item) {
                return item;
            }
            id = id->after == band->turn ? NULL : id->after;
        }
    }
    return NULL;
}

void flow_call(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    assert(item->state == FLOW_QUEUED);
    leave_line(flow, item);
    if (id->first) {
        leave_ring(id);
        enter_ring(id);
    }
    item->state = FLOW_CALLED;
    flow->n_called++;
}

void flow_put_back(struct flow *flow, struct flow_item *item) {
    assert(item->state == FLOW_CALLED);
    flow->n_called--;
    enter_line(flow, item);
    leave_ring(item->id);
    enter_ring(item->id);
    item->id->band->turn = item->id;
}

void flow_remove(struct flow *flow, struct flow_item *item, enum flow_outcome outcome,
                 uint64_t now_ns) {
    struct flow_id *id = item->id;
    if (item->state == FLOW_OUT) {
        return;
    }
    struct flow_band *band = id->band;
    uint64_t waited_ns = now_ns > item->since_ns ? now_ns - item->since_ns : 0;
    metric_histogram_add_ns(&band->waited[outcome], waited_ns);
    if (item->state == FLOW_QUEUED) {
        leave_line(flow, item);
    } else {
        flow->n_called--;
    }
    band->n_waiting--;
    band->n_bytes -= item->n_bytes;
    flow->n_bytes -= item->n_bytes;
    if (--id->n_items == 0) {
        drop_id(flow, id);
    }
    item->id = NULL;
    item->n_bytes = 0;
    item->state = FLOW_OUT;
}

int64_t flow_priority(const struct flow_item *item) {
    return item->id->band->priority;
}

size_t flow_read(const struct flow *flow, struct flow_band_numbers *out, size_t most) {
    size_t n = 0;
    for (const struct flow_band *band = flow->bands; band && n < most; band = band->next, n++) {
        out[n] = (struct flow_band_numbers){.priority = band->priority,
                                            .n_waiting = band->n_waiting,
                                            .n_bytes = band->n_bytes,
                                            .n_ids = band->n_ids,
                                            .n_full = band->n_full};
        for (size_t i = 0; i < FLOW_OUTCOMES; i++) {
            metric_histogram_read(&band->waited[i], &out[n].waited[i]);
        }
    }
    return n;
}
