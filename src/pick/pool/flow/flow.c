/* Bands are a list sorted by priority; the fairness ids of a band with queued items are a list in
 * round-robin order, the items of an id a list in order of arrival. Besides, a band has a list of
 * places, which is what its items wait for, and a place a heap of the ids that have items for it,
 * by their turns, or by their first items where ids make no difference: which item an endpoint gets
 * is found by a look at each place, however many items wait for others. Ids, places and the items
 * of an id for a place (lanes) are in one hash table. */
#include "pick/pool/flow/flow.h"

#include <assert.h>
#include <stdlib.h>

#include "core/event/clock.h"
#include "pick/pool/profile/ranking.h"

/* An entry of the hash table. */
struct flow_node {
    struct keyed_hash hash;
    const void *owner; /* the band of an id or a place, the id of a lane */
    struct flow_node *next_in_bucket;
};

/* A fairness id of one band. */
struct flow_id {
    struct flow_node node;      /* first: a node is cast to its id */
    struct ranked ranked;       /* in the band's ranking */
    struct timer_node by_bytes; /* in the band's heap */
    struct flow_band *band;
    TAILQ_ENTRY(flow_id) link;    /* in the band's list while it has queued items */
    uint64_t turn;                /* the lowest is first in that list */
    LIST_HEAD(, flow_lane) lanes; /* by what its items wait for */
    struct flow_items queued;     /* in the order of arrival */
    uint64_t n_bytes;             /* of its items */
    size_t n_items;               /* queued or notified; without any the id is freed */
};

/* What items of a band wait for: all of them fit the same endpoints. */
struct flow_place {
    struct flow_node node; /* first: a node is cast to its place */
    LIST_ENTRY(flow_place) link;
    bool fits;               /* while find_by_program runs: its items fit */
    struct timer_heap lanes; /* those with queued items first, by turn_of */
};

/* The items of an id that wait for a place. */
struct flow_lane {
    struct flow_node node;  /* first: a node is cast to its lane */
    struct timer_node turn; /* in the place's heap */
    struct flow_id *id;
    struct flow_place *place;
    LIST_ENTRY(flow_lane) link; /* in its id's list */
    struct flow_items queued;   /* in the order of arrival, by their `lane_link` */
    struct timer_heap by_order; /* in a band ordered by deadlines: all items, queued ones first */
    size_t n_items;             /* queued or notified; without any the lane is freed */
};

struct flow_band {
    TAILQ_ENTRY(flow_band) link;
    int64_t priority;
    enum flow_fairness fairness;
    enum flow_ordering ordering;
    TAILQ_HEAD(, flow_id) ids; /* those with queued items; the next one first */
    LIST_HEAD(, flow_place) places;
    struct ranking by_queued;   /* the same, those with the most queued items first */
    struct timer_heap by_bytes; /* all ids, those with queued items and the most bytes first */
    uint64_t n_waiting, n_bytes;
    size_t n_ids;
    uint64_t n_full, n_revoked;
    struct metric_histogram waited[N_FLOW_OUTCOMES];
};

enum { FIRST_SLOTS = 64 };

void flow_init(struct flow *flow) {
    *flow = (struct flow){.first_turn = UINT64_MAX / 2, .last_turn = UINT64_MAX / 2};
    TAILQ_INIT(&flow->bands);
    hash_key_init(&flow->key);
    programs_init(&flow->programs);
}

static void free_band(struct flow *flow, struct flow_band *band) {
    TAILQ_REMOVE(&flow->bands, band, link);
    ranking_fini(&band->by_queued);
    timer_heap_fini(&band->by_bytes);
    free(band);
}

void flow_fini(struct flow *flow) {
    assert(flow->n_queued + flow->n_notified == 0 && flow->n_nodes == 0);
    struct flow_band *band;
    while ((band = TAILQ_FIRST(&flow->bands))) {
        free_band(flow, band);
    }
    free(flow->slots);
    programs_fini(&flow->programs);
}

/* ---- bands ----------------------------------------------------------------------------------- */

/* Returns: the first band that has this priority or a lower one; NULL: none. */
static struct flow_band *find_position(const struct flow *flow, int64_t priority) {
    struct flow_band *band = TAILQ_FIRST(&flow->bands);
    while (band && band->priority > priority) {
        band = TAILQ_NEXT(band, link);
    }
    return band;
}

static struct flow_band *find_band(const struct flow *flow, int64_t priority) {
    struct flow_band *band = find_position(flow, priority);
    return band && band->priority == priority ? band : NULL;
}

