/* Which running requests are ended for which waiting ones, how many at a time, and when again. */
#include "pick/pool/flow/evict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/flow/wait_fixture.h"
#include "pick/pool/state.h"

static const uint64_t MS = 1000000;
enum { GRACE_MS = 10, TIMEOUT_MS = 10000 };

static struct pool_wakeup wakeup;

static void on_call(void *user) {
    (void)user;
}

/* Room for so many requests. */
static struct pool_spec *spec_of(uint64_t most) {
    struct pool_spec *spec = wait_fixture_spec(1, most);
    static const struct pool_objective lowest = {STR("lowest"), -7};
    pool_spec_add_objective(spec, &lowest);
    spec->detector.kind = DETECTOR_REQUESTS;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.evicts = true;
    spec->flow_control.evict_grace_ns = GRACE_MS * MS;
    return spec;
}

static void open_pool(struct fixture *fixture, struct pool_spec *spec) {
    clock_set_fake_ns(1000 * MS);
    fixture_open(fixture, spec);
    pool_wakeup_init(&wakeup, on_call, NULL);
}

static void close_pool(struct fixture *fixture) {
    struct pool_eviction_stats stats;
    pool_get_eviction(fixture->pool, &stats);
    assert_int_equal(wait_fixture_n(fixture->pool) + stats.n_leases + stats.n_revocable, 0);
    assert_int_equal(stats.n_revoked, stats.n_confirmed + stats.n_timed_out);
    assert_null(pool_wakeup_pop(&wakeup));
    fixture_close(fixture);
    pool_wakeup_fini(&wakeup);
    clock_set_fake_ns(0);
}

static enum status ask(struct fixture *fixture, struct waiting_request *asker,
                       const char *objective) {
    asker->request.objective = objective ? str_of(objective) : str_make(NULL, 0);
    asker->request.waiter = &asker->waiter;
    asker->waiter.wakeup = &wakeup;
    return pool_pick(fixture->reader, &asker->request, &asker->pick, &asker->err);
}

/* It is picked for, and sent. */
static void run(struct fixture *fixture, struct waiting_request *asker, const char *objective) {
    assert_int_equal(ask(fixture, asker, objective), ST_OK);
    assert_non_null(asker->pick.ticket.endpoint);
    pool_hold_lease(fixture->pool, &asker->waiter, asker->pick.priority);
}

static void wait_for(struct fixture *fixture, struct waiting_request *asker,
                     const char *objective) {
    assert_int_equal(ask(fixture, asker, objective), ST_OK);
    assert_null(asker->pick.ticket.endpoint);
}

/* As a session ends. */
static void end(struct fixture *fixture, struct waiting_request *asker) {
    pool_end_lease(fixture->pool, &asker->waiter);
    pool_release_ticket(fixture->pool, &asker->pick.ticket);
}

static void expect_revoked(struct waiting_request *asker) {
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &asker->waiter);
    assert_true(asker->waiter.lease.is_revoked);
    assert_false(asker->waiter.notified);
}

static void expect_called(struct fixture *fixture, struct waiting_request *asker,
                          const char *objective) {
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &asker->waiter);
    assert_false(asker->waiter.lease.is_revoked);
    run(fixture, asker, objective);
}

static void expect_none(void) {
    assert_null(pool_wakeup_pop(&wakeup));
}

static void pass_ms(struct fixture *fixture, uint64_t ms) {
    clock_set_fake_ns(clock_now_ns() + ms * MS);
    pool_tick(fixture->pool, 0);
}

/* The lowest priority first, and of one the newest; none of the waiting request's priority or
 * above, and none from 0 on. */
