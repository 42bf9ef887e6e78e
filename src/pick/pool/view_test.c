/* A view that has followed every change is the same as one that has just begun. */
#include "pick/pool/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"

enum { MOST = 200, TICKETS = 64, STEPS = 3000 };

struct world {
    struct fixture pool;
    struct dice dice;
    uint64_t now_ns;
    struct pool_ticket tickets[TICKETS];
};

static struct pool_spec *spec_of(uint32_t n) {
    struct pool_spec *spec = fixture_spec_of(n);
    spec->health.kind = POOL_HEALTH_TCP;
    spec->refused_ns = 50;
    return spec;
}

static struct endpoint *roll_endpoint(struct world *world) {
    const struct pool_snapshot *snapshot = pool_look(world->pool.reader);
    return snapshot->members[dice_below(&world->dice, snapshot->n_members)].endpoint;
}

static void say_load(struct world *world) {
    struct dice *dice = &world->dice;
    struct endpoint *endpoint = roll_endpoint(world);
    struct endpoint_load load = {.asked_ns = world->now_ns,
                                 .until_ns = world->now_ns + dice_below(dice, 100),
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = dice_below(dice, 32),
                                 .n_waiting = dice_below(dice, 5),
                                 .n_running = dice_below(dice, 5),
                                 .kv_cache_used = (float)dice_unit(dice),
                                 .most_adapters = dice_below(dice, 2)};
    pool_set_load(world->pool.pool, endpoint, &load);
}

/* A request ends, and another begins if it can. */
static void move_a_request(struct world *world) {
    struct pool_ticket *ticket = &world->tickets[dice_below(&world->dice, TICKETS)];
    struct pool_request request = {.n_fallbacks = dice_below(&world->dice, 3)};
    struct pool_pick pick;
    struct error err;
    pool_give_back(world->pool.pool, ticket);
    if (pool_pick(world->pool.reader, &request, &pick, &err) == ST_OK) {
        *ticket = pick.ticket;
    }
}

static void change_something(struct world *world) {
    struct dice *dice = &world->dice;
    switch (dice_below(dice, 8)) {
    case 0:
    case 1:
        say_load(world);
        break;
    case 2:
        pool_set_ready(world->pool.pool, roll_endpoint(world), dice_below(dice, 4) > 0);
        break;
    case 3:
        pool_refused(world->pool.pool, roll_endpoint(world));
        break;
    case 4:
        pool_answered(world->pool.pool, roll_endpoint(world));
        break;
    case 5:
        world->now_ns += dice_below(dice, 30);
        clock_drive_ns(world->now_ns);
        break;
    default:
        move_a_request(world);
        break;
    }
    if (dice_below(dice, 100) == 0) {
        fixture_update(world->pool.pool, spec_of(1 + dice_below(dice, MOST)));
    }
}

static void assert_same(const struct pool_view *one, const struct pool_view *other, uint32_t n) {
    assert_int_equal(one->n_ready, other->n_ready);
    assert_int_equal(one->n_eligible, other->n_eligible);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = one->place_of[i], b = other->place_of[i];
        assert_int_equal(one->columns.member[a], i);
        assert_int_equal(a < one->n_ready, b < other->n_ready);
        assert_int_equal(a < one->n_eligible, b < other->n_eligible);
        assert_int_equal(one->columns.address[a], other->columns.address[b]);
        assert_int_equal(one->columns.adapters[a], other->columns.adapters[b]);
        assert_int_equal(one->columns.known[a], other->columns.known[b]);
        assert_true(one->columns.n_tokens[a] == other->columns.n_tokens[b]);
        assert_true(one->columns.first_byte_s[a] == other->columns.first_byte_s[b]);
        assert_true(one->columns.answer_s[a] == other->columns.answer_s[b]);
        assert_int_equal(one->columns.answered[a], other->columns.answered[b]);
        assert_int_equal(one->columns.cold_turn[a], other->columns.cold_turn[b]);
        assert_true(one->columns.in_flight[a] == other->columns.in_flight[b]);
        assert_true(one->columns.n_waiting[a] == other->columns.n_waiting[b]);
        assert_true(one->columns.n_running[a] == other->columns.n_running[b]);
        assert_true(one->columns.kv_cache_used[a] == other->columns.kv_cache_used[b]);
    }
}

/* Sometimes more changes come than the list has room for. */
static void is_as_one_that_just_began(void **state) {
    struct world world = {.dice = {21}, .now_ns = 1000};
    struct pool_view view = {0};
    struct error err;
    (void)state;
    clock_drive_ns(world.now_ns);
    fixture_open(&world.pool, spec_of(MOST));
    for (int i = 0; i < STEPS; i++) {
        uint32_t n_changes = dice_below(&world.dice, 20) > 0 ? 2 : 600;
        for (uint32_t k = 0; k < n_changes; k++) {
            change_something(&world);
        }
        const struct pool_snapshot *snapshot = pool_look(world.pool.reader);
        struct pool_view fresh = {0};
        assert_int_equal(pool_view_follow(&view, snapshot, world.now_ns, &err), ST_OK);
        assert_int_equal(pool_view_follow(&fresh, snapshot, world.now_ns, &err), ST_OK);
        assert_same(&view, &fresh, snapshot->n_members);
        pool_view_fini(&fresh);
    }
    for (int i = 0; i < TICKETS; i++) {
        pool_give_back(world.pool.pool, &world.tickets[i]);
    }
    pool_view_fini(&view);
    fixture_close(&world.pool);
    clock_drive_ns(0);
}

static void of_nothing(void **state) {
    struct fixture pool;
    struct pool_view view = {0};
    struct error err;
    (void)state;
    fixture_open(&pool, fixture_spec());
    assert_int_equal(pool_view_follow(&view, pool_look(pool.reader), 1, &err), ST_OK);
    assert_int_equal(view.n_eligible, 0);
    pool_view_fini(&view);
    fixture_close(&pool);
}

static void an_entry_that_was_overwritten_is_seen(void **state) {
    _Atomic uint64_t entries[4] = {0};
    struct pool_changes changes = {.mask = 3, .entries = entries};
    uint32_t member;
    (void)state;
    assert_false(pool_changes_read(&changes, 0, &member));
    for (uint32_t i = 0; i < 6; i++) {
        pool_changes_note(&changes, 10 + i);
    }
    assert_int_equal(pool_changes_count(&changes), 6);
    assert_false(pool_changes_read(&changes, 1, &member));
    assert_true(pool_changes_read(&changes, 2, &member));
    assert_int_equal(member, 12);
    assert_true(pool_changes_read(&changes, 5, &member));
    assert_int_equal(member, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_one_that_just_began),
        cmocka_unit_test(of_nothing),
        cmocka_unit_test(an_entry_that_was_overwritten_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
