/* The order in which waiters are notified, row by row; limits; and an invariant per rule, checked
 * over random events. */
#include "pick/pool/flow/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>

#include "core/base/random.h"

/* A queued item; bit i of `places`: it fits endpoint i. */
struct waiting {
    struct flow_item item; /* first: an item is cast to it */
    unsigned places;
    unsigned name;
    int64_t priority;
    unsigned id;
    const struct flow_band_rules *rules;
    uint64_t deadline_ns;
};

static bool fits(void *context, const struct flow_item *item) {
    const unsigned *room = context;
    return (((const struct waiting *)(const void *)item)->places & *room) != 0;
}

static struct waiting *first(struct flow *flow, unsigned room) {
    return (struct waiting *)(void *)flow_find(flow, fits, &room);
}

/* Any number that differs with the places. */
static struct keyed_hash place_of(const struct waiting *waiting) {
    return (struct keyed_hash){waiting->places, 1};
}

static void add(struct flow *flow, struct waiting *waiting, int64_t priority, const char *id) {
    waiting->places = waiting->places ? waiting->places : 1;
    assert_true(flow_add(flow, &waiting->item,
                         &(struct flow_arrival){.priority = priority,
                                                .fairness_id = str_of(id),
                                                .place = place_of(waiting),
                                                .rules = waiting->rules,
                                                .deadline_ns = waiting->deadline_ns}));
}

/* Notifies all items that fit, one by one. Returns: their names, one letter each. */
static const char *call_all(struct flow *flow, unsigned room) {
    static char names[64];
    size_t n = 0;
    for (struct waiting *next; (next = first(flow, room));) {
        flow_notify(flow, &next->item);
        flow_remove(flow, &next->item, FLOW_DISPATCHED, 0);
        names[n++] = (char)('a' + next->name);
    }
    names[n] = '\0';
    return names;
}

/* ---- the order ------------------------------------------------------------------------------- */

static const struct flow_band_rules STRICT = {.fairness = FLOW_GLOBAL_STRICT},
                                    DEADLINES = {.ordering = FLOW_BY_DEADLINE},
                                    STRICT_DEADLINES = {.fairness = FLOW_GLOBAL_STRICT,
                                                        .ordering = FLOW_BY_DEADLINE};

static const struct order_row {
    const char *what;
    const char *arrivals; /* per item: the digit of its priority, the letter of its id, and the
                             digit of its deadline, where it has one */
    const char *expected; /* a: the first arrival */
    const struct flow_band_rules *rules;
} ORDERS[] = {
    {"none", "", "", NULL},
    {"of one id, as they came", "0x 0x 0x", "abc", NULL},
    {"the higher priority first, whenever it came", "0x 5x 0x 9x 5x", "dbeac", NULL},
    {"ids in turn", "0x 0x 0x 0y 0y 0z", "adfbec", NULL},
    {"in turn within each priority", "0x 5x 5x 0y 5y 0x", "becadf", NULL},
    {"an id is another one in each priority", "1x 1x 1y 0x 0y", "acbde", NULL},
    {"without regard to ids", "0x 0x 0x 0y 5z 0y", "eabcdf", &STRICT},
    {"by arrival, deadlines make no difference", "0x3 0y2 0x1", "abc", &STRICT},
    {"earliest deadline first within an id", "0x 0x9 0x2 0x 0x5", "cebad", &DEADLINES},
    {"ids in turn, each by its deadlines", "0x9 0x1 0y 0y8 0z4", "bdeac", &DEADLINES},
    {"earliest deadline of all ids", "0x 0x9 0y2 0z 0y5 5z7", "fcebad", &STRICT_DEADLINES},
};

static void parse_arrivals(struct flow *flow, struct waiting *items, const char *text,
                           const struct flow_band_rules *rules) {
    for (unsigned n = 0; *text; n++) {
        char id[2] = {text[1], '\0'};
        int64_t priority = text[0] - '0';
        items[n] = (struct waiting){.name = n, .rules = rules};
        text += 2;
        if (*text >= '0') {
            items[n].deadline_ns = (uint64_t)(*text++ - '0');
        }
        add(flow, &items[n], priority, id);
        text += *text == ' ';
    }
}