static void evict_lowest_then_newest_is_ended(void **state) {
    struct fixture fixture;
    struct waiting_request low[2] = {0}, lowest = {0}, plain = {0}, more[4] = {0};
    (void)state;
    open_pool(&fixture, spec_of(4));
    run(&fixture, &low[0], "low");
    run(&fixture, &lowest, "lowest");
    run(&fixture, &plain, NULL);
    run(&fixture, &low[1], "low");
    wait_for(&fixture, &more[0], "lowest");
    expect_none(); /* its own priority */
    wait_for(&fixture, &more[1], "low");
    expect_revoked(&lowest);
    expect_none(); /* until that one has ended */
    end(&fixture, &lowest);
    expect_called(&fixture, &more[1], "low");
    wait_for(&fixture, &more[2], NULL);
    expect_none(); /* until the grace has passed */
    pass_ms(&fixture, GRACE_MS - 1);
    expect_none();
    pass_ms(&fixture, 1);
    expect_revoked(&more[1]);
    end(&fixture, &more[1]);
    expect_called(&fixture, &more[2], NULL);
    wait_for(&fixture, &more[3], "high");
    pass_ms(&fixture, GRACE_MS);
    expect_revoked(&low[1]);
    end(&fixture, &low[1]);
    expect_called(&fixture, &more[3], "high");
    end(&fixture, &low[0]);
    expect_called(&fixture, &more[0], "lowest");
    end(&fixture, &more[0]);
    end(&fixture, &plain);
    end(&fixture, &more[2]);
    end(&fixture, &more[3]);
    close_pool(&fixture);
}

/* One where the pool is at its limit, at most two at a time where it is far beyond, and no more
 * than the priority that waits may have: the second one is not of its own. */
static void evict_as_many_as_are_needed(void **state) {
    struct fixture fixture;
    struct pool_eviction_stats stats;
    struct waiting_request low[6] = {0}, lowest = {0}, more = {0};
    (void)state;
    open_pool(&fixture, spec_of(8));
    run(&fixture, &lowest, "lowest");
    for (int i = 0; i < 6; i++) {
        run(&fixture, &low[i], "low");
    }
    fixture_update(fixture.pool, spec_of(4)); /* seven of four */
    wait_for(&fixture, &more, "low");
    expect_revoked(&lowest);
    expect_none();
    pool_get_eviction(fixture.pool, &stats);
    assert_true(fabs(stats.target - 0.75) < 1e-9 && fabs(stats.pending - 1.75 / 7) < 1e-9);
    pool_dequeue(fixture.pool, &more.waiter, FLOW_ABORTED);
    end(&fixture, &lowest);
    wait_for(&fixture, &more, "high");
    pass_ms(&fixture, GRACE_MS);
    expect_revoked(&low[5]);
    expect_revoked(&low[4]);
    expect_none();
    end(&fixture, &low[5]);
    pass_ms(&fixture, GRACE_MS);
    expect_none(); /* the other one has not ended */
    end(&fixture, &low[4]);
    pass_ms(&fixture, GRACE_MS); /* four of four: still at the limit */
    expect_revoked(&low[3]);
    expect_none();
    end(&fixture, &low[3]);
    expect_called(&fixture, &more, "high");
    pool_get_eviction(fixture.pool, &stats);
    assert_int_equal(stats.n_revoked, 4);
    assert_int_equal(stats.n_confirmed, 4);
    end(&fixture, &more);
    for (int i = 0; i < 3; i++) {
        end(&fixture, &low[i]);
    }
    close_pool(&fixture);
}

/* One that does not end holds up the others no longer than the time-out; its end counts no more. */
static void evict_request_that_does_not_end_times_out(void **state) {
    struct fixture fixture;
    struct pool_eviction_stats stats;
    struct waiting_request low[2] = {0}, more = {0};
    (void)state;
    open_pool(&fixture, spec_of(2));
    run(&fixture, &low[0], "low");
    run(&fixture, &low[1], "low");
    wait_for(&fixture, &more, "high");
    expect_revoked(&low[1]);
    pass_ms(&fixture, TIMEOUT_MS - 1);
    expect_none();
    pass_ms(&fixture, 1);
    pass_ms(&fixture, GRACE_MS);
    expect_revoked(&low[0]);
    pool_get_eviction(fixture.pool, &stats);
    assert_int_equal(stats.n_timed_out, 1);
    end(&fixture, &low[1]);
    expect_called(&fixture, &more, "high");
    end(&fixture, &low[0]);
    end(&fixture, &more);
    close_pool(&fixture);
}

