/* The order in which those that wait are called, row by row; limits; and an invariant for each
 * rule, held against any order of events. */
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

#include "core/base/dice.h"

/* Something that waits: it may go where `places` has a bit. */
struct waiting {
    struct flow_item item; /* first: an item is cast to it */
    unsigned places;
    unsigned name;
    int64_t priority;
    unsigned id;
};

static bool fits(void *context, const struct flow_item *item) {
    const unsigned *room = context;
    return (((const struct waiting *)(const void *)item)->places & *room) != 0;
}

static struct waiting *first(struct flow *flow, unsigned room) {
    return (struct waiting *)(void *)flow_first(flow, fits, &room);
}

static void add(struct flow *flow, struct waiting *waiting, int64_t priority, const char *id) {
    waiting->places = waiting->places ? waiting->places : 1;
    assert_true(flow_add(flow, &waiting->item, priority, str_of(id), 0));
}

/* Calls all that fit, one after the other. Returns: their names, as a text of letters. */
static const char *call_all(struct flow *flow, unsigned room) {
    static char names[64];
    size_t n = 0;
    for (struct waiting *next; (next = first(flow, room));) {
        flow_call(flow, &next->item);
        flow_remove(flow, &next->item, FLOW_DISPATCHED, 0);
        names[n++] = (char)('a' + next->name);
    }
    names[n] = '\0';
    return names;
}

/* ---- the order ------------------------------------------------------------------------------- */

static const struct order_row {
    const char *what;
    const char *arrivals; /* for each: the priority's digit and the letter of its id */
    const char *expected; /* a: the first arrival */
} ORDERS[] = {
    {"nobody", "", ""},
    {"of one id, as they came", "0x 0x 0x", "abc"},
    {"the higher priority first, whenever it came", "0x 5x 0x 9x 5x", "dbeac"},
    {"ids in turn", "0x 0x 0x 0y 0y 0z", "adfbec"},
    {"in turn within each priority", "0x 5x 5x 0y 5y 0x", "becadf"},
    {"an id is another one in each priority", "1x 1x 1y 0x 0y", "acbde"},
};

static void parse_arrivals(struct flow *flow, struct waiting *items, const char *text) {
    for (unsigned n = 0; *text; n++) {
        char id[2] = {text[1], '\0'};
        items[n] = (struct waiting){.name = n};
        add(flow, &items[n], text[0] - '0', id);
        text += text[2] ? 3 : 2;
    }
}

static void the_order(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ORDERS) / sizeof(ORDERS[0]); i++) {
        struct flow flow;
        struct waiting items[16];
        flow_init(&flow);
        parse_arrivals(&flow, items, ORDERS[i].arrivals);
        const char *got = call_all(&flow, 1);
        if (strcmp(got, ORDERS[i].expected) != 0) {
            fail_msg("%s: expected %s, got %s", ORDERS[i].what, ORDERS[i].expected, got);
        }
        flow_fini(&flow);
    }
}

