/* Any order of events, with one thread and with several: limits hold at any time, nobody is left
 * for whom there is room, and all that wait get their turn. The latter is made for the thread
 * sanitizer. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/flow/wait_fixture.h"

static void on_call(void *user) {
    (void)user;
}

/* ---- any order of events --------------------------------------------------------------------- */

enum { ASKERS = 40, READERS = 3, ENDPOINTS = 4, MOST = 2, STEPS = 60000 };

struct world {
    struct fixture fixture;
    struct pool_reader *readers[READERS];
    struct pool_bell bells[READERS];
    struct asker askers[ASKERS];
    struct endpoint_address addresses[ENDPOINTS];
    struct subset subsets[ENDPOINTS];
    struct dice dice;
    uint64_t n_went, n_left, n_waited;
};

static bool is_out(const struct asker *asker) {
    return asker->waiter.item.state == FLOW_OUT && !asker->pick.ticket.endpoint;
}

/* Never over the limit, what is kept included; and nobody waits uncalled for whom there is room. */
static void look_around(struct world *world) {
    const struct pool_snapshot *snapshot = pool_look(world->fixture.reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        assert_in_range(endpoint_in_flight(endpoint), 0, MOST);
        for (int k = 0; k < ASKERS && endpoint_in_flight(endpoint) < MOST; k++) {
            const struct asker *asker = &world->askers[k];
            bool may =
                !asker->request.subset || subset_has(asker->request.subset, &endpoint->address);
            assert_false(asker->waiter.item.state == FLOW_QUEUED && may);
        }
    }
}

static void begin(struct world *world, struct asker *asker) {
    static const struct str objectives[] = {{NULL, 0}, STR("high"), STR("mid"), STR("low")};
    static const struct str ids[] = {{NULL, 0}, STR("x"), STR("y")};
    uint32_t which = dice_below(&world->dice, 2 * ENDPOINTS);
    *asker = (struct asker){.request = {.objective = objectives[dice_below(&world->dice, 4)],
                                        .fairness = ids[dice_below(&world->dice, 3)],
                                        .n_bytes = dice_below(&world->dice, 100)}};
    asker->request.subset = which < ENDPOINTS ? &world->subsets[which] : NULL;
    asker->request.waiter = &asker->waiter;
    uint32_t reader = dice_below(&world->dice, READERS);
    asker->waiter.bell = &world->bells[reader];
    enum status st = pool_pick(world->readers[reader], &asker->request, &asker->pick, &asker->err);
    assert_true(st == ST_OK || st == ST_SATURATED);
    world->n_went += asker->pick.ticket.endpoint != NULL;
    world->n_waited += st == ST_OK && !asker->pick.ticket.endpoint;
}

static void take_called(struct world *world) {
    uint32_t i = dice_below(&world->dice, READERS);
    struct pool_reader *reader = world->readers[i];
    struct asker *asker = (struct asker *)(void *)pool_bell_next(&world->bells[i]);
    if (asker) {
        assert_int_equal(pool_pick(reader, &asker->request, &asker->pick, &asker->err), ST_OK);
        world->n_went += asker->pick.ticket.endpoint != NULL;
    }
}

static void step(struct world *world) {
    struct asker *asker = &world->askers[dice_below(&world->dice, ASKERS)];
    if (dice_below(&world->dice, 3) == 0) {
        take_called(world);
    } else if (is_out(asker)) {
        begin(world, asker);
    } else if (asker->pick.ticket.endpoint) {
        pool_give_back(world->fixture.pool, &asker->pick.ticket);
    } else if (dice_below(&world->dice, 4) == 0) {
        pool_leave(world->fixture.pool, &asker->waiter, FLOW_ABORTED);
        world->n_left++;
    }
}

static void whatever_happens(void **state) {
    static struct world world;
    struct error err;
    (void)state;
    fixture_open(&world.fixture, wait_fixture_spec(ENDPOINTS, MOST));
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        world.subsets[i] = wait_fixture_subset(&world.addresses[i], i);
    }
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(pool_reader_new(world.fixture.pool, i + 1, &world.readers[i], &err),
                         ST_OK);
        pool_bell_init(&world.bells[i], on_call, NULL);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        step(&world);
        look_around(&world);
    }
    assert_true(world.n_went > STEPS / 20 && world.n_waited > STEPS / 20 && world.n_left > 0);
    uint64_t n_still = wait_fixture_n(world.fixture.pool);
    for (unsigned i = 0; i < ASKERS; i++) { /* all that still wait get their turn */
        pool_give_back(world.fixture.pool, &world.askers[i].pick.ticket);
    }
    for (uint64_t went = world.n_went; wait_fixture_n(world.fixture.pool) > 0;) {
        take_called(&world);
        for (unsigned i = 0; i < ASKERS; i++) {
            pool_give_back(world.fixture.pool, &world.askers[i].pick.ticket);
        }
        assert_in_range(world.n_went - went, 0, n_still);
    }
    for (unsigned i = 0; i < READERS; i++) {
        pool_reader_free(world.readers[i]);
        pool_bell_fini(&world.bells[i]);
    }
    fixture_close(&world.fixture);
}

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 4, HELD = 12, UPDATES = 400, DISPATCHES = 20000 };