/* The response of the chosen one ends before it was told: nothing is sent to it, and the waiting
 * request has its place. So where its stream ends at the same time. */
static void evict_request_that_has_ended_is_not_told(void **state) {
    struct fixture fixture;
    struct waiting_request low = {0}, more = {0};
    (void)state;
    open_pool(&fixture, spec_of(1));
    run(&fixture, &low, "low");
    wait_for(&fixture, &more, "high");
    end(&fixture, &low);
    pool_end_lease(fixture.pool, &low.waiter); /* again */
    expect_called(&fixture, &more, "high");
    end(&fixture, &more);
    close_pool(&fixture);
}

/* None is ended for a request that has left the queue, or been notified already; nor without the
 * setting, nor for what waits for an endpoint, not for capacity. */
static void evict_needs_a_request_that_waits_for_capacity(void **state) {
    struct fixture fixture;
    struct waiting_request low[2] = {0}, more[2] = {0};
    (void)state;
    struct pool_spec *spec = spec_of(2);
    spec->flow_control.evicts = false;
    open_pool(&fixture, spec);
    run(&fixture, &low[0], "low");
    run(&fixture, &low[1], "low");
    wait_for(&fixture, &more[0], "high");
    pass_ms(&fixture, 100);
    expect_none();
    end(&fixture, &low[1]);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[0].waiter);
    fixture_update(fixture.pool, spec_of(2)); /* it is notified, and has not picked again */
    pass_ms(&fixture, 100);
    expect_none();
    pool_dequeue(fixture.pool, &more[0].waiter, FLOW_ABORTED);
    pass_ms(&fixture, 100);
    expect_none();
    spec = spec_of(1);
    spec->flow_control.no_endpoint_wait_ns = 1000000 * MS;
    spec->n_endpoints = 0;
    fixture_update(fixture.pool, spec);
    wait_for(&fixture, &more[1], "high");
    pass_ms(&fixture, 100);
    expect_none();
    pool_dequeue(fixture.pool, &more[1].waiter, FLOW_ABORTED);
    end(&fixture, &low[0]);
    close_pool(&fixture);
}

/* By the ceiling of the priority that waits: 0.5 of eight for the lowest that are named. */
static void evict_makes_room_below_the_ceiling(void **state) {
    struct fixture fixture;
    struct pool_eviction_stats stats;
    struct waiting_request low[5] = {0}, more = {0};
    struct pool_spec *spec = spec_of(4);
    (void)state;
    spec->flow_control.usage = (struct usage_limit){USAGE_STATIC, 0, 0.5};
    open_pool(&fixture, spec_of(4));
    for (int i = 0; i < 3; i++) {
        run(&fixture, &low[i], "low");
    }
    fixture_update(fixture.pool, spec);
    wait_for(&fixture, &more, NULL);
    expect_revoked(&low[2]);
    expect_none();
    pool_get_eviction(fixture.pool, &stats);
    assert_true(fabs(stats.target - 0.25) < 1e-9);
    end(&fixture, &low[2]);
    pass_ms(&fixture, GRACE_MS); /* 0.5 is not below the ceiling */
    expect_revoked(&low[1]);
    end(&fixture, &low[1]);
    expect_called(&fixture, &more, NULL);
    end(&fixture, &more);
    end(&fixture, &low[0]);
    close_pool(&fixture);
}

/* ---- random events --------------------------------------------------------------------------- */

enum { ASKERS = 30, STEPS = 40000 };

struct world {
    struct fixture fixture;
    struct waiting_request askers[ASKERS];
    bool is_told[ASKERS];
    struct prng prng;
    uint64_t n_told;
};

