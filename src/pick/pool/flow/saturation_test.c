/* A pool that is measured as a whole: what each detector counts, which stage decides, and which
 * requests wait for it, wherever they go. */
#include "pick/pool/flow/saturation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/flow/wait_fixture.h"
#include "pick/pool/state.h"

static const uint64_t MS = 1000000;

static void assert_near(double value, double expected) {
    assert_true(fabs(value - expected) < 1e-7);
}

static struct pool_wakeup wakeup;

static void on_call(void *user) {
    (void)user;
}

static struct pool_spec *spec_of(uint32_t n, enum detector_kind kind) {
    struct pool_spec *spec = wait_fixture_spec(n, 2);
    spec->detector = (struct pool_detector){.kind = kind, .max_tokens = 100};
    spec->flow_control.sheddable_waits = true;
    if (kind == DETECTOR_LOADS) {
        spec->max_in_flight = 0;
        spec->queue_depth = 5;
        spec->kv_cache = 0.8;
    }
    return spec;
}

static void open_pool(struct fixture *fixture, struct pool_spec *spec) {
    clock_set_fake_ns(1000 * MS);
    fixture_open(fixture, spec);
    pool_wakeup_init(&wakeup, on_call, NULL);
}

static void close_pool(struct fixture *fixture) {
    assert_int_equal(wait_fixture_n(fixture->pool), 0);
    fixture_close(fixture);
    pool_wakeup_fini(&wakeup);
    clock_set_fake_ns(0);
}

static enum status ask(struct fixture *fixture, struct waiting_request *asker) {
    asker->request.waiter = &asker->waiter;
    asker->waiter.wakeup = &wakeup;
    return pool_pick(fixture->reader, &asker->request, &asker->pick, &asker->err);
}

static void ask_and_wait(struct fixture *fixture, struct waiting_request *asker) {
    assert_int_equal(ask(fixture, asker), ST_OK);
    assert_null(asker->pick.ticket.endpoint);
}

static void ask_and_go(struct fixture *fixture, struct waiting_request *asker) {
    assert_int_equal(ask(fixture, asker), ST_OK);
    assert_non_null(asker->pick.ticket.endpoint);
}

static void expect_called(struct fixture *fixture, struct waiting_request *asker) {
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &asker->waiter);
    ask_and_go(fixture, asker);
}

static void give_back(struct fixture *fixture, struct waiting_request *asker) {
    pool_release_ticket(fixture->pool, &asker->pick.ticket);
}

static double saturation_of(struct fixture *fixture) {
    struct pool_saturation_stats stats;
    pool_get_saturation(fixture->pool, &stats);
    return stats.effective;
}

static void set_load(struct fixture *fixture, uint32_t i, uint32_t n_waiting, float used,
                     uint64_t valid_ms) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    struct endpoint *endpoint = snapshot->members[i].endpoint;
    pool_set_load(fixture->pool, endpoint,
                  &(struct endpoint_load){.asked_ns = clock_now_ns(),
                                          .until_ns = clock_now_ns() + valid_ms * MS,
                                          .in_flight = endpoint_in_flight(endpoint),
                                          .known = LOAD_WAITING | LOAD_KV_CACHE,
                                          .n_waiting = n_waiting,
                                          .kv_cache_used = used});
}

/* Two endpoints of two requests each: four go, all of them to one of the two, and a fifth waits. */
static void saturation_by_requests_is_of_the_whole_pool(void **state) {
    struct fixture fixture;
    struct endpoint_address address[2];
    struct subset subsets[2];
    struct waiting_request some[4] = {0}, more[3] = {0};
    (void)state;
    open_pool(&fixture, spec_of(2, DETECTOR_REQUESTS));
    for (uint32_t i = 0; i < 2; i++) {
        subsets[i] = wait_fixture_subset(&address[i], i);
    }
    for (int i = 0; i < 4; i++) {
        some[i].request.subset = &subsets[0];
        ask_and_go(&fixture, &some[i]);
        assert_near(saturation_of(&fixture), (i + 1) / 4.0);
    }
    more[0].request.subset = &subsets[1]; /* the endpoint is idle */
    ask_and_wait(&fixture, &more[0]);
    ask_and_wait(&fixture, &more[1]);
    more[2].request.objective = STR("high");
    ask_and_wait(&fixture, &more[2]);
    assert_null(pool_wakeup_pop(&wakeup));
    give_back(&fixture, &some[0]);
    expect_called(&fixture, &more[2]);
    give_back(&fixture, &some[1]); /* capacity at another endpoint than it may use */
    expect_called(&fixture, &more[0]);
    assert_true(
        endpoint_address_equal(&more[0].pick.ticket.endpoint->address, &subsets[1].items[0]));
    assert_null(pool_wakeup_pop(&wakeup));
    give_back(&fixture, &some[2]);
    expect_called(&fixture, &more[1]);
    give_back(&fixture, &some[3]);
    for (int i = 0; i < 3; i++) {
        give_back(&fixture, &more[i]);
    }
    assert_near(saturation_of(&fixture), 0);
    close_pool(&fixture);
}