static void who_fits_nowhere_holds_nobody_up(void **state) {
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

static void one_that_is_put_back_has_its_place(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x 0x 0y 0z");
    flow_call(&flow, &items[0].item);
    assert_int_equal(flow.n_called, 1);
    assert_ptr_equal(first(&flow, 1), &items[2]);
    flow_put_back(&flow, &items[0].item);
    assert_int_equal(flow.n_called, 0);
    assert_int_equal(flow.n_queued, 4);
    assert_string_equal(call_all(&flow, 1), "acdb");
    parse_arrivals(&flow, items, "0x");
    flow_call(&flow, &items[0].item);
    flow_put_back(&flow, &items[0].item);
    assert_string_equal(call_all(&flow, 1), "a");
    flow_fini(&flow);
}

static void from_the_middle(void **state) {
    struct flow flow;
    struct waiting items[16];
    (void)state;
    flow_init(&flow);
    parse_arrivals(&flow, items, "0x 0x 0x 0y 0z 0z");
    flow_remove(&flow, &items[1].item, FLOW_ABORTED, 0);
    flow_remove(&flow, &items[3].item, FLOW_ABORTED, 0); /* with it its id */
    flow_remove(&flow, &items[3].item, FLOW_ABORTED, 0); /* not twice */
    assert_int_equal(flow.n_ids, 2);
    assert_string_equal(call_all(&flow, 1), "aecf");
    assert_int_equal(flow.n_ids, 0);
    assert_int_equal(flow.n_bytes, 0);
    flow_fini(&flow);
}

/* ---- limits and numbers ---------------------------------------------------------------------- */

static void what_is_full(void **state) {
    static const struct flow_band_limits bands[] = {{7, 1}, {-3, 0}};
    static const struct flow_limits limits = {3, 100, bands, 2, 0};
    struct flow flow;
    struct waiting items[3] = {{.item = {.n_bytes = 60}}};
    (void)state;
    flow_init(&flow);
    assert_int_equal(flow_check(&flow, &limits, 0, 100), FLOW_FITS);
    assert_int_equal(flow_check(&flow, &limits, 0, 101), FLOW_FULL_BYTES);
    assert_int_equal(flow_check(&flow, &limits, -3, 0), FLOW_FULL_BAND);
    add(&flow, &items[0], 7, "x");
    assert_int_equal(flow_check(&flow, &limits, 7, 0), FLOW_FULL_BAND);
    assert_int_equal(flow_check(&flow, &limits, 0, 40), FLOW_FITS);
    assert_int_equal(flow_check(&flow, &limits, 0, 41), FLOW_FULL_BYTES);
    assert_int_equal(flow_check(&flow, &limits, 0, UINT64_MAX), FLOW_FULL_BYTES);
    flow_grow(&flow, &items[0].item, 50); /* more than there may be */
    assert_int_equal(flow_check(&flow, &limits, 0, 0), FLOW_FULL_BYTES);
    flow_call(&flow, &items[0].item);
    assert_int_equal(flow_check(&flow, &limits, 7, 0), FLOW_FULL_BYTES);
    flow_remove(&flow, &items[0].item, FLOW_DISPATCHED, 0);
    for (int i = 0; i < 3; i++) {
        add(&flow, &items[i], 0, "x");
    }
    assert_int_equal(flow_check(&flow, &limits, 0, 0), FLOW_FULL_REQUESTS);
    for (int i = 0; i < 3; i++) {
        flow_remove(&flow, &items[i].item, FLOW_EXPIRED, 0);
    }
    flow_fini(&flow);
}

/* A limit for those that have none of their own. */
static void what_is_full_of_the_others(void **state) {
    static const struct flow_band_limits band = {7, 2};
    static const struct flow_limits limits = {9, 100, &band, 1, 1};
    struct flow flow;
    struct waiting items[2] = {{.item = {.n_bytes = 1}}};
    (void)state;
    flow_init(&flow);
    add(&flow, &items[0], 7, "x");
    assert_int_equal(flow_check(&flow, &limits, 7, 0), FLOW_FITS);
    assert_int_equal(flow_check(&flow, &limits, 0, 0), FLOW_FITS);
    add(&flow, &items[1], 0, "x");
    assert_int_equal(flow_check(&flow, &limits, 0, 0), FLOW_FULL_BAND);
    assert_int_equal(flow_check(&flow, &limits, 3, 0), FLOW_FITS);
    for (int i = 0; i < 2; i++) {
        flow_remove(&flow, &items[i].item, FLOW_EXPIRED, 0);
    }
    flow_fini(&flow);
}

static bool keep_seven(const void *context, int64_t priority) {
    (void)context;
    return priority == 7;
}

static void numbers(void **state) {
    struct flow flow;
    struct waiting items[3] = {{.item = {.n_bytes = 60}}, {.item = {.n_bytes = 5}}};
    struct flow_band_numbers bands[4];
    (void)state;
    flow_init(&flow);
    assert_int_equal(flow_read(&flow, bands, 4), 0);
    assert_true(flow_add(&flow, &items[0].item, 1, STR("x"), 1000));
    assert_true(flow_add(&flow, &items[1].item, 1, STR("y"), 2000));
    assert_true(flow_count_full(&flow, 7));
    assert_int_equal(flow_read(&flow, bands, 4), 2);
    assert_int_equal(bands[0].priority, 7);
    assert_int_equal(bands[0].n_full, 1);
    assert_int_equal(bands[1].n_waiting, 2);
    assert_int_equal(bands[1].n_bytes, 65);
    assert_int_equal(bands[1].n_ids, 2);
    assert_int_equal(flow_read(&flow, bands, 1), 1);
    flow_remove(&flow, &items[0].item, FLOW_DISPATCHED, 5000);
    flow_forget(&flow, keep_seven, NULL);
    assert_int_equal(flow_read(&flow, bands, 4), 2);        /* something waits there */
    flow_remove(&flow, &items[1].item, FLOW_EXPIRED, 1500); /* a clock that went back */
    assert_int_equal(flow_read(&flow, bands, 4), 2);
    assert_int_equal(bands[1].waited[FLOW_DISPATCHED].count, 1);
    assert_int_equal(bands[1].waited[FLOW_DISPATCHED].sum, 4000);
    assert_int_equal(bands[1].waited[FLOW_EXPIRED].sum, 0);
    assert_int_equal(bands[1].n_waiting + bands[1].n_bytes + bands[1].n_ids, 0);
    flow_forget(&flow, keep_seven, NULL);
    assert_int_equal(flow_read(&flow, bands, 4), 1);
    flow_fini(&flow);
}

/* ---- many ids -------------------------------------------------------------------------------- */

enum { MANY = 100000, ID_BYTES = 128 };

/* Ids as long as a header may be, which differ in one byte, cost no more than short ones. */
static void a_hundred_thousand_ids(void **state) {
    struct flow flow;
    struct waiting *items = calloc(MANY, sizeof(*items));
    static char id[4096];
    (void)state;
    assert_non_null(items);
    flow_init(&flow);
    memset(id, 'x', sizeof(id));
    size_t n_before = mallinfo2().uordblks; /* with a sanitizer's malloc it stays 0 */
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(id + sizeof(id) - 16, 16, "%u", i);
        items[i] = (struct waiting){.name = i, .places = 1};
        assert_true(flow_add(&flow, &items[i].item, 0, str_make(id, sizeof(id)), 0));
    }
    assert_int_equal(flow.n_ids, MANY);
    assert_in_range(mallinfo2().uordblks - n_before, 0, (size_t)MANY * ID_BYTES);
    assert_in_range(flow.slots_mask, MANY / 2 - 1, 2 * MANY);
    for (unsigned i = 0; i < MANY; i++) { /* each had its turn once */
        struct waiting *next = first(&flow, 1);
        assert_ptr_equal(next, &items[i]);
        flow_call(&flow, &next->item);
        flow_remove(&flow, &next->item, FLOW_DISPATCHED, 0);
    }
    assert_int_equal(flow.n_ids, 0);
    flow_fini(&flow);
    free(items);
}