struct worker_of_test {
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_bell bell;
    struct dice dice;
    _Atomic bool *over;
    _Atomic uint64_t *n_called; /* of all threads */
    _Atomic uint64_t n_rung;
    struct endpoint_address addresses[HELD];
    struct subset subsets[HELD];
    struct asker askers[HELD];
    unsigned n_wrong;
};

static void count_ring(void *user) {
    struct worker_of_test *worker = user;
    atomic_fetch_add_explicit(&worker->n_rung, 1, memory_order_relaxed);
}

static void pick(struct worker_of_test *worker, struct asker *asker) {
    enum status st = pool_pick(worker->reader, &asker->request, &asker->pick, &asker->err);
    worker->n_wrong += st != ST_OK && st != ST_SATURATED && st != ST_NO_ENDPOINT;
    if (asker->pick.ticket.endpoint) {
        worker->n_wrong += endpoint_in_flight(asker->pick.ticket.endpoint) > MOST;
    }
    asker->waits = st == ST_OK && !asker->pick.ticket.endpoint;
}

static void ask_anew(struct worker_of_test *worker, unsigned i) {
    static const struct str objectives[] = {{NULL, 0}, STR("high"), STR("mid"), STR("low")};
    static const struct str ids[] = {{NULL, 0}, STR("x"), STR("y")};
    struct asker *asker = &worker->askers[i];
    *asker = (struct asker){.request = {.objective = objectives[dice_below(&worker->dice, 4)],
                                        .fairness = ids[dice_below(&worker->dice, 3)],
                                        .n_bytes = dice_below(&worker->dice, 100)}};
    worker->subsets[i] =
        wait_fixture_subset(&worker->addresses[i], dice_below(&worker->dice, ENDPOINTS));
    asker->request.subset = dice_below(&worker->dice, 2) == 0 ? &worker->subsets[i] : NULL;
    asker->request.waiter = &asker->waiter;
    asker->waiter.bell = &worker->bell;
    pick(worker, asker);
}

static void *run_worker(void *arg) {
    struct worker_of_test *worker = arg;
    while (!atomic_load(worker->over)) {
        unsigned i = dice_below(&worker->dice, HELD);
        struct asker *asker = &worker->askers[i];
        struct pool_waiter *called = pool_bell_next(&worker->bell);
        if (called) {
            pick(worker, (struct asker *)(void *)called);
            atomic_fetch_add_explicit(worker->n_called, 1, memory_order_relaxed);
        } else if (asker->pick.ticket.endpoint) {
            pool_give_back(worker->pool, &asker->pick.ticket);
        } else if (!asker->waits) {
            ask_anew(worker, i);
        } else if (dice_below(&worker->dice, 16) == 0) {
            pool_leave(worker->pool, &asker->waiter, FLOW_ABORTED);
            asker->waits = false;
        } else {
            sched_yield();
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        pool_leave(worker->pool, &worker->askers[i].waiter, FLOW_ABORTED);
    }
    return NULL;
}

static void on_several_threads(void **state) {
    static struct worker_of_test workers[THREADS];
    pthread_t threads[THREADS];
    _Atomic bool over = false;
    _Atomic uint64_t n_called = 0;
    struct pool *pool;
    struct dice dice = {3};
    struct error err;
    (void)state;
    assert_int_equal(pool_new(&pool, &err), ST_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker_of_test){
            .pool = pool, .dice = {i}, .over = &over, .n_called = &n_called};
        pool_bell_init(&workers[i].bell, count_ring, &workers[i]);
        assert_int_equal(pool_reader_new(pool, 0, &workers[i].reader, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    for (unsigned n = 0; n < UPDATES || atomic_load(&n_called) < DISPATCHES; n++) {
        fixture_update(pool, wait_fixture_spec(1 + dice_below(&dice, ENDPOINTS), MOST));
        pool_tick(pool, 0);
        sched_yield();
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
        assert_true(workers[i].n_rung > 0);
    }
    for (unsigned i = 0; i < THREADS; i++) { /* a bell rings as long as somebody makes room */
        for (unsigned k = 0; k < HELD; k++) {
            pool_give_back(pool, &workers[i].askers[k].pick.ticket);
        }
    }
    assert_int_equal(wait_fixture_n(pool), 0);
    struct pool_numbers numbers;
    pool_read(pool, &numbers);
    assert_int_equal(numbers.n_in_flight, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pool_reader_free(workers[i].reader);
        pool_bell_fini(&workers[i].bell);
    }
    pool_free(pool);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens),
        cmocka_unit_test(on_several_threads),
    };
    return cmocka_run_group_tests_name("pool/pool_wait_churn", tests, NULL, NULL);
}