/* As many are notified as the tokens that they have told allow. */
static void saturation_by_tokens_reserves_them(void **state) {
    struct fixture fixture;
    struct waiting_request one = {.request = {.n_tokens = 250}}, more[6] = {0};
    (void)state;
    open_pool(&fixture, spec_of(2, DETECTOR_TOKENS));
    ask_and_go(&fixture, &one); /* one request may be more than the pool has */
    assert_near(saturation_of(&fixture), 1.25);
    for (int i = 0; i < 6; i++) {
        more[i].request.n_tokens = 70;
        ask_and_wait(&fixture, &more[i]);
    }
    give_back(&fixture, &one);
    for (int i = 0; i < 3; i++) { /* 210 of 200 */
        assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[i].waiter);
    }
    assert_null(pool_wakeup_pop(&wakeup));
    assert_near(saturation_of(&fixture), 1.05);
    pool_dequeue(fixture.pool, &more[2].waiter, FLOW_ABORTED); /* its tokens are free again */
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[3].waiter);
    ask_and_go(&fixture, &more[3]);
    ask_and_go(&fixture, &more[0]);
    ask_and_go(&fixture, &more[1]);
    assert_near(saturation_of(&fixture), 1.05);
    pool_dequeue(fixture.pool, &more[5].waiter, FLOW_ABORTED);
    give_back(&fixture, &more[0]);
    expect_called(&fixture, &more[4]);
    give_back(&fixture, &more[1]);
    give_back(&fixture, &more[3]);
    give_back(&fixture, &more[4]);
    assert_near(saturation_of(&fixture), 0);
    close_pool(&fixture);
}

/* At one endpoint the requests are nearer to the limit, at the other one the tokens. */
static void saturation_hybrid_is_the_mean_of_the_nearer(void **state) {
    struct fixture fixture;
    struct endpoint_address address[2];
    struct subset subsets[2];
    struct waiting_request some[3] = {0}, more = {0};
    (void)state;
    open_pool(&fixture, spec_of(2, DETECTOR_HYBRID));
    for (uint32_t i = 0; i < 2; i++) {
        subsets[i] = wait_fixture_subset(&address[i], i);
    }
    for (int i = 0; i < 3; i++) {
        some[i].request.subset = &subsets[i < 2 ? 0 : 1];
        some[i].request.n_tokens = i < 2 ? 10 : 90;
        ask_and_go(&fixture, &some[i]);
    }
    assert_near(saturation_of(&fixture), (1 + 0.9) / 2);
    more.request.n_tokens = 10;
    more.request.subset = &subsets[1];
    ask_and_go(&fixture, &more);
    assert_near(saturation_of(&fixture), 1);
    give_back(&fixture, &some[1]);
    assert_near(saturation_of(&fixture), (0.5 + 1) / 2);
    give_back(&fixture, &some[0]);
    give_back(&fixture, &some[2]);
    give_back(&fixture, &more);
    close_pool(&fixture);
}

/* The mean of the endpoints with a recent load: one with a long queue holds up requests that the
 * other one could take. An old load stops nothing, unless the policy says so. */