/* ---- any order of events --------------------------------------------------------------------- */

enum { ITEMS = 60, IDS = 5, BANDS = 3, STEPS = 200000 };

struct world {
    struct flow flow;
    struct waiting items[ITEMS];
    struct dice dice;
    unsigned room;
    unsigned passed[BANDS][IDS]; /* turns of others since this id had its own, or did not fit */
    unsigned n_called[ITEMS], n_arrived[ITEMS], n_gone[ITEMS];
};

static bool fits_now(const struct world *world, const struct waiting *item) {
    return item->item.state == FLOW_QUEUED && (item->places & world->room) != 0;
}

static void judge_turns(struct world *world, const struct waiting *called) {
    bool ready[IDS] = {false};
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *other = &world->items[i];
        if (fits_now(world, other) && other->priority == called->priority) {
            ready[other->id] = true;
        }
    }
    for (unsigned id = 0; id < IDS; id++) {
        unsigned *passed = &world->passed[called->priority][id];
        *passed = ready[id] && id != called->id ? *passed + 1 : 0;
        assert_in_range(*passed, 0, IDS - 1);
    }
}

/* Nobody who fits is of a higher priority, or came before it under the same id. */
static void judge(struct world *world, const struct waiting *called) {
    for (unsigned i = 0; i < ITEMS; i++) {
        const struct waiting *other = &world->items[i];
        if (fits_now(world, other)) {
            assert_non_null(called);
            assert_true(other->priority <= called->priority);
            assert_false(other->priority == called->priority && other->id == called->id &&
                         other->item.number < called->item.number);
        }
    }
}

