/* Random events, with one thread and with several: limits hold at all times, no waiter is left
 * while there is capacity for it, and all waiters are admitted in the end. The threads are for the
 * thread sanitizer. */
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

/* ---- random events --------------------------------------------------------------------------- */

enum { ASKERS = 40, READERS = 3, ENDPOINTS = 4, MOST = 2, STEPS = 60000 };

struct world {
    struct fixture fixture;
    struct pool_reader *readers[READERS];
    struct pool_wakeup wakeups[READERS];
    struct waiting_request askers[ASKERS];
    struct endpoint_address addresses[ENDPOINTS][2];
    struct subset subsets[ENDPOINTS];
    struct prng prng;
    uint64_t n_went, n_left, n_waited;
    bool avoids; /* endpoints refuse connections and respond again */
};

static bool is_preferred(const struct endpoint *endpoint) {
    return endpoint_is_eligible(endpoint) && !endpoint_is_avoided(endpoint);
}

static bool may_use(const struct waiting_request *asker, const struct pool_snapshot *snapshot,
                    const struct endpoint *endpoint) {
    const struct subset *subset = asker->request.subset;
    bool preferred = false;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *other = snapshot->members[i].endpoint;
        preferred =
            preferred || (is_preferred(other) && (!subset || subset_has(subset, &other->address)));
    }
    return (!subset || subset_has(subset, &endpoint->address)) &&
           (is_preferred(endpoint) || !preferred);
}

/* Reserved slots count against its window, too. */
static bool has_room(const struct endpoint *endpoint) {
    uint32_t in_flight = endpoint_in_flight(endpoint), size = endpoint_window_size(endpoint);
    bool used_up =
        size > 0 && endpoint->window.n_reserved > 0 && in_flight >= size + endpoint->window.n_older;
    return in_flight < MOST && !used_up;
}

static bool is_out(const struct waiting_request *asker) {
    return asker->waiter.item.state == FLOW_IDLE && !asker->pick.ticket.endpoint;
}

/* Never over the limit, reserved slots included; and there is capacity for no waiter that was not
 * notified. */
static void look_around(struct world *world) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->fixture.reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        assert_in_range(endpoint_in_flight(endpoint), 0, MOST);
        for (int k = 0; k < ASKERS && has_room(endpoint); k++) {
            const struct waiting_request *asker = &world->askers[k];
            bool may =
                endpoint->stalled_until_ns <= clock_now_ns() && may_use(asker, snapshot, endpoint);
            assert_false(asker->waiter.item.state == FLOW_QUEUED && may);
        }
    }
}

static void begin(struct world *world, struct waiting_request *asker) {
    static const struct str objectives[] = {{NULL, 0}, STR("high"), STR("mid"), STR("low")};
    static const struct str ids[] = {{NULL, 0}, STR("x"), STR("y")};
    uint32_t which = prng_below(&world->prng, 2 * ENDPOINTS);
    *asker =
        (struct waiting_request){.request = {.objective = objectives[prng_below(&world->prng, 4)],
                                             .fairness_id = ids[prng_below(&world->prng, 3)],
                                             .n_bytes = prng_below(&world->prng, 100)}};
    asker->request.subset = which < ENDPOINTS ? &world->subsets[which] : NULL;
    asker->request.waiter = &asker->waiter;
    uint32_t reader = prng_below(&world->prng, READERS);
    asker->waiter.wakeup = &world->wakeups[reader];
    enum status st = pool_pick(world->readers[reader], &asker->request, &asker->pick, &asker->err);
    assert_true(st == ST_OK || st == ST_SATURATED);
    world->n_went += asker->pick.ticket.endpoint != NULL;
    world->n_waited += st == ST_OK && !asker->pick.ticket.endpoint;
}

static void take_called(struct world *world) {
    uint32_t i = prng_below(&world->prng, READERS);
    struct pool_reader *reader = world->readers[i];
    struct waiting_request *asker =
        (struct waiting_request *)(void *)pool_wakeup_pop(&world->wakeups[i]);
    if (asker) {
        assert_int_equal(pool_pick(reader, &asker->request, &asker->pick, &asker->err), ST_OK);
        world->n_went += asker->pick.ticket.endpoint != NULL;
    }
}

static void change_avoided(struct world *world) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->fixture.reader);
    struct endpoint *endpoint = snapshot->members[prng_below(&world->prng, ENDPOINTS)].endpoint;
    if (prng_below(&world->prng, 2) == 0) {
        pool_report_refused(world->fixture.pool, endpoint);
    } else {
        pool_report_answered(world->fixture.pool, endpoint);
    }
    clock_set_fake_ns(clock_now_ns() + prng_below(&world->prng, 1000000000));
}