static void saturation_by_loads_is_the_mean_of_recent_ones(void **state) {
    struct fixture fixture;
    struct waiting_request one[3] = {0};
    (void)state;
    open_pool(&fixture, spec_of(3, DETECTOR_LOADS));
    ask_and_go(&fixture, &one[0]); /* nothing is known */
    give_back(&fixture, &one[0]);
    assert_near(saturation_of(&fixture), 0);
    set_load(&fixture, 0, 8, 0.1f, 500);
    set_load(&fixture, 1, 1, 0.32f, 2000); /* 0.4 by its cache */
    assert_near(saturation_of(&fixture), (1.6 + 0.4) / 2);
    ask_and_wait(&fixture, &one[1]);
    clock_set_fake_ns(1499 * MS);
    pool_tick(fixture.pool, 0);
    assert_null(pool_wakeup_pop(&wakeup));
    clock_set_fake_ns(1500 * MS); /* the first load is too old */
    assert_near(saturation_of(&fixture), 0.4);
    pool_tick(fixture.pool, 0);
    expect_called(&fixture, &one[1]);
    set_load(&fixture, 0, 9, 0, 1000);
    set_load(&fixture, 2, 9, 0, 100);
    clock_set_fake_ns(2700 * MS); /* without a tick: a request looks for itself */
    ask_and_go(&fixture, &one[2]);
    give_back(&fixture, &one[1]);
    give_back(&fixture, &one[2]);
    close_pool(&fixture);
}

static void saturation_policy_saturated_stops_by_stale_loads(void **state) {
    struct fixture fixture;
    struct waiting_request one[2] = {0};
    struct pool_saturation_stats stats;
    struct pool_spec *spec = spec_of(2, DETECTOR_LOADS);
    (void)state;
    spec->detector.stale_is_saturated = true;
    open_pool(&fixture, spec);
    assert_near(saturation_of(&fixture), 1);
    ask_and_wait(&fixture, &one[0]);
    set_load(&fixture, 1, 0, 0, 200);
    assert_near(saturation_of(&fixture), 0.5 + 0.2 / 2); /* a slot is reserved */
    expect_called(&fixture, &one[0]);
    clock_set_fake_ns(1200 * MS);
    ask_and_wait(&fixture, &one[1]);
    pool_get_saturation(fixture.pool, &stats);
    assert_int_equal(stats.n_stale, 2);
    pool_dequeue(fixture.pool, &one[1].waiter, FLOW_ABORTED);
    give_back(&fixture, &one[0]);
    close_pool(&fixture);
}

/* The stage that is more saturated decides for all requests; one that only encodes does not count.
 */
static void saturation_of_stages_is_that_of_the_fuller(void **state) {
    static const struct pool_label roles[] = {{STR("llm-d.ai/role"), STR("prefill")},
                                              {STR("llm-d.ai/role"), STR("decode")},
                                              {STR("llm-d.ai/role"), STR("decode")},
                                              {STR("llm-d.ai/role"), STR("encode")},
                                              {STR("llm-d.ai/role"), STR("prefill-decode")}};
    struct fixture fixture;
    struct endpoint_address address[5];
    struct subset subsets[5];
    struct waiting_request some[4] = {0}, more = {0};
    struct pool_saturation_stats stats;
    struct pool_spec *spec = spec_of(0, DETECTOR_REQUESTS);
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i),
                                            .labels = {&roles[i], 1}};
        pool_spec_add_endpoint(spec, &wanted);
        subsets[i] = wait_fixture_subset(&address[i], i);
    }
    open_pool(&fixture, spec);
    for (int i = 0; i < 4; i++) {
        some[i].request.subset = &subsets[i < 2 ? 3 : i == 2 ? 0 : 4];
        ask_and_go(&fixture, &some[i]);
    }
    pool_get_saturation(fixture.pool, &stats);
    assert_near(stats.stages[SATURATION_PREFILL], 2 / 4.0);
    assert_near(stats.stages[SATURATION_DECODE], 1 / 6.0);
    assert_near(stats.effective, 0.5);
    struct waiting_request two[2] = {0};
    for (int i = 0; i < 2; i++) {
        two[i].request.subset = &subsets[0];
        ask_and_go(&fixture, &two[i]);
    }
    more.request.subset = &subsets[1];
    ask_and_wait(&fixture, &more);
    /* A stage of a request that was let in is not held up. */
    struct waiting_request late = {.request = {.subset = &subsets[1], .is_admitted = true}};
    ask_and_go(&fixture, &late);
    give_back(&fixture, &late);
    give_back(&fixture, &two[0]);
    expect_called(&fixture, &more);
    give_back(&fixture, &more);
    give_back(&fixture, &two[1]);
    for (int i = 0; i < 4; i++) {
        give_back(&fixture, &some[i]);
    }
    close_pool(&fixture);
}