/* Returns: NULL when out of memory. */
static struct flow_band *find_or_add_band(struct flow *flow, int64_t priority) {
    struct flow_band *next = find_position(flow, priority);
    if (next && next->priority == priority) {
        return next;
    }
    struct flow_band *band = calloc(1, sizeof(*band));
    if (!band) {
        return NULL;
    }
    band->priority = priority;
    TAILQ_INIT(&band->ids);
    if (next) {
        TAILQ_INSERT_BEFORE(next, band, link);
    } else {
        TAILQ_INSERT_TAIL(&flow->bands, band, link);
    }
    return band;
}

void flow_remove_idle_bands(struct flow *flow, bool (*keep)(const void *user, int64_t priority),
                            const void *user) {
    struct flow_band *band = TAILQ_FIRST(&flow->bands), *next;
    for (; band; band = next) {
        next = TAILQ_NEXT(band, link);
        if (band->n_waiting == 0 && !keep(user, band->priority)) {
            free_band(flow, band);
        }
    }
}

bool flow_count_rejected(struct flow *flow, int64_t priority) {
    struct flow_band *band = find_or_add_band(flow, priority);
    if (band) {
        band->n_full++;
    }
    return band != NULL;
}

const struct flow_band_rules *flow_limits_rules(const struct flow_limits *limits,
                                                int64_t priority) {
    static const struct flow_band_rules none = {.max_requests = FLOW_UNLIMITED,
                                                .max_bytes = FLOW_UNLIMITED};
    const struct flow_band_rules *others =
        priority < 0 && limits->negative ? limits->negative : limits->others;
    for (size_t i = 0; i < limits->n_bands; i++) {
        if (limits->bands[i].priority == priority) {
            return &limits->bands[i];
        }
    }
    return others ? others : &none;
}

/* Whether `more` is over the limit in addition to `n`. */
static bool exceeds(uint64_t n, uint64_t more, uint64_t most) {
    return n > most || more > most - n;
}

enum flow_full flow_check_limits(const struct flow *flow, const struct flow_limits *limits,
                                 int64_t priority, uint64_t n_bytes) {
    const struct flow_band *band = find_band(flow, priority);
    const struct flow_band_rules *rules = flow_limits_rules(limits, priority);
    if (flow->n_queued + flow->n_notified >= limits->max_requests) {
        return FLOW_FULL_REQUESTS;
    }
    if (exceeds(flow->n_bytes, n_bytes, limits->max_bytes)) {
        return FLOW_FULL_BYTES;
    }
    if ((band ? band->n_waiting : 0) >= rules->max_requests) {
        return FLOW_FULL_BAND;
    }
    return exceeds(band ? band->n_bytes : 0, n_bytes, rules->max_bytes) ? FLOW_FULL_BAND_BYTES
                                                                        : FLOW_FITS;
}

/* ---- the hash table -------------------------------------------------------------------------- */