static void flow_items_leave_by_priority_then_fairness(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ORDERS) / sizeof(ORDERS[0]); i++) {
        struct flow flow;
        struct waiting items[16];
        flow_init(&flow);
        parse_arrivals(&flow, items, ORDERS[i].arrivals, ORDERS[i].rules);
        const char *got = call_all(&flow, 1);
        if (strcmp(got, ORDERS[i].expected) != 0) {
            fail_msg("%s: expected %s, got %s", ORDERS[i].what, ORDERS[i].expected, got);
        }
        flow_fini(&flow);
    }
}

static void flow_item_that_does_not_fit_is_skipped(void **state) {
    struct flow flow;
    struct waiting items[5] = {{.name = 0, .places = 2},
                               {.name = 1, .places = 1},
                               {.name = 2, .places = 2},
                               {.name = 3, .places = 3},
                               {.name = 4, .places = 2}};
    (void)state;
    flow_init(&flow);
    for (int i = 0; i < 5; i++) {
        add(&flow, &items[i], i == 4 ? 9 : 0, i < 2 ? "x" : "y");
    }
    assert_string_equal(call_all(&flow, 1), "bd");
    assert_null(first(&flow, 1));
    assert_string_equal(call_all(&flow, 2), "eac");
    flow_fini(&flow);
}

struct counted {
    unsigned room, n_asked;
};

static bool fits_counted(void *context, const struct flow_item *item) {
    struct counted *counted = context;
    counted->n_asked++;
    return fits(&counted->room, item);
}

/* Requests that wait for one endpoint cost those that wait for another one nothing. */
static void flow_search_does_not_look_at_items_of_other_places(void **state) {
    enum { N = 1000, N_IDS = 100 };
    static struct waiting many[N], other = {.places = 2, .name = N};
    struct flow flow;
    (void)state;
    flow_init(&flow);
    for (unsigned i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%u", i % N_IDS);
        many[i] = (struct waiting){.places = 1, .name = i};
        add(&flow, &many[i], i % 2, id);
    }
    add(&flow, &other, 0, "0");
    assert_int_equal(flow.n_places, 3); /* of two bands */
    struct counted counted = {.room = 2};
    assert_ptr_equal(flow_find(&flow, fits_counted, &counted), &other.item);
    assert_in_range(counted.n_asked, 1, 3);
    for (unsigned i = 0; i < N; i++) {
        flow_remove(&flow, &many[i].item, FLOW_ABORTED, 0);
    }
    assert_int_equal(flow.n_places, 1);
    flow_remove(&flow, &other.item, FLOW_ABORTED, 0);
    flow_fini(&flow);
}

static void flow_requeued_item_keeps_its_position(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x 0x 0y 0z", NULL);
    flow_notify(&flow, &items[0].item);
    assert_int_equal(flow.n_notified, 1);
    assert_ptr_equal(first(&flow, 1), &items[2]);
    flow_requeue(&flow, &items[0].item);
    assert_int_equal(flow.n_notified, 0);
    assert_int_equal(flow.n_queued, 4);
    assert_string_equal(call_all(&flow, 1), "acdb");
    parse_arrivals(&flow, items, "0x", NULL);
    flow_notify(&flow, &items[0].item);
    flow_requeue(&flow, &items[0].item);
    assert_string_equal(call_all(&flow, 1), "a");
    flow_fini(&flow);
}

/* A requeued item is before those that follow it, and after one of an earlier deadline. */
static void flow_requeued_item_keeps_its_deadline(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x5 0x7 0y6 0y", &STRICT_DEADLINES);
    flow_notify(&flow, &items[0].item);
    assert_ptr_equal(first(&flow, 1), &items[2]);
    struct waiting early = {.name = 4, .rules = &STRICT_DEADLINES, .deadline_ns = 1};
    add(&flow, &early, 0, "z");
    flow_requeue(&flow, &items[0].item);
    assert_string_equal(call_all(&flow, 1), "eacbd");
    flow_fini(&flow);
}