/* Each priority up to its share of the whole; and without a queue the sheddable ones are refused,
 * others are not. */
static void saturation_ceilings_are_shares_of_the_whole(void **state) {
    struct fixture fixture;
    struct waiting_request some[4] = {0}, low[2] = {0}, high = {0};
    struct pool_spec *spec = spec_of(2, DETECTOR_REQUESTS);
    (void)state;
    spec->flow_control.usage = (struct usage_limit){USAGE_HOLDBACK_RANK, 0.5, 1};
    open_pool(&fixture, spec);
    low[0].request.objective = low[1].request.objective = STR("low");
    high.request.objective = STR("high");
    for (int i = 0; i < 2; i++) {
        some[i].request.objective = STR("high");
        ask_and_go(&fixture, &some[i]);
    }
    ask_and_wait(&fixture, &low[0]); /* half of it is used */
    ask_and_go(&fixture, &high);
    give_back(&fixture, &high);
    assert_null(pool_wakeup_pop(&wakeup));
    give_back(&fixture, &some[0]);
    expect_called(&fixture, &low[0]);
    give_back(&fixture, &low[0]);
    give_back(&fixture, &some[1]);
    spec = spec_of(1, DETECTOR_REQUESTS);
    spec->flow_control.on = false;
    fixture_update(fixture.pool, spec);
    for (int i = 0; i < 4; i++) {
        ask_and_go(&fixture, &some[i]);
    }
    low[1].waiter = (struct pool_waiter){.wakeup = &wakeup};
    assert_int_equal(ask(&fixture, &low[1]), ST_SATURATED);
    assert_non_null(strstr(low[1].err.text, "have as much together"));
    for (int i = 0; i < 4; i++) {
        give_back(&fixture, &some[i]);
    }
    close_pool(&fixture);
}

/* ---- random events --------------------------------------------------------------------------- */

enum { ENDPOINTS = 6, ASKERS = 40, STEPS = 30000 };

struct world {
    struct fixture fixture;
    struct waiting_request askers[ASKERS];
    struct endpoint_address addresses[ENDPOINTS];
    struct subset subsets[ENDPOINTS];
    struct prng prng;
};

static struct pool_spec *random_spec(struct world *world) {
    static const enum detector_kind kinds[] = {DETECTOR_NONE, DETECTOR_REQUESTS, DETECTOR_TOKENS,
                                               DETECTOR_HYBRID, DETECTOR_LOADS};
    static const struct pool_label roles[] = {{STR("llm-d.ai/role"), STR("prefill")},
                                              {STR("llm-d.ai/role"), STR("both")},
                                              {STR("llm-d.ai/role"), STR("encode")},
                                              {STR("x"), STR("y")}};
    struct pool_spec *spec = spec_of(0, kinds[prng_below(&world->prng, 5)]);
    spec->detector.stale_is_saturated = prng_below(&world->prng, 2) == 0;
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i),
                                            .labels = {&roles[prng_below(&world->prng, 4)], 1}};
        if (prng_below(&world->prng, 4) > 0) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    return spec;
}

/* Anew, from what the endpoints have. */
static void judge_sums(struct world *world) {
    struct pool *pool = world->fixture.pool;
    struct pool_saturation before, *now = &pool->saturation;
    lock_acquire(&pool->lock);
    (void)pool_is_gate_closed(pool, (struct pool_gate){.ceiling = 1}); /* what has expired */
    before = *now;
    pool_saturation_rebuild(pool, pool->snapshot);
    assert_int_equal(now->all.n, before.all.n);
    assert_int_equal(now->all.amount, before.all.amount);
    assert_int_equal(now->all.n_counted, before.all.n_counted);
    for (size_t i = 0; i < N_SATURATION_STAGES; i++) {
        assert_int_equal(now->stages[i].n, before.stages[i].n);
        assert_int_equal(now->stages[i].amount, before.stages[i].amount);
    }
    lock_release(&pool->lock);
}