static void step(struct world *world) {
    struct waiting_request *asker = &world->askers[prng_below(&world->prng, ASKERS)];
    if (world->avoids && prng_below(&world->prng, 10) == 0) {
        change_avoided(world);
    } else if (prng_below(&world->prng, 3) == 0) {
        take_called(world);
    } else if (is_out(asker)) {
        begin(world, asker);
    } else if (asker->pick.ticket.endpoint) {
        pool_release_ticket(world->fixture.pool, &asker->pick.ticket);
    } else if (prng_below(&world->prng, 4) == 0) {
        pool_dequeue(world->fixture.pool, &asker->waiter, FLOW_ABORTED);
        world->n_left++;
    }
}

static void run_random_operations(bool avoids) {
    static struct world world;
    struct error err;
    world = (struct world){.avoids = avoids};
    clock_set_fake_ns(UINT64_C(100000000000));
    fixture_open(&world.fixture, wait_fixture_spec(ENDPOINTS, MOST));
    for (uint32_t i = 0; i < ENDPOINTS; i++) { /* of one endpoint, or two */
        world.addresses[i][1] = fixture_numbered((i + 1) % ENDPOINTS);
        world.subsets[i] = wait_fixture_subset(world.addresses[i], i);
        world.subsets[i].n = avoids ? 1 + i % 2 : 1;
    }
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(pool_reader_new(world.fixture.pool, i + 1, &world.readers[i], &err),
                         ST_OK);
        pool_wakeup_init(&world.wakeups[i], on_call, NULL);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        step(&world);
        if (avoids) { /* requests that may use an avoided endpoint are notified by ticks */
            pool_tick(world.fixture.pool, 0);
        }
        look_around(&world);
    }
    clock_set_fake_ns(clock_now_ns() + UINT64_C(100000000000)); /* nothing is avoided any more */
    pool_tick(world.fixture.pool, 0);
    look_around(&world);
    assert_true(world.n_went > STEPS / 20 && world.n_waited > STEPS / 20 && world.n_left > 0);
    uint64_t n_still = wait_fixture_n(world.fixture.pool);
    for (unsigned i = 0; i < ASKERS; i++) { /* the remaining waiters are admitted */
        pool_release_ticket(world.fixture.pool, &world.askers[i].pick.ticket);
    }
    for (uint64_t went = world.n_went; wait_fixture_n(world.fixture.pool) > 0;) {
        take_called(&world);
        for (unsigned i = 0; i < ASKERS; i++) {
            pool_release_ticket(world.fixture.pool, &world.askers[i].pick.ticket);
        }
        assert_in_range(world.n_went - went, 0, n_still);
    }
    for (unsigned i = 0; i < READERS; i++) {
        pool_reader_unref(world.readers[i]);
        pool_wakeup_fini(&world.wakeups[i]);
    }
    fixture_close(&world.fixture);
    clock_set_fake_ns(0);
}

static void pool_wait_random_operations_keep_counts_consistent(void **state) {
    (void)state;
    run_random_operations(false);
}

static void pool_wait_avoided_endpoints_notify_requests_without_others(void **state) {
    (void)state;
    run_random_operations(true);
}

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 4, HELD = 12, UPDATES = 400, DISPATCHES = 4000 };

struct worker_of_test {
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_wakeup wakeup;
    struct prng prng;
    _Atomic bool *over;
    _Atomic uint64_t *n_notified; /* of all threads */
    _Atomic uint64_t n_rung;
    struct endpoint_address addresses[HELD];
    struct subset subsets[HELD];
    struct waiting_request askers[HELD];
    bool by_pool; /* it is measured as a whole, and ends running requests */
    unsigned n_wrong;
    _Atomic unsigned n_evicted;
};

static void count_ring(void *user) {
    struct worker_of_test *worker = user;
    atomic_fetch_add_explicit(&worker->n_rung, 1, memory_order_relaxed);
}

static void pick(struct worker_of_test *worker, struct waiting_request *asker) {
    enum status st = pool_pick(worker->reader, &asker->request, &asker->pick, &asker->err);
    worker->n_wrong += st != ST_OK && st != ST_SATURATED && st != ST_NO_ENDPOINT;
    if (asker->pick.ticket.endpoint && worker->by_pool) {
        pool_hold_lease(worker->pool, &asker->waiter, asker->pick.priority);
    } else if (asker->pick.ticket.endpoint) {
        worker->n_wrong += endpoint_in_flight(asker->pick.ticket.endpoint) > MOST;
    }
    asker->waits = st == ST_OK && !asker->pick.ticket.endpoint;
}

static void finish(const struct worker_of_test *worker, struct waiting_request *asker) {
    pool_end_lease(worker->pool, &asker->waiter);
    pool_release_ticket(worker->pool, &asker->pick.ticket);
}