/* Other rules are used once the band is empty: its items are in the order of one policy. */
static void flow_new_rules_of_a_band_wait_until_it_is_empty(void **state) {
    struct flow flow;
    struct waiting items[16], more[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x 0x 0y", &STRICT);
    parse_arrivals(&flow, more, "0y1", &DEADLINES);
    more[0].name = 3;
    assert_string_equal(call_all(&flow, 1), "abcd");
    parse_arrivals(&flow, items, "0x 0x2", &DEADLINES);
    assert_string_equal(call_all(&flow, 1), "ba");
    flow_fini(&flow);
}

static const struct flow_band_rules LEAST = {.fairness = FLOW_BY_PROGRAM};

/* With equal service the one that waits longest is first, and then the others by theirs; the items
 * of an id by arrival. */
static void flow_least_served_id_is_first(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    flow.program_rules = (struct program_rules){.weight_service = 0.8, .weight_head_wait = 0.2};
    flow_add_service(&flow, flow_hash_id(&flow, STR("x")), 100, 1);
    flow_add_service(&flow, flow_hash_id(&flow, STR("y")), 10, 1);
    parse_arrivals(&flow, items, "0x 0y 0y 0z 5x", &LEAST);
    assert_ptr_equal(first(&flow, 1), &items[4]); /* the priority comes before */
    flow_notify(&flow, &items[4].item);
    flow_remove(&flow, &items[4].item, FLOW_DISPATCHED, 0);
    flow_add_service(&flow, flow_hash_id(&flow, STR("z")), 50, 1);
    assert_ptr_equal(first(&flow, 1), &items[1]);
    flow_notify(&flow, &items[1].item);
    flow_add_service(&flow, flow_hash_id(&flow, STR("y")), 45, 1);
    assert_ptr_equal(first(&flow, 1), &items[3]); /* 50, before 55 */
    flow_requeue(&flow, &items[1].item);
    assert_string_equal(call_all(&flow, 1), "dbca");
    flow_fini(&flow);
}

/* Of equals the one that waits longest. */
static void flow_deepest_id_is_first(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    flow.program_rules = (struct program_rules){.strategy = PROGRAMS_DEEPEST, .time_weight = 0};
    for (int i = 0; i < 2; i++) {
        flow_begin_turn(&flow, flow_hash_id(&flow, STR("y")), 1);
        flow_end_turn(&flow, flow_hash_id(&flow, STR("y")), 1);
    }
    parse_arrivals(&flow, items, "0x 0y 0z 0y", &LEAST);
    assert_string_equal(call_all(&flow, 1), "bdac");
    flow.program_rules.time_weight = 3;
    parse_arrivals(&flow, items, "0y 0x", &LEAST);
    items[0].item.queued_ns = 2000000000; /* the other one has waited for longer */
    items[1].item.queued_ns = 1000000000;
    assert_string_equal(call_all(&flow, 1), "ba");
    flow_fini(&flow);
}

/* An id that was served little, but whose requests do not fit, holds up no other. */
static void flow_least_served_id_that_does_not_fit_is_skipped(void **state) {
    struct flow flow;
    struct waiting items[3] = {{.name = 0, .places = 1, .rules = &LEAST},
                               {.name = 1, .places = 2, .rules = &LEAST},
                               {.name = 2, .places = 2, .rules = &LEAST}};
    (void)state;
    flow_init(&flow);
    flow.program_rules = (struct program_rules){.weight_service = 0.8, .weight_head_wait = 0.2};
    flow_add_service(&flow, flow_hash_id(&flow, STR("x")), 100, 1);
    add(&flow, &items[0], 0, "x");
    add(&flow, &items[1], 0, "y");
    add(&flow, &items[2], 0, "x");
    assert_string_equal(call_all(&flow, 1), "a");
    assert_string_equal(call_all(&flow, 2), "bc");
    flow_fini(&flow);
}

/* Only so many ids are compared; one beyond them is still served where none of them fits. */
static void flow_id_beyond_the_compared_ones_is_served(void **state) {
    enum { N = FLOW_MAX_PROGRAMS + 3 };
    static struct waiting items[N];
    struct flow flow;
    (void)state;
    flow_init(&flow);
    flow.program_rules = (struct program_rules){.weight_service = 0.8, .weight_head_wait = 0.2};
    for (unsigned i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%u", i);
        items[i] = (struct waiting){.name = i, .places = i == N - 1 ? 2 : 1, .rules = &LEAST};
        add(&flow, &items[i], 0, id);
    }
    assert_ptr_equal(first(&flow, 2), &items[N - 1]);
    for (unsigned i = 0; i < N; i++) {
        flow_remove(&flow, &items[i].item, FLOW_ABORTED, 0);
    }
    flow_fini(&flow);
}

static void flow_remove_from_middle_keeps_order(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x 0x 0x 0y 0z 0z", NULL);
    flow_remove(&flow, &items[1].item, FLOW_ABORTED, 0);
    flow_remove(&flow, &items[3].item, FLOW_ABORTED, 0); /* and its id */
    flow_remove(&flow, &items[3].item, FLOW_ABORTED, 0); /* no effect */
    assert_int_equal(flow.n_ids, 2);
    assert_string_equal(call_all(&flow, 1), "aecf");
    assert_int_equal(flow.n_ids, 0);
    assert_int_equal(flow.n_bytes, 0);
    flow_fini(&flow);
}

/* ---- limits and statistics ------------------------------------------------------------------- */

static void flow_check_limits_reports_the_limit_reached(void **state) {
    static const struct flow_band_rules bands[] = {
        {.priority = 7, .max_requests = 1, .max_bytes = FLOW_UNLIMITED},
        {.priority = -3, .max_bytes = FLOW_UNLIMITED},
        {.priority = 2, .max_requests = FLOW_UNLIMITED, .max_bytes = 30}};
    static const struct flow_limits limits = {3, 100, bands, 3, NULL, NULL};
    struct flow flow;
    struct waiting items[3] = {{.item = {.n_bytes = 60}}};
    (void)state;
    flow_init(&flow);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 100), FLOW_FITS);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 101), FLOW_FULL_BYTES);
    assert_int_equal(flow_check_limits(&flow, &limits, -3, 0), FLOW_FULL_BAND);
    assert_int_equal(flow_check_limits(&flow, &limits, 2, 30), FLOW_FITS);
    assert_int_equal(flow_check_limits(&flow, &limits, 2, 31), FLOW_FULL_BAND_BYTES);
    add(&flow, &items[0], 7, "x");
    assert_int_equal(flow_check_limits(&flow, &limits, 7, 0), FLOW_FULL_BAND);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 40), FLOW_FITS);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 41), FLOW_FULL_BYTES);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, UINT64_MAX), FLOW_FULL_BYTES);
    flow_add_bytes(&flow, &items[0].item, 50); /* over the limit */
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 0), FLOW_FULL_BYTES);
    flow_notify(&flow, &items[0].item);
    assert_int_equal(flow_check_limits(&flow, &limits, 7, 0), FLOW_FULL_BYTES);
    flow_remove(&flow, &items[0].item, FLOW_DISPATCHED, 0);
    for (int i = 0; i < 3; i++) {
        add(&flow, &items[i], 0, "x");
    }
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 0), FLOW_FULL_REQUESTS);
    for (int i = 0; i < 3; i++) {
        flow_remove(&flow, &items[i].item, FLOW_EXPIRED, 0);
    }
    flow_fini(&flow);
}

