/* A view that has followed every change equals a new one. */
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
    struct prng prng;
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
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->pool.reader);
    return snapshot->members[prng_below(&world->prng, snapshot->n_members)].endpoint;
}

static void say_load(struct world *world) {
    struct prng *prng = &world->prng;
    struct endpoint *endpoint = roll_endpoint(world);
    struct endpoint_load load = {.asked_ns = world->now_ns,
                                 .until_ns = world->now_ns + prng_below(prng, 100),
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = prng_below(prng, 32),
                                 .n_waiting = prng_below(prng, 5),
                                 .n_running = prng_below(prng, 5),
                                 .kv_cache_used = (float)prng_double(prng),
                                 .max_adapters = prng_below(prng, 2)};
    pool_set_load(world->pool.pool, endpoint, &load);
}

/* A request ends, and another starts if possible. */
static void move_a_request(struct world *world) {
    struct pool_ticket *ticket = &world->tickets[prng_below(&world->prng, TICKETS)];
    struct pool_request request = {.n_fallbacks = prng_below(&world->prng, 3)};
    struct pool_pick pick;
    struct error err;
    pool_release_ticket(world->pool.pool, ticket);
    if (pool_pick(world->pool.reader, &request, &pick, &err) == ST_OK) {
        *ticket = pick.ticket;
    }
}

static void change_something(struct world *world) {
    struct prng *prng = &world->prng;
    switch (prng_below(prng, 8)) {
    case 0:
    case 1:
        say_load(world);
        break;
    case 2:
        pool_set_ready(world->pool.pool, roll_endpoint(world), prng_below(prng, 4) > 0);
        break;
    case 3:
        pool_report_refused(world->pool.pool, roll_endpoint(world));
        break;
    case 4:
        pool_report_answered(world->pool.pool, roll_endpoint(world));
        break;
    case 5:
        world->now_ns += prng_below(prng, 30);
        clock_set_fake_ns(world->now_ns);
        break;
    default:
        move_a_request(world);
        break;
    }
    if (prng_below(prng, 100) == 0) {
        fixture_update(world->pool.pool, spec_of(1 + prng_below(prng, MOST)));
    }
}

static void assert_same(const struct pool_view *one, const struct pool_view *other, uint32_t n) {
    assert_int_equal(one->n_ready, other->n_ready);
    assert_int_equal(one->n_eligible, other->n_eligible);
    assert_int_equal(one->n_known, other->n_known);
    assert_true(one->ready_in_flight == other->ready_in_flight);
    assert_true(!one->is_mixed || one->known_running == other->known_running);
    assert_int_equal(one->is_mixed, other->is_mixed);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = one->index_of[i], b = other->index_of[i];
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
        assert_int_equal(one->columns.last_cold_request[a], other->columns.last_cold_request[b]);
        assert_true(one->columns.in_flight[a] == other->columns.in_flight[b]);
        assert_true(one->columns.n_waiting[a] == other->columns.n_waiting[b]);
        assert_true(one->columns.n_running[a] == other->columns.n_running[b]);
        assert_true(one->columns.kv_cache_used[a] == other->columns.kv_cache_used[b]);
    }
}

/* Sometimes more changes happen than the list has entries. */
static void pool_view_updated_equals_new_view(void **state) {
    struct world world = {.prng = {21}, .now_ns = 1000};
    struct pool_view view = {0};
    struct error err;
    (void)state;
    clock_set_fake_ns(world.now_ns);
    fixture_open(&world.pool, spec_of(MOST));
    for (int i = 0; i < STEPS; i++) {
        uint32_t n_changes = prng_below(&world.prng, 20) > 0 ? 2 : 600;
        for (uint32_t k = 0; k < n_changes; k++) {
            change_something(&world);
        }
        const struct pool_snapshot *snapshot = pool_reader_refresh(world.pool.reader);
        struct pool_view fresh = {0};
        assert_int_equal(pool_view_update(&view, snapshot, world.now_ns, &err), ST_OK);
        assert_int_equal(pool_view_update(&fresh, snapshot, world.now_ns, &err), ST_OK);
        assert_same(&view, &fresh, snapshot->n_members);
        pool_view_fini(&fresh);
    }
    for (int i = 0; i < TICKETS; i++) {
        pool_release_ticket(world.pool.pool, &world.tickets[i]);
    }
    pool_view_fini(&view);
    fixture_close(&world.pool);
    clock_set_fake_ns(0);
}

/* An endpoint without a report is compared like with like: with the others' running requests, none
 * of its requests wait where it has as many in flight as they have. */
static void pool_view_endpoint_without_report_is_not_busy(void **state) {
    struct fixture pool;
    struct pool_view view = {0};
    struct pool_pick picks[16];
    struct error err;
    (void)state;
    clock_set_fake_ns(1000);
    fixture_open(&pool, fixture_spec_of(4));
    const struct pool_snapshot *snapshot = pool_reader_refresh(pool.reader);
    for (int i = 0; i < 16; i++) { /* four each */
        picks[i] = fixture_pick(&pool);
    }
    for (uint32_t reported = 0; reported < 4; reported++) {
        assert_int_equal(pool_view_update(&view, snapshot, 1000, &err), ST_OK);
        for (uint32_t i = 0; i < 4; i++) {
            float waiting = view.columns.n_waiting[view.index_of[i]];
            assert_true(waiting == (reported == 0 ? 4.f : 0.f));
        }
        struct endpoint_load load = {.asked_ns = 1000,
                                     .until_ns = 5000,
                                     .in_flight = 4,
                                     .known = LOAD_WAITING | LOAD_RUNNING,
                                     .n_running = 4};
        pool_set_load(pool.pool, snapshot->members[reported].endpoint, &load);
    }
    for (int i = 0; i < 16; i++) {
        pool_release_ticket(pool.pool, &picks[i].ticket);
    }
    pool_view_fini(&view);
    fixture_close(&pool);
    clock_set_fake_ns(0);
}

static void pool_view_of_empty_pool_has_no_candidates(void **state) {
    struct fixture pool;
    struct pool_view view = {0};
    struct error err;
    (void)state;
    fixture_open(&pool, fixture_spec());
    assert_int_equal(pool_view_update(&view, pool_reader_refresh(pool.reader), 1, &err), ST_OK);
    assert_int_equal(view.n_eligible, 0);
    pool_view_fini(&view);
    fixture_close(&pool);
}

static void pool_changes_overwritten_entry_is_detected(void **state) {
    _Atomic uint64_t entries[4] = {0};
    struct pool_changes changes = {.mask = 3, .entries = entries};
    uint32_t member;
    (void)state;
    assert_false(pool_changes_get(&changes, 0, &member));
    for (uint32_t i = 0; i < 6; i++) {
        pool_changes_add(&changes, 10 + i);
    }
    assert_int_equal(pool_changes_count(&changes), 6);
    assert_false(pool_changes_get(&changes, 1, &member));
    assert_true(pool_changes_get(&changes, 2, &member));
    assert_int_equal(member, 12);
    assert_true(pool_changes_get(&changes, 5, &member));
    assert_int_equal(member, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_view_endpoint_without_report_is_not_busy),
        cmocka_unit_test(pool_view_updated_equals_new_view),
        cmocka_unit_test(pool_view_of_empty_pool_has_no_candidates),
        cmocka_unit_test(pool_changes_overwritten_entry_is_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