static void ask_anew(struct worker_of_test *worker, unsigned i) {
    static const struct str objectives[] = {{NULL, 0}, STR("high"), STR("mid"), STR("low")};
    static const struct str ids[] = {{NULL, 0}, STR("x"), STR("y")};
    struct waiting_request *asker = &worker->askers[i];
    *asker =
        (struct waiting_request){.request = {.objective = objectives[prng_below(&worker->prng, 4)],
                                             .fairness_id = ids[prng_below(&worker->prng, 3)],
                                             .n_bytes = prng_below(&worker->prng, 100)}};
    worker->subsets[i] =
        wait_fixture_subset(&worker->addresses[i], prng_below(&worker->prng, ENDPOINTS));
    asker->request.subset = prng_below(&worker->prng, 2) == 0 ? &worker->subsets[i] : NULL;
    asker->request.waiter = &asker->waiter;
    asker->waiter.wakeup = &worker->wakeup;
    pick(worker, asker);
}

static void *run_worker(void *arg) {
    struct worker_of_test *worker = arg;
    while (!atomic_load(worker->over)) {
        unsigned i = prng_below(&worker->prng, HELD);
        struct waiting_request *asker = &worker->askers[i];
        struct pool_waiter *notified = pool_wakeup_pop(&worker->wakeup);
        if (notified && notified->lease.is_revoked) {
            finish(worker, (struct waiting_request *)(void *)notified);
            atomic_fetch_add_explicit(&worker->n_evicted, 1, memory_order_relaxed);
        } else if (notified) {
            pick(worker, (struct waiting_request *)(void *)notified);
            atomic_fetch_add_explicit(worker->n_notified, 1, memory_order_relaxed);
        } else if (asker->pick.ticket.endpoint) {
            finish(worker, asker);
        } else if (!asker->waits) {
            ask_anew(worker, i);
        } else if (prng_below(&worker->prng, 16) == 0) {
            pool_dequeue(worker->pool, &asker->waiter, FLOW_ABORTED);
            asker->waits = false;
        } else {
            sched_yield();
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        pool_dequeue(worker->pool, &worker->askers[i].waiter, FLOW_ABORTED);
        pool_end_lease(worker->pool, &worker->askers[i].waiter);
    }
    return NULL;
}

static struct pool_spec *spec_of_threads(struct prng *prng, bool by_pool) {
    struct pool_spec *spec = wait_fixture_spec(1 + prng_below(prng, ENDPOINTS), MOST);
    if (by_pool) {
        spec->detector.kind = DETECTOR_REQUESTS;
        spec->flow_control.sheddable_waits = true;
        spec->flow_control.evicts = prng_below(prng, 8) > 0;
    }
    return spec;
}

/* Whether each worker was woken up, and requests were evicted where they are; a busy machine may
 * run one of them late. */
static bool have_all_run(struct worker_of_test *workers, bool by_pool) {
    unsigned n_rung = 0, n_evicted = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        n_rung += atomic_load(&workers[i].n_rung) > 0;
        n_evicted += atomic_load(&workers[i].n_evicted);
    }
    return n_rung == THREADS && (n_evicted > 0 || !by_pool);
}

static void run_concurrent_workers(bool by_pool) {
    static struct worker_of_test workers[THREADS];
    pthread_t threads[THREADS];
    _Atomic bool over = false;
    _Atomic uint64_t n_notified = 0;
    struct pool *pool;
    struct prng prng = {3};
    struct error err;
    assert_int_equal(pool_new(&pool, &err), ST_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker_of_test){.pool = pool,
                                             .prng = {i},
                                             .over = &over,
                                             .n_notified = &n_notified,
                                             .by_pool = by_pool};
        pool_wakeup_init(&workers[i].wakeup, count_ring, &workers[i]);
        assert_int_equal(pool_reader_new(pool, 0, &workers[i].reader, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    for (unsigned n = 0;
         n < UPDATES || atomic_load(&n_notified) < DISPATCHES || !have_all_run(workers, by_pool);
         n++) {
        fixture_update(pool, spec_of_threads(&prng, by_pool));
        pool_tick(pool, 0);
        sched_yield();
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
        assert_true(by_pool || workers[i].n_evicted == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) { /* wakeups end when no capacity is added any more */
        for (unsigned k = 0; k < HELD; k++) {
            pool_release_ticket(pool, &workers[i].askers[k].pick.ticket);
        }
    }
    assert_int_equal(wait_fixture_n(pool), 0);
    struct pool_stats stats;
    pool_get_stats(pool, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pool_reader_unref(workers[i].reader);
        pool_wakeup_fini(&workers[i].wakeup);
    }
    pool_free(pool);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void pool_wait_concurrent_workers_notify_all_waiters(void **state) {
    (void)state;
    run_concurrent_workers(false);
}

static void pool_wait_concurrent_workers_of_a_pool_as_a_whole(void **state) {
    (void)state;
    run_concurrent_workers(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_wait_random_operations_keep_counts_consistent),
        cmocka_unit_test(pool_wait_avoided_endpoints_notify_requests_without_others),
        cmocka_unit_test(pool_wait_concurrent_workers_notify_all_waiters),
        cmocka_unit_test(pool_wait_concurrent_workers_of_a_pool_as_a_whole),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/wait_churn", tests, NULL, NULL);
}