/* Most can be ended, and seldom others come. */
static const char *objective_of(size_t i) {
    return i % 8 == 0 ? NULL : i % 8 == 1 ? "high" : i % 2 == 0 ? "low" : "lowest";
}

static void take_one(struct world *world) {
    struct pool_waiter *waiter = pool_wakeup_pop(&wakeup);
    struct waiting_request *asker = (struct waiting_request *)(void *)waiter;
    if (!waiter) {
        return;
    }
    if (waiter->lease.is_revoked) {
        assert_true(waiter->lease.priority < 0 && waiter->lease.is_held);
        world->is_told[asker - world->askers] = true;
        world->n_told++;
        return;
    }
    const char *objective = objective_of((size_t)(asker - world->askers));
    assert_int_equal(ask(&world->fixture, asker, objective), ST_OK);
    if (asker->pick.ticket.endpoint) {
        pool_hold_lease(world->fixture.pool, &asker->waiter, asker->pick.priority);
    }
}

static void random_step(struct world *world) {
    size_t i = prng_below(&world->prng, ASKERS);
    struct waiting_request *asker = &world->askers[i];
    uint32_t what = prng_below(&world->prng, 8);
    if (what == 0) {
        pass_ms(&world->fixture, prng_below(&world->prng, 15));
    } else if (what < 3) {
        take_one(world);
    } else if (asker->pick.ticket.endpoint) {
        if (world->is_told[i] || prng_below(&world->prng, 6) == 0) {
            end(&world->fixture, asker);
            world->is_told[i] = false;
            *asker = (struct waiting_request){.waits = false};
        }
    } else if (asker->waiter.item.state == FLOW_IDLE) {
        assert_int_equal(ask(&world->fixture, asker, objective_of(i)), ST_OK);
        if (asker->pick.ticket.endpoint) {
            pool_hold_lease(world->fixture.pool, &asker->waiter, asker->pick.priority);
        }
    } else if (prng_below(&world->prng, 5) == 0) {
        pool_dequeue(world->fixture.pool, &asker->waiter, FLOW_ABORTED);
    }
}

static void evict_random_operations_keep_counts(void **state) {
    static struct world world;
    struct pool_eviction_stats stats;
    (void)state;
    world.prng = (struct prng){11};
    open_pool(&world.fixture, spec_of(12));
    for (unsigned n = 0; n < STEPS; n++) {
        random_step(&world);
        uint64_t n_leases = 0, n_revocable = 0;
        for (int i = 0; i < ASKERS; i++) {
            const struct pool_lease *lease = &world.askers[i].waiter.lease;
            n_leases += lease->is_held;
            n_revocable += lease->is_held && lease->priority < 0 && !lease->is_revoked;
        }
        pool_get_eviction(world.fixture.pool, &stats);
        assert_int_equal(stats.n_leases, n_leases);
        assert_int_equal(stats.n_revocable, n_revocable);
        assert_in_range(stats.n_revoked - stats.n_confirmed - stats.n_timed_out, 0, 2);
    }
    assert_true(world.n_told > 100);
    for (int i = 0; i < ASKERS; i++) {
        pool_dequeue(world.fixture.pool, &world.askers[i].waiter, FLOW_ABORTED);
        end(&world.fixture, &world.askers[i]);
    }
    close_pool(&world.fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evict_lowest_then_newest_is_ended),
        cmocka_unit_test(evict_as_many_as_are_needed),
        cmocka_unit_test(evict_request_that_does_not_end_times_out),
        cmocka_unit_test(evict_request_that_has_ended_is_not_told),
        cmocka_unit_test(evict_needs_a_request_that_waits_for_capacity),
        cmocka_unit_test(evict_makes_room_below_the_ceiling),
        cmocka_unit_test(evict_random_operations_keep_counts),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/evict", tests, NULL, NULL);
}