/* The default limit of bands without one of their own. */
static void flow_band_without_limit_uses_default_limit(void **state) {
    static const struct flow_band_rules band = {
        .priority = 7, .max_requests = 2, .max_bytes = FLOW_UNLIMITED};
    static const struct flow_band_rules others = {.max_requests = 1, .max_bytes = FLOW_UNLIMITED};
    static const struct flow_limits limits = {9, 100, &band, 1, &others, NULL};
    struct flow flow;
    struct waiting items[2] = {{.item = {.n_bytes = 1}}};
    (void)state;
    flow_init(&flow);
    add(&flow, &items[0], 7, "x");
    assert_int_equal(flow_check_limits(&flow, &limits, 7, 0), FLOW_FITS);
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 0), FLOW_FITS);
    add(&flow, &items[1], 0, "x");
    assert_int_equal(flow_check_limits(&flow, &limits, 0, 0), FLOW_FULL_BAND);
    assert_int_equal(flow_check_limits(&flow, &limits, 3, 0), FLOW_FITS);
    for (int i = 0; i < 2; i++) {
        flow_remove(&flow, &items[i].item, FLOW_EXPIRED, 0);
    }
    flow_fini(&flow);
}

static bool keep_seven(const void *context, int64_t priority) {
    (void)context;
    return priority == 7;
}