static struct flow_node **slot_of(const struct flow *flow, const void *owner,
                                  struct keyed_hash hash) {
    uint64_t mixed = hash.low ^ ((uint64_t)(uintptr_t)owner >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    return &flow->slots[(mixed ^ mixed >> 32) & flow->slots_mask];
}

/* Returns: false when there is no table and no memory for one. A table that cannot grow is used
 * on. */
static bool grow_slots(struct flow *flow) {
    size_t n_old = flow->slots ? flow->slots_mask + 1 : 0;
    if (flow->n_nodes < n_old) {
        return true;
    }
    size_t n = n_old > 0 ? 2 * n_old : FIRST_SLOTS;
    struct flow_node **old = flow->slots, **slots = calloc(n, sizeof(struct flow_node *));
    if (!slots) {
        return old != NULL;
    }
    flow->slots = slots;
    flow->slots_mask = n - 1;
    for (size_t i = 0; i < n_old; i++) {
        for (struct flow_node *node = old[i], *next; node; node = next) {
            struct flow_node **slot = slot_of(flow, node->owner, node->hash);
            next = node->next_in_bucket;
            node->next_in_bucket = *slot;
            *slot = node;
        }
    }
    free(old);
    return true;
}

/* Returns: NULL when there is none. */
static void *find_node(const struct flow *flow, const void *owner, struct keyed_hash hash) {
    struct flow_node *node = flow->slots ? *slot_of(flow, owner, hash) : NULL;
    while (node && !(node->owner == owner && keyed_hash_eq(node->hash, hash))) {
        node = node->next_in_bucket;
    }
    return node;
}

/* Allocates a zeroed entry, which begins with its node. Returns: NULL when out of memory. */
static void *add_node(struct flow *flow, size_t n_bytes, const void *owner,
                      struct keyed_hash hash) {
    struct flow_node *node = grow_slots(flow) ? calloc(1, n_bytes) : NULL;
    if (node) {
        struct flow_node **slot = slot_of(flow, owner, hash);
        *node = (struct flow_node){hash, owner, *slot};
        *slot = node;
        flow->n_nodes++;
    }
    return node;
}

static void free_node(struct flow *flow, struct flow_node *node) {
    struct flow_node **link = slot_of(flow, node->owner, node->hash);
    while (*link != node) {
        link = &(*link)->next_in_bucket;
    }
    *link = node->next_in_bucket;
    flow->n_nodes--;
    free(node);
}

/* ---- fairness ids ---------------------------------------------------------------------------- */

static struct flow_id *find_id(const struct flow *flow, const struct flow_band *band,
                               struct keyed_hash hash) {
    return find_node(flow, band, hash);
}

/* The key of an id without queued items in `by_bytes`, and of one without bytes. */
static const uint64_t KEY_OF_NO_BYTES = UINT64_MAX;

/* The id's bytes have changed, or whether it has queued items. */
static void update_bytes(struct flow_id *id) {
    uint64_t key = TAILQ_EMPTY(&id->queued) ? KEY_OF_NO_BYTES : KEY_OF_NO_BYTES - id->n_bytes;
    bool moved = timer_heap_set(&id->band->by_bytes, &id->by_bytes, key);
    assert(moved); /* it is in the heap, whose array has room for it */
    (void)moved;
}

static void free_id(struct flow *flow, struct flow_id *id) {
    timer_heap_remove(&id->band->by_bytes, &id->by_bytes);
    id->band->n_ids--;
    flow->n_ids--;
    free_node(flow, &id->node);
}

/* Returns: NULL when out of memory. */
static struct flow_id *find_or_add_id(struct flow *flow, struct flow_band *band,
                                      struct str fairness_id) {
    struct keyed_hash hash = keyed_hash_of(&flow->key, fairness_id);
    struct flow_id *id = find_id(flow, band, hash);
    if (id || !ranking_reserve(&band->by_queued, band->n_ids + 1)) {
        return id;
    }
    id = add_node(flow, sizeof(*id), band, hash);
    if (id) {
        id->band = band;
        TAILQ_INIT(&id->queued);
        flow->n_ids++;
        band->n_ids++;
        if (!timer_heap_set(&band->by_bytes, &id->by_bytes, KEY_OF_NO_BYTES)) {
            free_id(flow, id);
            id = NULL;
        }
    }
    return id;
}

/* ---- places and lanes ------------------------------------------------------------------------ */

/* The key of a lane without queued items in its place's heap. */
static const uint64_t NO_TURN = UINT64_MAX;

/* The key in its lane's heap of an item that is not queued. */
static const uint64_t NOT_QUEUED = UINT64_MAX;

/* The first queued item. Returns: NULL: none. */
static struct flow_item *first_of(const struct flow_lane *lane) {
    if (lane->id->band->ordering == FLOW_BY_ARRIVAL) {
        return TAILQ_FIRST(&lane->queued);
    }
    struct timer_node *first = timer_heap_first(&lane->by_order);
    return first && first->due_ns != NOT_QUEUED ? CONTAINER_OF(first, struct flow_item, by_order)
                                                : NULL;
}

static uint64_t turn_of(const struct flow_lane *lane) {
    const struct flow_item *first = first_of(lane);
    if (!first) {
        return NO_TURN;
    }
    return lane->id->band->fairness == FLOW_GLOBAL_STRICT ? first->order : lane->id->turn;
}

/* The id's turn has changed, or the first queued item of the lane. */
static void update_turn(struct flow_lane *lane) {
    uint64_t turn = turn_of(lane);
    bool moved =
        lane->turn.due_ns == turn || timer_heap_set(&lane->place->lanes, &lane->turn, turn);
    assert(moved); /* it is in the heap, whose array has room for it */
    (void)moved;
}

static void set_turn(struct flow_id *id, uint64_t turn) {
    struct flow_lane *lane;
    id->turn = turn;
    LIST_FOREACH(lane, &id->lanes, link) {
        update_turn(lane);
    }
}

static void free_place_if_empty(struct flow *flow, struct flow_place *place) {
    if (place->lanes.n == 0) {
        LIST_REMOVE(place, link);
        flow->n_places--;
        timer_heap_fini(&place->lanes);
        free_node(flow, &place->node);
    }
}

static void free_lane(struct flow *flow, struct flow_lane *lane) {
    struct flow_place *place = lane->place;
    timer_heap_remove(&place->lanes, &lane->turn);
    timer_heap_fini(&lane->by_order);
    LIST_REMOVE(lane, link);
    free_node(flow, &lane->node);
    free_place_if_empty(flow, place);
}

/* Returns: NULL when out of memory. */
static struct flow_place *find_or_add_place(struct flow *flow, struct flow_band *band,
                                            struct keyed_hash hash) {
    hash.high ^= 1; /* no place has the hash of an id */
    struct flow_place *place = find_node(flow, band, hash);
    if (!place && (place = add_node(flow, sizeof(*place), band, hash))) {
        LIST_INSERT_HEAD(&band->places, place, link);
        flow->n_places++;
    }
    return place;
}

/* Returns: NULL when out of memory. */
static struct flow_lane *find_or_add_lane(struct flow *flow, struct flow_id *id,
                                          struct keyed_hash hash) {
    struct flow_lane *lane = find_node(flow, id, hash);
    struct flow_place *place = lane ? NULL : find_or_add_place(flow, id->band, hash);
    if (!place) {
        return lane;
    }
    lane = add_node(flow, sizeof(*lane), id, hash);
    if (lane) {
        lane->id = id;
        lane->place = place;
        TAILQ_INIT(&lane->queued);
        LIST_INSERT_HEAD(&id->lanes, lane, link);
        if (!timer_heap_set(&place->lanes, &lane->turn, NO_TURN)) {
            free_lane(flow, lane);
            return NULL;
        }
    } else {
        free_place_if_empty(flow, place);
    }
    return lane;
}

/* ---- the items of an id ---------------------------------------------------------------------- */

/* The key of an id without queued items; each makes it lower by one. */
static const uint32_t KEY_OF_NONE = UINT32_MAX / 2;

/* Items that are not queued are in the heap as well, so that there is memory for them. */
static void set_order(struct flow_item *item, uint64_t order) {
    struct flow_lane *lane = item->lane;
    if (lane->id->band->ordering == FLOW_BY_DEADLINE) {
        bool moved = timer_heap_set(&lane->by_order, &item->by_order, order);
        assert(moved);
        (void)moved;
    }
}

static void insert_in_lane(struct flow_item *item) {
    struct flow_lane *lane = item->lane;
    struct flow_item *next = TAILQ_FIRST(&lane->queued);
    if (next && TAILQ_LAST(&lane->queued, flow_items)->seq < item->seq) {
        next = NULL;
    }
    while (next && next->seq < item->seq) {
        next = TAILQ_NEXT(next, lane_link);
    }
    if (next) {
        TAILQ_INSERT_BEFORE(next, item, lane_link);
    } else {
        TAILQ_INSERT_TAIL(&lane->queued, item, lane_link);
    }
    set_order(item, item->order);
    update_turn(lane);
}

/* Inserts by order of arrival, searching from the front, where a requeued item belongs. */
static void insert_item(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    struct flow_item *next = TAILQ_FIRST(&id->queued);
    if (!next) {
        TAILQ_INSERT_TAIL(&id->band->ids, id, link);
        set_turn(id, ++flow->last_turn);
    } else if (TAILQ_LAST(&id->queued, flow_items)->seq < item->seq) {
        next = NULL;
    }
    while (next && next->seq < item->seq) {
        next = TAILQ_NEXT(next, link);
    }
    if (next) {
        TAILQ_INSERT_BEFORE(next, item, link);
    } else {
        TAILQ_INSERT_TAIL(&id->queued, item, link);
    }
    insert_in_lane(item);
    if (TAILQ_NEXT(TAILQ_FIRST(&id->queued), link)) {
        ranking_decrement(&id->band->by_queued, &id->ranked);
    } else {
        ranking_insert(&id->band->by_queued, &id->ranked, KEY_OF_NONE - 1);
    }
    item->state = FLOW_QUEUED;
    flow->n_queued++;
    update_bytes(id);
}

static void unlink_item(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    TAILQ_REMOVE(&id->queued, item, link);
    TAILQ_REMOVE(&item->lane->queued, item, lane_link);
    set_order(item, NOT_QUEUED);
    update_turn(item->lane);
    if (TAILQ_EMPTY(&id->queued)) {
        TAILQ_REMOVE(&id->band->ids, id, link);
        ranking_remove(&id->band->by_queued, &id->ranked);
    } else {
        ranking_increment(&id->band->by_queued, &id->ranked);
    }
    flow->n_queued--;
    update_bytes(id);
}

/* ---- queueing -------------------------------------------------------------------------------- */

/* In a band ordered by deadlines those without one come last, by arrival. */
static uint64_t order_of(const struct flow_band *band, uint64_t seq, uint64_t deadline_ns) {
    const uint64_t last = UINT64_C(1) << 63;
    if (band->ordering == FLOW_BY_ARRIVAL) {
        return seq;
    }
    return deadline_ns > 0 && deadline_ns < last ? deadline_ns : last | seq;
}

/* Returns: false when out of memory; nothing is left of it. */
static bool join_lane(struct flow *flow, struct flow_item *item, struct flow_id *id,
                      struct keyed_hash place) {
    item->lane = find_or_add_lane(flow, id, place);
    item->by_order = (struct timer_node){0};
    if (item->lane && id->band->ordering == FLOW_BY_DEADLINE &&
        !timer_heap_set(&item->lane->by_order, &item->by_order, NOT_QUEUED)) {
        if (item->lane->n_items == 0) {
            free_lane(flow, item->lane);
        }
        item->lane = NULL;
    }
    return item->lane != NULL;
}

bool flow_add(struct flow *flow, struct flow_item *item, const struct flow_arrival *arrival) {
    assert(item->state == FLOW_IDLE);
    struct flow_band *band = find_or_add_band(flow, arrival->priority);
    if (band && band->n_waiting == 0) {
        band->fairness = arrival->rules ? arrival->rules->fairness : FLOW_ROUND_ROBIN;
        band->ordering = arrival->rules ? arrival->rules->ordering : FLOW_BY_ARRIVAL;
    }
    struct flow_id *id = band ? find_or_add_id(flow, band, arrival->fairness_id) : NULL;
    if (!id || !join_lane(flow, item, id, arrival->place)) {
        if (id && id->n_items == 0) {
            free_id(flow, id);
        }
        return false;
    }
    item->id = id;
    item->lane->n_items++;
    item->seq = flow->next_number++;
    item->order = order_of(band, item->seq, arrival->deadline_ns);
    item->queued_ns = arrival->now_ns;
    item->id->n_items++;
    item->id->n_bytes += item->n_bytes;
    band->n_waiting++;
    band->n_bytes += item->n_bytes;
    flow->n_bytes += item->n_bytes;
    insert_item(flow, item);
    return true;
}

void flow_add_bytes(struct flow *flow, struct flow_item *item, uint64_t n_bytes) {
    assert(item->state != FLOW_IDLE);
    item->n_bytes += n_bytes;
    item->id->n_bytes += n_bytes;
    item->id->band->n_bytes += n_bytes;
    flow->n_bytes += n_bytes;
    update_bytes(item->id);
}

enum flow_full flow_check_bytes(const struct flow *flow, const struct flow_limits *limits,
                                const struct flow_item *item) {
    const struct flow_band *band = item->id->band;
    if (flow->n_bytes > limits->max_bytes) {
        return FLOW_FULL_BYTES;
    }
    return band->n_bytes > flow_limits_rules(limits, band->priority)->max_bytes
               ? FLOW_FULL_BAND_BYTES
               : FLOW_FITS;
}

/* The first lane with queued items for the place. Returns: NULL: none. */
static struct flow_lane *first_lane(const struct flow_place *place) {
    struct timer_node *first = timer_heap_first(&place->lanes);
    return first && first->due_ns != NO_TURN ? CONTAINER_OF(first, struct flow_lane, turn) : NULL;
}

/* Whether the first item of `lane` comes before that of `other`, of the same band. */
static bool is_before(const struct flow_lane *lane, const struct flow_lane *other) {
    if (lane->id != other->id) {
        return turn_of(lane) < turn_of(other);
    }
    return first_of(lane)->order < first_of(other)->order;
}

/* The first item in the lanes of the id whose places fit. Returns: NULL: none. */
static struct flow_item *first_fitting(const struct flow_id *id) {
    const struct flow_lane *lane;
    struct flow_item *found = NULL;
    LIST_FOREACH(lane, &id->lanes, link) {
        struct flow_item *first = lane->place->fits ? first_of(lane) : NULL;
        if (first && (!found || first->order < found->order)) {
            found = first;
        }
    }
    return found;
}

static void extend_range(struct program_range *range, double value, bool is_first) {
    range->least = is_first || value < range->least ? value : range->least;
    range->most = is_first || value > range->most ? value : range->most;
}

/* Fills in the scores of the first FLOW_MAX_PROGRAMS ids. */
static void score_programs(const struct flow *flow, const struct flow_band *band,
                           double scores[FLOW_MAX_PROGRAMS]) {
    const struct program_rules *rules = &flow->program_rules;
    struct program_range services = {0, 0}, queued = {0, 0};
    const struct flow_id *id;
    size_t n = 0;
    for (id = TAILQ_FIRST(&band->ids); id && n < FLOW_MAX_PROGRAMS; id = TAILQ_NEXT(id, link)) {
        uint64_t queued_ns = TAILQ_FIRST(&id->queued)->queued_ns;
        if (rules->strategy == PROGRAMS_DEEPEST) {
            scores[n++] = programs_depth(&flow->programs, rules, id->node.hash, queued_ns);
            continue;
        }
        scores[n] = programs_service(&flow->programs, rules, id->node.hash);
        extend_range(&services, scores[n], n == 0);
        extend_range(&queued, (double)queued_ns, n == 0);
        n++;
    }
    id = TAILQ_FIRST(&band->ids);
    for (size_t i = 0; i < n && rules->strategy == PROGRAMS_LEAST_SERVICE; i++) {
        scores[i] = program_score(rules, scores[i], (double)TAILQ_FIRST(&id->queued)->queued_ns,
                                  services, queued);
        id = TAILQ_NEXT(id, link);
    }
}

/* The item of the id with the highest score of those that fit; the ranges are those of all ids.
 * Returns: NULL: none of the first FLOW_MAX_PROGRAMS ids has one. */
static struct flow_item *find_by_program(const struct flow *flow, const struct flow_band *band,
                                         bool (*fits)(void *user, const struct flow_item *item),
                                         void *user) {
    double scores[FLOW_MAX_PROGRAMS], best_score = 0;
    struct flow_item *best = NULL;
    struct flow_place *place;
    const struct flow_id *id;
    bool any = false;
    size_t n = 0;
    LIST_FOREACH(place, &band->places, link) {
        const struct flow_lane *lane = first_lane(place);
        place->fits = lane && fits(user, first_of(lane));
        any = any || place->fits;
    }
    if (!any) {
        return NULL;
    }
    score_programs(flow, band, scores);
    for (id = TAILQ_FIRST(&band->ids); id && n < FLOW_MAX_PROGRAMS; id = TAILQ_NEXT(id, link)) {
        struct flow_item *item = first_fitting(id);
        double score = scores[n++];
        bool is_equal = best && score == best_score;
        if (item &&
            (!best || score > best_score || (is_equal && item->queued_ns < best->queued_ns))) {
            best = item;
            best_score = score;
        }
    }
    return best;
}

struct flow_item *flow_find(struct flow *flow,
                            bool (*fits)(void *user, const struct flow_item *item), void *user) {
    const struct flow_band *band;
    TAILQ_FOREACH(band, &flow->bands, link) {
        const struct flow_lane *found = NULL;
        const struct flow_place *place;
        struct flow_item *least =
            band->fairness == FLOW_BY_PROGRAM ? find_by_program(flow, band, fits, user) : NULL;
        if (least) {
            return least;
        }
        LIST_FOREACH(place, &band->places, link) {
            const struct flow_lane *lane = first_lane(place);
            if (lane && (!found || is_before(lane, found)) && fits(user, first_of(lane))) {
                found = lane;
            }
        }
        if (found) {
            return first_of(found);
        }
    }
    return NULL;
}

bool flow_find_demand(const struct flow *flow, int64_t above,
                      bool (*is_held_up)(void *user, int64_t priority), void *user,
                      int64_t *priority) {
    const struct flow_band *band = TAILQ_FIRST(&flow->bands);
    while (band && band->priority > above &&
           (TAILQ_EMPTY(&band->ids) || !is_held_up(user, band->priority))) {
        band = TAILQ_NEXT(band, link);
    }
    bool found = band && band->priority > above;
    *priority = found ? band->priority : above;
    return found;
}

void flow_count_revoked(struct flow *flow, int64_t priority, uint64_t n) {
    struct flow_band *band = find_band(flow, priority);
    if (band) {
        band->n_revoked += n;
    }
}

bool flow_has_queued_from(const struct flow *flow, int64_t priority) {
    const struct flow_band *band = TAILQ_FIRST(&flow->bands);
    while (band && band->priority >= priority && TAILQ_EMPTY(&band->ids)) {
        band = TAILQ_NEXT(band, link);
    }
    return band && band->priority >= priority;
}

/* Returns: whether `visit` has returned true. */
static bool visit_band(const struct flow_band *band,
                       bool (*visit)(void *user, struct flow_item *item), void *user) {
    const struct flow_id *id;
    TAILQ_FOREACH(id, &band->ids, link) {
        struct flow_item *item = TAILQ_FIRST(&id->queued);
        while (item && !visit(user, item)) {
            item = TAILQ_NEXT(item, link);
        }
        if (item) {
            return true;
        }
    }
    return false;
}

bool flow_visit(struct flow *flow, bool (*visit)(void *user, struct flow_item *item), void *user) {
    const struct flow_band *band = TAILQ_FIRST(&flow->bands);
    while (band && !visit_band(band, visit, user)) {
        band = TAILQ_NEXT(band, link);
    }
    return band != NULL;
}

void flow_notify(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    assert(item->state == FLOW_QUEUED);
    unlink_item(flow, item);
    if (!TAILQ_EMPTY(&id->queued)) {
        TAILQ_REMOVE(&id->band->ids, id, link);
        TAILQ_INSERT_TAIL(&id->band->ids, id, link);
        set_turn(id, ++flow->last_turn);
    }
    item->state = FLOW_NOTIFIED;
    flow->n_notified++;
}

void flow_requeue(struct flow *flow, struct flow_item *item) {
    assert(item->state == FLOW_NOTIFIED);
    flow->n_notified--;
    insert_item(flow, item);
    TAILQ_REMOVE(&item->id->band->ids, item->id, link);
    TAILQ_INSERT_HEAD(&item->id->band->ids, item->id, link);
    set_turn(item->id, --flow->first_turn);
}

void flow_remove(struct flow *flow, struct flow_item *item, enum flow_outcome outcome,
                 uint64_t now_ns) {
    struct flow_id *id = item->id;
    if (item->state == FLOW_IDLE) {
        return;
    }
    struct flow_band *band = id->band;
    uint64_t waited_ns = clock_between_ns(item->queued_ns, now_ns);
    metric_histogram_add_ns(&band->waited[outcome], waited_ns);
    if (item->state == FLOW_QUEUED) {
        unlink_item(flow, item);
    } else {
        flow->n_notified--;
    }
    band->n_waiting--;
    band->n_bytes -= item->n_bytes;
    id->n_bytes -= item->n_bytes;
    flow->n_bytes -= item->n_bytes;
    if (band->ordering == FLOW_BY_DEADLINE) {
        timer_heap_remove(&item->lane->by_order, &item->by_order);
    }
    if (--item->lane->n_items == 0) {
        free_lane(flow, item->lane);
    }
    if (--id->n_items == 0) {
        free_id(flow, id);
    } else {
        update_bytes(id);
    }
    item->id = NULL;
    item->lane = NULL;
    item->n_bytes = 0;
    item->state = FLOW_IDLE;
}

/* ---- a full queue ---------------------------------------------------------------------------- */

static bool is_of_bytes(enum flow_full full) {
    return full == FLOW_FULL_BYTES || full == FLOW_FULL_BAND_BYTES;
}

/* The id that has the most of what is full: bytes, or queued items. Returns: NULL when none has
 * any. */
static struct flow_id *find_largest_id(const struct flow_band *band, enum flow_full full) {
    if (is_of_bytes(full)) {
        struct timer_node *first = timer_heap_first(&band->by_bytes);
        return first && first->due_ns < KEY_OF_NO_BYTES
                   ? CONTAINER_OF(first, struct flow_id, by_bytes)
                   : NULL;
    }
    return band->by_queued.n > 0 ? CONTAINER_OF(band->by_queued.order[0], struct flow_id, ranked)
                                 : NULL;
}

/* Whether an id of the request's own band has more than the request's id would have, `own`, NULL if
 * it has no items yet. */
static bool has_more(enum flow_full full, const struct flow_id *largest, const struct flow_id *own,
                     uint64_t n_bytes) {
    if (largest == own) {
        return false;
    }
    return is_of_bytes(full) ? largest->n_bytes > (own ? own->n_bytes : 0) + n_bytes
                             : largest->n_items > (own ? own->n_items : 0) + 1;
}

struct flow_item *flow_find_victim(struct flow *flow, enum flow_full full, int64_t priority,
                                   struct str fairness_id, uint64_t n_bytes,
                                   const struct flow_item *grown) {
    const struct flow_band *own_band = grown ? grown->id->band : find_band(flow, priority);
    bool of_band = full == FLOW_FULL_BAND || full == FLOW_FULL_BAND_BYTES;
    const struct flow_band *band = of_band ? own_band : NULL;
    const struct flow_id *largest = NULL;
    if (!of_band) { /* the lowest one that has any */
        band = TAILQ_LAST(&flow->bands, flow_bands);
        while (band && !find_largest_id(band, full)) {
            band = TAILQ_PREV(band, flow_bands, link);
        }
    }
    largest = band ? find_largest_id(band, full) : NULL;
    if (!largest || band->priority > priority) {
        return NULL;
    }
    if (band->priority == priority) {
        const struct flow_id *own =
            grown ? grown->id : find_id(flow, band, keyed_hash_of(&flow->key, fairness_id));
        if (!has_more(full, largest, own, n_bytes)) {
            return NULL;
        }
    }
    return TAILQ_LAST(&largest->queued, flow_items);
}

void flow_set_aside(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    assert(item->state == FLOW_QUEUED);
    id->n_items--;
    id->n_bytes -= item->n_bytes;
    id->band->n_waiting--;
    id->band->n_bytes -= item->n_bytes;
    flow->n_bytes -= item->n_bytes;
    unlink_item(flow, item);
    item->state = FLOW_ASIDE;
}

/* The id has its turn still, by which the list is sorted. */
static void restore_turn(struct flow_id *id, uint64_t turn) {
    struct flow_band *band = id->band;
    TAILQ_REMOVE(&band->ids, id, link);
    struct flow_id *next = TAILQ_FIRST(&band->ids);
    while (next && next->turn < turn) {
        next = TAILQ_NEXT(next, link);
    }
    if (next) {
        TAILQ_INSERT_BEFORE(next, id, link);
    } else {
        TAILQ_INSERT_TAIL(&band->ids, id, link);
    }
    set_turn(id, turn);
}

void flow_put_back(struct flow *flow, struct flow_item *item) {
    struct flow_id *id = item->id;
    uint64_t turn = id->turn;
    bool was_empty = TAILQ_EMPTY(&id->queued);
    assert(item->state == FLOW_ASIDE);
    id->n_items++;
    id->n_bytes += item->n_bytes;
    id->band->n_waiting++;
    id->band->n_bytes += item->n_bytes;
    flow->n_bytes += item->n_bytes;
    insert_item(flow, item);
    if (was_empty) {
        restore_turn(id, turn);
    }
}

struct keyed_hash flow_hash_id(const struct flow *flow, struct str fairness_id) {
    return keyed_hash_of(&flow->key, fairness_id);
}

void flow_begin_turn(struct flow *flow, struct keyed_hash id, uint64_t now_ns) {
    programs_begin_turn(&flow->programs, &flow->program_rules, id, now_ns);
}

void flow_end_turn(struct flow *flow, struct keyed_hash id, uint64_t now_ns) {
    programs_end_turn(&flow->programs, &flow->program_rules, id, now_ns);
}

void flow_add_service(struct flow *flow, struct keyed_hash id, double cost, uint64_t now_ns) {
    programs_add(&flow->programs, &flow->program_rules, id, cost, now_ns);
}

int64_t flow_priority(const struct flow_item *item) {
    return item->id->band->priority;
}

size_t flow_get_stats(const struct flow *flow, struct flow_band_stats *out, size_t most) {
    size_t n = 0;
    for (const struct flow_band *band = TAILQ_FIRST(&flow->bands); band && n < most;
         band = TAILQ_NEXT(band, link), n++) {
        out[n] = (struct flow_band_stats){.priority = band->priority,
                                          .n_waiting = band->n_waiting,
                                          .n_bytes = band->n_bytes,
                                          .n_ids = band->n_ids,
                                          .n_full = band->n_full,
                                          .n_revoked = band->n_revoked};
        for (size_t i = 0; i < N_FLOW_OUTCOMES; i++) {
            metric_histogram_read(&band->waited[i], &out[n].waited[i]);
        }
    }
    return n;
}