/* No waiter is left that the pool has capacity for. */
static void judge_waiters(struct world *world) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->fixture.reader);
    bool is_open = saturation_of(&world->fixture) < 1;
    for (int i = 0; i < ASKERS && is_open; i++) {
        const struct waiting_request *asker = &world->askers[i];
        bool may = false;
        for (uint32_t k = 0; k < snapshot->n_members; k++) {
            may = may || !asker->request.subset ||
                  subset_has(asker->request.subset, &snapshot->members[k].address);
        }
        assert_false(asker->waiter.item.state == FLOW_QUEUED && may);
    }
}

static void begin(struct world *world, struct waiting_request *asker) {
    uint32_t which = prng_below(&world->prng, 2 * ENDPOINTS);
    *asker = (struct waiting_request){.request = {.n_tokens = prng_below(&world->prng, 60)}};
    asker->request.subset = which < ENDPOINTS ? &world->subsets[which] : NULL;
    enum status st = ask(&world->fixture, asker);
    assert_true(st == ST_OK || st == ST_NO_ENDPOINT);
}

static void random_step(struct world *world) {
    struct waiting_request *asker = &world->askers[prng_below(&world->prng, ASKERS)];
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->fixture.reader);
    struct pool_waiter *waiter;
    switch (prng_below(&world->prng, 16)) {
    case 0:
        clock_set_fake_ns(clock_now_ns() + prng_below(&world->prng, 100) * MS);
        pool_tick(world->fixture.pool, 0);
        break;
    case 1:
        if (prng_below(&world->prng, 20) == 0) {
            fixture_update(world->fixture.pool, random_spec(world));
        }
        break;
    case 2:
    case 3:
        if (snapshot->n_members > 0) {
            set_load(&world->fixture, prng_below(&world->prng, snapshot->n_members),
                     prng_below(&world->prng, 9), 0.3f, prng_below(&world->prng, 300));
        }
        break;
    case 4:
    case 5:
    case 6:
        if ((waiter = pool_wakeup_pop(&wakeup))) {
            enum status st = ask(&world->fixture, (struct waiting_request *)(void *)waiter);
            assert_true(st == ST_OK || st == ST_NO_ENDPOINT);
        }
        break;
    default:
        if (asker->pick.ticket.endpoint) {
            give_back(&world->fixture, asker);
        } else if (asker->waiter.item.state == FLOW_IDLE) {
            begin(world, asker);
        } else if (prng_below(&world->prng, 4) == 0) {
            pool_dequeue(world->fixture.pool, &asker->waiter, FLOW_ABORTED);
        }
        break;
    }
}

static void saturation_random_operations_keep_sums(void **state) {
    static struct world world;
    (void)state;
    world.prng = (struct prng){7};
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        world.subsets[i] = wait_fixture_subset(&world.addresses[i], i);
    }
    open_pool(&world.fixture, random_spec(&world));
    for (unsigned n = 0; n < STEPS; n++) {
        random_step(&world);
        judge_sums(&world);
        judge_waiters(&world);
    }
    for (int i = 0; i < ASKERS; i++) {
        pool_dequeue(world.fixture.pool, &world.askers[i].waiter, FLOW_ABORTED);
        give_back(&world.fixture, &world.askers[i]);
    }
    close_pool(&world.fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saturation_by_requests_is_of_the_whole_pool),
        cmocka_unit_test(saturation_by_tokens_reserves_them),
        cmocka_unit_test(saturation_hybrid_is_the_mean_of_the_nearer),
        cmocka_unit_test(saturation_by_loads_is_the_mean_of_recent_ones),
        cmocka_unit_test(saturation_policy_saturated_stops_by_stale_loads),
        cmocka_unit_test(saturation_of_stages_is_that_of_the_fuller),
        cmocka_unit_test(saturation_ceilings_are_shares_of_the_whole),
        cmocka_unit_test(saturation_random_operations_keep_sums),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/saturation", tests, NULL, NULL);
}