static void flow_stats_count_items_bytes_and_ids(void **state) {
    struct flow flow;
    struct waiting items[3] = {{.item = {.n_bytes = 60}}, {.item = {.n_bytes = 5}}};
    struct flow_band_stats bands[4];
    (void)state;
    flow_init(&flow);
    assert_int_equal(flow_get_stats(&flow, bands, 4), 0);
    assert_true(flow_add(
        &flow, &items[0].item,
        &(struct flow_arrival){
            .priority = 1, .fairness_id = STR("x"), .place = place_of(&items[0]), .now_ns = 1000}));
    assert_true(flow_add(
        &flow, &items[1].item,
        &(struct flow_arrival){
            .priority = 1, .fairness_id = STR("y"), .place = place_of(&items[1]), .now_ns = 2000}));
    assert_true(flow_count_rejected(&flow, 7));
    assert_int_equal(flow_get_stats(&flow, bands, 4), 2);
    assert_int_equal(bands[0].priority, 7);
    assert_int_equal(bands[0].n_full, 1);
    assert_int_equal(bands[1].n_waiting, 2);
    assert_int_equal(bands[1].n_bytes, 65);
    assert_int_equal(bands[1].n_ids, 2);
    assert_int_equal(flow_get_stats(&flow, bands, 1), 1);
    flow_remove(&flow, &items[0].item, FLOW_DISPATCHED, 5000);
    flow_remove_idle_bands(&flow, keep_seven, NULL);
    assert_int_equal(flow_get_stats(&flow, bands, 4), 2);   /* it has queued items */
    flow_remove(&flow, &items[1].item, FLOW_EXPIRED, 1500); /* the clock went back */
    assert_int_equal(flow_get_stats(&flow, bands, 4), 2);
    assert_int_equal(bands[1].waited[FLOW_DISPATCHED].count, 1);
    assert_int_equal(bands[1].waited[FLOW_DISPATCHED].sum, 4000);
    assert_int_equal(bands[1].waited[FLOW_EXPIRED].sum, 0);
    assert_int_equal(bands[1].n_waiting + bands[1].n_bytes + bands[1].n_ids, 0);
    flow_remove_idle_bands(&flow, keep_seven, NULL);
    assert_int_equal(flow_get_stats(&flow, bands, 4), 1);
    flow_fini(&flow);
}

/* ---- many fairness ids ----------------------------------------------------------------------- */

enum { MANY = 100000, ID_BYTES = 384 };

/* Bytes allocated with malloc; always 0 with a sanitizer's malloc, and with symbols of an older
 * glibc. */