static void call_first(struct world *world) {
    struct waiting *called = first(&world->flow, world->room);
    judge(world, called);
    if (called) {
        assert_true(fits_now(world, called));
        judge_turns(world, called);
        flow_call(&world->flow, &called->item);
        world->n_called[called->name]++;
    }
}

/* Nothing else is queued under its id. */
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
    item->places = 1 + dice_below(&world->dice, 7);
    item->priority = dice_below(&world->dice, BANDS);
    item->id = dice_below(&world->dice, IDS);
    item->item.n_bytes = dice_below(&world->dice, 100);
    if (is_new(world, item)) {
        world->passed[item->priority][item->id] = 0; /* behind all others */
    }
    assert_true(flow_add(&world->flow, &item->item, item->priority, str_of(ids[item->id]), 0));
    world->n_arrived[item->name]++;
}

static void step(struct world *world) {
    struct waiting *item = &world->items[dice_below(&world->dice, ITEMS)];
    switch (dice_below(&world->dice, 8)) {
    case 0:
        world->room = dice_below(&world->dice, 8);
        break;
    case 1:
    case 2:
        call_first(world);
        break;
    default:
        if (item->item.state == FLOW_OUT) {
            arrive(world, item);
        } else if (item->item.state == FLOW_CALLED || dice_below(&world->dice, 8) == 0) {
            flow_remove(&world->flow, &item->item, FLOW_ABORTED, 0);
            world->n_gone[item->name]++;
        }
        break;
    }
}

static void whatever_happens(void **state) {
    static struct world world;
    struct flow_band_numbers bands[BANDS];
    (void)state;
    flow_init(&world.flow);
    for (unsigned i = 0; i < ITEMS; i++) {
        world.items[i].name = i;
    }
    for (unsigned n = 0; n < STEPS; n++) {
        uint64_t n_queued = 0, n_called = 0, n_bytes = 0;
        step(&world);
        for (unsigned i = 0; i < ITEMS; i++) {
            n_queued += world.items[i].item.state == FLOW_QUEUED;
            n_called += world.items[i].item.state == FLOW_CALLED;
            n_bytes += world.items[i].item.n_bytes * (world.items[i].item.state != FLOW_OUT);
        }
        assert_int_equal(world.flow.n_queued, n_queued);
        assert_int_equal(world.flow.n_called, n_called);
        assert_int_equal(world.flow.n_bytes, n_bytes);
    }
    for (unsigned i = 0; i < ITEMS; i++) {
        bool waits = world.items[i].item.state != FLOW_OUT;
        assert_int_equal(world.n_arrived[i], world.n_gone[i] + waits);
        assert_in_range(world.n_called[i], 1, world.n_arrived[i]);
        flow_remove(&world.flow, &world.items[i].item, FLOW_ABORTED, 0);
    }
    assert_int_equal(flow_read(&world.flow, bands, BANDS), BANDS);
    for (unsigned i = 0; i < BANDS; i++) {
        assert_int_equal(bands[i].n_waiting + bands[i].n_bytes + bands[i].n_ids, 0);
    }
    flow_fini(&world.flow);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order),
        cmocka_unit_test(who_fits_nowhere_holds_nobody_up),
        cmocka_unit_test(one_that_is_put_back_has_its_place),
        cmocka_unit_test(from_the_middle),
        cmocka_unit_test(what_is_full),
        cmocka_unit_test(what_is_full_of_the_others),
        cmocka_unit_test(numbers),
        cmocka_unit_test(a_hundred_thousand_ids),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests_name("pool/flow", tests, NULL, NULL);
}