static size_t heap_bytes(void) {
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* Ids as long as a header may be, which differ in one byte, take no more memory than short ones. */
static void flow_100000_long_ids_use_bounded_memory(void **state) {
    struct flow flow;
    struct waiting *items = calloc(MANY, sizeof(*items));
    static char id[4096];
    (void)state;
    assert_non_null(items);
    flow_init(&flow);
    memset(id, 'x', sizeof(id));
    size_t n_before = heap_bytes();
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(id + sizeof(id) - 16, 16, "%u", i);
        items[i] = (struct waiting){.name = i, .places = 1};
        assert_true(flow_add(&flow, &items[i].item,
                             &(struct flow_arrival){.priority = 0,
                                                    .fairness_id = str_make(id, sizeof(id)),
                                                    .place = place_of(&items[i]),
                                                    .now_ns = 0}));
    }
    assert_int_equal(flow.n_ids, MANY);
    assert_in_range(heap_bytes() - n_before, 0, (size_t)MANY * ID_BYTES);
    assert_in_range(flow.slots_mask, MANY / 2 - 1, 4 * MANY); /* an id, and its items of a place */
    for (unsigned i = 0; i < MANY; i++) {                     /* each was notified once */
        struct waiting *next = first(&flow, 1);
        assert_ptr_equal(next, &items[i]);
        flow_notify(&flow, &next->item);
        flow_remove(&flow, &next->item, FLOW_DISPATCHED, 0);
    }
    assert_int_equal(flow.n_ids, 0);
    flow_fini(&flow);
    free(items);
}

/* ---- random events --------------------------------------------------------------------------- */

enum { ITEMS = 60, IDS = 5, BANDS = 4, STEPS = 200000 };

static const struct flow_band_rules RULES[BANDS] = {
    {.fairness = FLOW_ROUND_ROBIN, .ordering = FLOW_BY_ARRIVAL},
    {.fairness = FLOW_ROUND_ROBIN, .ordering = FLOW_BY_DEADLINE},
    {.fairness = FLOW_GLOBAL_STRICT, .ordering = FLOW_BY_ARRIVAL},
    {.fairness = FLOW_GLOBAL_STRICT, .ordering = FLOW_BY_DEADLINE},
};

struct world {
    struct flow flow;
    struct waiting items[ITEMS];
    struct prng prng;
    unsigned room;
    unsigned passed[BANDS][IDS]; /* notifications of other ids since this one was notified or did
                                    not fit */
    unsigned n_notified[ITEMS], n_arrived[ITEMS], n_gone[ITEMS];
};

static bool fits_now(const struct world *world, const struct waiting *item) {
    return item->item.state == FLOW_QUEUED && (item->places & world->room) != 0;
}

static void judge_turns(struct world *world, const struct waiting *notified) {
    bool ready[IDS] = {false};
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *other = &world->items[i];
        if (fits_now(world, other) && other->priority == notified->priority) {
            ready[other->id] = true;
        }
    }
    for (unsigned id = 0; id < IDS; id++) {
        unsigned *passed = &world->passed[notified->priority][id];
        *passed = ready[id] && id != notified->id ? *passed + 1 : 0;
        assert_in_range(*passed, 0, IDS - 1);
    }
}

/* By the rules of their band, of which ids make no difference or both have the same one. */
static bool comes_before(const struct waiting *item, const struct waiting *other) {
    const struct flow_band_rules *rules = &RULES[item->priority];
    if (item->id != other->id && rules->fairness != FLOW_GLOBAL_STRICT) {
        return false;
    }
    if (rules->ordering == FLOW_BY_DEADLINE && item->deadline_ns != other->deadline_ns) {
        return other->deadline_ns == 0 ||
               (item->deadline_ns != 0 && item->deadline_ns < other->deadline_ns);
    }
    return (rules->ordering == FLOW_BY_ARRIVAL || item->deadline_ns == 0) &&
           item->item.seq < other->item.seq;
}

/* No item that fits has a higher priority, or is before it in the order of its band. */
static void judge(struct world *world, const struct waiting *notified) {
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *other = &world->items[i];
        if (fits_now(world, other)) {
            assert_non_null(notified);
            assert_true(other->priority <= notified->priority);
            assert_false(other->priority == notified->priority && comes_before(other, notified));
        }
    }
}

static void call_first(struct world *world) {
    struct waiting *notified = first(&world->flow, world->room);
    judge(world, notified);
    if (notified) {
        assert_true(fits_now(world, notified));
        if (RULES[notified->priority].fairness == FLOW_ROUND_ROBIN) {
            judge_turns(world, notified);
        }
        flow_notify(&world->flow, &notified->item);
        world->n_notified[notified->name]++;
    }
}

/* No other item of its id is queued. */
static bool is_new(const struct world *world, const struct waiting *item) {
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *other = &world->items[i];
        if (other->item.state == FLOW_QUEUED && other->priority == item->priority &&
            other->id == item->id) {
            return false;
        }
    }
    return true;
}

static void arrive(struct world *world, struct waiting *item) {
    static const char *const ids[IDS] = {"", "a", "b", "ab", "ba"};
    item->places = 1 + prng_below(&world->prng, 7);
    item->priority = prng_below(&world->prng, BANDS);
    item->id = prng_below(&world->prng, IDS);
    item->item.n_bytes = prng_below(&world->prng, 100);
    if (is_new(world, item)) {
        world->passed[item->priority][item->id] = 0; /* last of all ids */
    }
    item->rules = &RULES[item->priority];
    item->deadline_ns = prng_below(&world->prng, 4);
    add(&world->flow, item, item->priority, ids[item->id]);
    world->n_arrived[item->name]++;
}

static void step(struct world *world) {
    struct waiting *item = &world->items[prng_below(&world->prng, ITEMS)];
    switch (prng_below(&world->prng, 8)) {
    case 0:
        world->room = prng_below(&world->prng, 8);
        break;
    case 1:
    case 2:
        call_first(world);
        break;
    default:
        if (item->item.state == FLOW_IDLE) {
            arrive(world, item);
        } else if (item->item.state == FLOW_NOTIFIED || prng_below(&world->prng, 8) == 0) {
            flow_remove(&world->flow, &item->item, FLOW_ABORTED, 0);
            world->n_gone[item->name]++;
        }
        break;
    }
}

/* The id with queued items whose items, notified ones included, have the most bytes, of the lowest
 * priority of which queued items have any: its newest queued item. */
static void judge_victim(struct world *world) {
    uint64_t bytes[BANDS][IDS] = {{0}};
    bool queued[BANDS][IDS] = {{false}};
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *one = &world->items[i];
        if (one->item.state != FLOW_IDLE) {
            bytes[one->priority][one->id] += one->item.n_bytes;
            queued[one->priority][one->id] |= one->item.state == FLOW_QUEUED;
        }
    }
    struct flow_item *victim =
        flow_find_victim(&world->flow, FLOW_FULL_BYTES, BANDS, STR(""), 0, NULL);
    for (unsigned band = 0; band < BANDS; band++) {
        uint64_t most = 0;
        for (unsigned id = 0; id < IDS; id++) {
            most = queued[band][id] && bytes[band][id] > most ? bytes[band][id] : most;
        }
        if (most > 0) {
            assert_non_null(victim);
            const struct waiting *found = (struct waiting *)(void *)victim;
            assert_int_equal(victim->state, FLOW_QUEUED);
            assert_int_equal(found->priority, band);
            assert_int_equal(bytes[band][found->id], most);
            return;
        }
    }
    assert_null(victim);
}

/* Victims one after the other, as for a request that needs all their bytes; then all is as
 * before. */
static void set_some_aside(struct world *world) {
    struct flow_item *aside[ITEMS];
    struct waiting *before = first(&world->flow, world->room);
    uint64_t n_queued = world->flow.n_queued, n_bytes = world->flow.n_bytes;
    size_t n = 0, most = prng_below(&world->prng, ITEMS);
    while (n < most && (aside[n] = flow_find_victim(&world->flow, FLOW_FULL_REQUESTS, BANDS,
                                                    STR(""), 0, NULL))) {
        n_bytes -= aside[n]->n_bytes;
        flow_set_aside(&world->flow, aside[n++]);
        assert_int_equal(world->flow.n_queued, n_queued - n);
        assert_int_equal(world->flow.n_bytes, n_bytes);
    }
    while (n > 0) {
        flow_put_back(&world->flow, aside[--n]);
    }
    const struct waiting *after = first(&world->flow, world->room);
    assert_true(!after == !before);
    if (before) { /* items of one deadline may change places */
        assert_int_equal(after->priority, before->priority);
        assert_int_equal(after->item.order, before->item.order);
        assert_true(after->id == before->id ||
                    RULES[before->priority].fairness == FLOW_GLOBAL_STRICT);
    }
}

static void flow_random_operations_keep_counts_consistent(void **state) {
    static struct world world;
    struct flow_band_stats bands[BANDS];
    (void)state;
    flow_init(&world.flow);
    for (unsigned i = 0; i < ITEMS; i++) {
        world.items[i].name = i;
    }
    for (unsigned n = 0; n < STEPS; n++) {
        uint64_t n_queued = 0, n_notified = 0, n_bytes = 0;
        step(&world);
        for (unsigned i = 0; i < ITEMS; i++) {
            n_queued += world.items[i].item.state == FLOW_QUEUED;
            n_notified += world.items[i].item.state == FLOW_NOTIFIED;
            n_bytes += world.items[i].item.n_bytes * (world.items[i].item.state != FLOW_IDLE);
        }
        assert_int_equal(world.flow.n_queued, n_queued);
        assert_int_equal(world.flow.n_notified, n_notified);
        assert_int_equal(world.flow.n_bytes, n_bytes);
        judge_victim(&world);
        set_some_aside(&world);
    }
    for (unsigned i = 0; i < ITEMS; i++) {
        bool waits = world.items[i].item.state != FLOW_IDLE;
        assert_int_equal(world.n_arrived[i], world.n_gone[i] + waits);
        assert_in_range(world.n_notified[i], 1, world.n_arrived[i]);
        flow_remove(&world.flow, &world.items[i].item, FLOW_ABORTED, 0);
    }
    assert_int_equal(flow_get_stats(&world.flow, bands, BANDS), BANDS);
    for (unsigned i = 0; i < BANDS; i++) {
        assert_int_equal(bands[i].n_waiting + bands[i].n_bytes + bands[i].n_ids, 0);
    }
    flow_fini(&world.flow);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flow_items_leave_by_priority_then_fairness),
        cmocka_unit_test(flow_item_that_does_not_fit_is_skipped),
        cmocka_unit_test(flow_search_does_not_look_at_items_of_other_places),
        cmocka_unit_test(flow_requeued_item_keeps_its_position),
        cmocka_unit_test(flow_requeued_item_keeps_its_deadline),
        cmocka_unit_test(flow_new_rules_of_a_band_wait_until_it_is_empty),
        cmocka_unit_test(flow_least_served_id_is_first),
        cmocka_unit_test(flow_deepest_id_is_first),
        cmocka_unit_test(flow_least_served_id_that_does_not_fit_is_skipped),
        cmocka_unit_test(flow_id_beyond_the_compared_ones_is_served),
        cmocka_unit_test(flow_remove_from_middle_keeps_order),
        cmocka_unit_test(flow_check_limits_reports_the_limit_reached),
        cmocka_unit_test(flow_band_without_limit_uses_default_limit),
        cmocka_unit_test(flow_stats_count_items_bytes_and_ids),
        cmocka_unit_test(flow_100000_long_ids_use_bounded_memory),
        cmocka_unit_test(flow_random_operations_keep_counts_consistent),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/flow", tests, NULL, NULL);
}
