/* Queueing seen from outside: which waiter is notified when, what a pick returns then, and that no
 * limit is ever exceeded. */
#include "pick/pool/flow/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/flow/wait_fixture.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/state.h"

static const uint64_t MS = 1000000;

static unsigned n_woken;
static struct pool_wakeup wakeup;

static void on_call(void *user) {
    (void)user;
    n_woken++;
}

static void open_pool(struct fixture *fixture, struct pool_spec *spec) {
    clock_set_fake_ns(1000 * MS);
    fixture_open(fixture, spec);
    pool_wakeup_init(&wakeup, on_call, NULL);
    n_woken = 0;
}

static void close_pool(struct fixture *fixture) {
    struct pool_flow_stats stats;
    pool_get_flow_stats(fixture->pool, NULL, 0, &stats);
    assert_int_equal(stats.n_waiting + stats.n_bytes + stats.n_ids, 0);
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

/* Exactly this waiter is notified, and its pick succeeds. */
static void expect_called(struct fixture *fixture, struct waiting_request *asker) {
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &asker->waiter);
    ask_and_go(fixture, asker);
}

static void expect_nobody(void) {
    assert_null(pool_wakeup_pop(&wakeup));
}

static void give_back(struct fixture *fixture, struct waiting_request *asker) {
    pool_release_ticket(fixture->pool, &asker->pick.ticket);
}

/* ---- notifications --------------------------------------------------------------------------- */

static void pool_wait_notifies_as_many_as_capacity_allows(void **state) {
    struct fixture fixture;
    struct waiting_request one[2] = {0}, more[4] = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(2, 1));
    ask_and_go(&fixture, &one[0]);
    ask_and_go(&fixture, &one[1]);
    more[1].request.objective = STR("high");
    more[3].request.objective = STR("mid");
    for (int i = 0; i < 4; i++) {
        ask_and_wait(&fixture, &more[i]);
        assert_int_equal(more[i].waiter.until_ns, 31000 * MS);
    }
    assert_int_equal(wait_fixture_n(fixture.pool), 4);
    expect_nobody();
    give_back(&fixture, &one[0]);
    assert_int_equal(n_woken, 1);
    expect_called(&fixture, &more[1]);
    expect_nobody();
    give_back(&fixture, &one[1]);
    give_back(&fixture, &more[1]); /* two at the same time */
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[3].waiter);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[0].waiter);
    expect_nobody();
    ask_and_go(&fixture, &more[0]); /* in any order of their picks */
    ask_and_go(&fixture, &more[3]);
    give_back(&fixture, &more[0]);
    expect_called(&fixture, &more[2]);
    give_back(&fixture, &more[2]);
    give_back(&fixture, &more[3]);
    close_pool(&fixture);
}

/* The loads of all endpoints expire at the same time: the lock is released in between. */
static void pool_wait_notifies_many_in_parts(void **state) {
    enum { SERVERS = 100, OF_EACH = 10, WAITERS = SERVERS * OF_EACH, MOST = 400 };
    static struct waiting_request many[WAITERS];
    struct fixture fixture;
    uint32_t n_notified = 0, n_parts = 0;
    struct pool_spec *spec = wait_fixture_spec(SERVERS, OF_EACH);
    (void)state;
    spec->queue_depth = 5;
    spec->flow_control.limits.max_requests = WAITERS;
    open_pool(&fixture, spec);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                     .until_ns = clock_now_ns() + 1000 * MS,
                                     .known = LOAD_WAITING,
                                     .n_waiting = 5};
        pool_set_load(fixture.pool, snapshot->members[i].endpoint, &load);
    }
    for (int i = 0; i < WAITERS; i++) {
        ask_and_wait(&fixture, &many[i]);
    }
    clock_set_fake_ns(clock_now_ns() + 2000 * MS);
    for (bool more = true; more; n_parts++) {
        struct pool_notifications notifications = {NULL};
        uint64_t n_before = fixture.pool->flow.n_queued;
        lock_acquire(&fixture.pool->lock);
        more = pool_notify_all_waiters(fixture.pool, &notifications);
        lock_release(&fixture.pool->lock);
        pool_send_notifications(&notifications);
        assert_in_range(n_before - fixture.pool->flow.n_queued, 1, MOST);
    }
    assert_true(n_parts > 2);
    for (struct pool_waiter *waiter; (waiter = pool_wakeup_pop(&wakeup)); n_notified++) {
        ask_and_go(&fixture, (struct waiting_request *)(void *)waiter);
    }
    assert_int_equal(n_notified, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        give_back(&fixture, &many[i]);
    }
    close_pool(&fixture);
}

/* Also where a notified waiter would leave capacity for a moment. */
static void pool_wait_new_request_does_not_overtake_notified(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, notified = {0}, late = {0}, cheap = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(1, 1));
    ask_and_go(&fixture, &one);
    ask_and_wait(&fixture, &notified);
    give_back(&fixture, &one);
    late.request.objective = STR("high");
    ask_and_wait(&fixture, &late); /* before the notified one has picked */
    cheap.request.objective = STR("low");
    assert_int_equal(ask(&fixture, &cheap), ST_SATURATED);
    expect_called(&fixture, &notified);
    expect_nobody();
    assert_int_equal(ask(&fixture, &cheap), ST_SATURATED);
    give_back(&fixture, &notified);
    expect_called(&fixture, &late);
    give_back(&fixture, &late);
    ask_and_go(&fixture, &cheap);
    give_back(&fixture, &cheap);
    close_pool(&fixture);
}

static void pool_wait_ids_of_a_band_alternate(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, more[5] = {0};
    static const struct str ids[] = {STR("x"), STR("x"), STR("x"), STR("y"), STR("")};
    static const int order[] = {0, 3, 4, 1, 2};
    struct flow_band_stats bands[3];
    struct pool_flow_stats stats;
    (void)state;
    open_pool(&fixture, wait_fixture_spec(1, 1));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 5; i++) {
        more[i].request.fairness_id = ids[i];
        more[i].request.n_bytes = 100;
        ask_and_wait(&fixture, &more[i]);
    }
    pool_get_flow_stats(fixture.pool, bands, 3, &stats);
    assert_int_equal(stats.n_bands, 1);
    assert_int_equal(stats.n_bytes, 500);
    assert_int_equal(bands[0].n_ids, 3);
    for (int i = 0; i < 5; i++) {
        give_back(&fixture, i == 0 ? &one : &more[order[i - 1]]);
        expect_called(&fixture, &more[order[i]]);
    }
    give_back(&fixture, &more[2]);
    close_pool(&fixture);
}

static void pool_wait_criticality_sets_priority(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    static const struct pool_model models[] = {
        {.name = STR("critical"), .criticality = POOL_CRITICAL},
        {.name = STR("standard"), .criticality = POOL_STANDARD},
        {.name = STR("cheap"), .criticality = POOL_SHEDDABLE}};
    struct waiting_request one = {0}, more[4] = {0};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        pool_spec_add_model(spec, &models[i]);
    }
    open_pool(&fixture, spec);
    ask_and_go(&fixture, &one);
    more[0].request.model = STR("standard");
    more[1].request.model = STR("critical");
    more[2].request.model = STR("cheap");
    more[3].request.model = STR("cheap");
    more[3].request.objective = STR("mid"); /* it counts */
    ask_and_wait(&fixture, &more[0]);
    ask_and_wait(&fixture, &more[1]);
    assert_int_equal(ask(&fixture, &more[2]), ST_SATURATED);
    ask_and_wait(&fixture, &more[3]);
    give_back(&fixture, &one);
    expect_called(&fixture, &more[1]);
    give_back(&fixture, &more[1]);
    expect_called(&fixture, &more[3]);
    give_back(&fixture, &more[3]);
    expect_called(&fixture, &more[0]);
    give_back(&fixture, &more[0]);
    close_pool(&fixture);
}

/* ---- end of a wait --------------------------------------------------------------------------- */

static void pool_wait_dequeued_waiter_releases_capacity(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, more[4] = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(1, 1));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 4; i++) {
        ask_and_wait(&fixture, &more[i]);
    }
    pool_dequeue(fixture.pool, &more[1].waiter, FLOW_EXPIRED); /* queued */
    pool_dequeue(fixture.pool, &more[1].waiter, FLOW_EXPIRED);
    give_back(&fixture, &one);
    pool_dequeue(fixture.pool, &more[0].waiter, FLOW_ABORTED); /* notified, in the wakeup's list */
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[2].waiter);
    pool_dequeue(fixture.pool, &more[2].waiter, FLOW_ABORTED); /* notified, taken from the list */
    expect_called(&fixture, &more[3]);
    give_back(&fixture, &more[3]);
    close_pool(&fixture);
}

/* Below every priority from 0 on, and each band by its own limits. */
static void pool_wait_sheddable_waits_in_its_band(void **state) {
    static const struct flow_band_rules negative = {
        .max_requests = 1, .max_bytes = 100, .max_wait_ns = 5000000};
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    struct waiting_request one = {0}, low[3] = {0}, plain = {0};
    (void)state;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.limits.negative = &negative;
    open_pool(&fixture, spec);
    low[0].request.objective = low[1].request.objective = low[2].request.objective = STR("low");
    ask_and_go(&fixture, &one);
    ask_and_wait(&fixture, &low[0]);
    assert_int_equal(low[0].waiter.until_ns, 1005 * MS);
    assert_int_equal(ask(&fixture, &low[1]), ST_SATURATED);
    assert_non_null(strstr(low[1].err.text, "priority -1 has reached its limit of requests"));
    ask_and_wait(&fixture, &plain);
    assert_int_equal(plain.waiter.until_ns, 31000 * MS);
    assert_false(pool_waiter_add_bytes(fixture.pool, &low[0].waiter, 101));
    give_back(&fixture, &one);
    expect_called(&fixture, &plain);
    expect_nobody();
    give_back(&fixture, &plain);
    expect_called(&fixture, &low[0]);
    low[2].request.n_bytes = 101;
    assert_int_equal(ask(&fixture, &low[2]), ST_SATURATED);
    assert_non_null(strstr(low[2].err.text, "priority -1 has reached its limit of bytes"));
    give_back(&fixture, &low[0]);
    close_pool(&fixture);
}

/* A request of a higher priority takes the place of the newest of the lowest band, also where that
 * is below 0 and has room of its own. */
static void pool_wait_higher_priority_displaces_newest_sheddable(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    struct waiting_request one = {0}, low[2] = {0}, plain = {0};
    (void)state;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.limits.max_requests = 2;
    open_pool(&fixture, spec);
    low[0].request.objective = low[1].request.objective = STR("low");
    ask_and_go(&fixture, &one);
    ask_and_wait(&fixture, &low[0]);
    ask_and_wait(&fixture, &low[1]);
    ask_and_wait(&fixture, &plain);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &low[1].waiter);
    assert_int_equal(ask(&fixture, &low[1]), ST_SATURATED);
    give_back(&fixture, &one);
    expect_called(&fixture, &plain);
    give_back(&fixture, &plain);
    expect_called(&fixture, &low[0]);
    give_back(&fixture, &low[0]);
    close_pool(&fixture);
}

static struct str find_slo(const void *of, struct str name) {
    return str_is(name, "x-llm-d-slo-ttft-ms") ? str_of(of) : str_make(NULL, 0);
}

/* By the header with the milliseconds until the first token; a value that is none counts as
 * none. */
static void pool_wait_order_by_deadline_header(void **state) {
    static const struct flow_band_rules others = {.max_requests = FLOW_UNLIMITED,
                                                  .max_bytes = FLOW_UNLIMITED,
                                                  .fairness = FLOW_GLOBAL_STRICT,
                                                  .ordering = FLOW_BY_DEADLINE};
    static const struct {
        const char *value, *id;
        int expected; /* its turn */
    } rows[] = {
        {"", "x", 4},    {"500", "x", 2}, {" 20 ", "y", 0}, {"-1", "y", 5},
        {"100", "x", 1}, {"1.5", "z", 6}, {"900", "z", 3},  {"9223372036854775807", "x", 7}};
    enum { N = sizeof(rows) / sizeof(rows[0]) };
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    struct waiting_request one = {0}, more[N] = {0};
    (void)state;
    spec->flow_control.limits.others = &others;
    open_pool(&fixture, spec);
    ask_and_go(&fixture, &one);
    for (int i = 0; i < N; i++) {
        more[i].request.headers = (struct pool_headers){.find = find_slo, .of = rows[i].value};
        more[i].request.fairness_id = str_of(rows[i].id);
        ask_and_wait(&fixture, &more[i]);
    }
    struct waiting_request *last = &one;
    for (int turn = 0; turn < N; turn++) {
        give_back(&fixture, last);
        for (int i = 0; i < N; i++) {
            last = rows[i].expected == turn ? &more[i] : last;
        }
        expect_called(&fixture, last);
    }
    give_back(&fixture, last);
    close_pool(&fixture);
}

static void pool_wait_full_queue_error_names_the_limit(void **state) {
    static const struct flow_band_rules band = {
        .priority = 7, .max_requests = 1, .max_bytes = FLOW_UNLIMITED};
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    struct waiting_request one = {0}, more[4] = {0};
    (void)state;
    spec->flow_control.limits = (struct flow_limits){2, 1000, &band, 1, NULL, NULL};
    open_pool(&fixture, spec);
    ask_and_go(&fixture, &one);
    more[0].request.objective = more[1].request.objective = STR("high");
    more[2].request.n_bytes = 1001;
    ask_and_wait(&fixture, &more[0]);
    assert_int_equal(ask(&fixture, &more[1]), ST_SATURATED);
    assert_non_null(strstr(more[1].err.text, "priority 7"));
    assert_int_equal(ask(&fixture, &more[2]), ST_SATURATED);
    assert_non_null(strstr(more[2].err.text, "max_bytes"));
    more[2].request.n_bytes = 1000;
    ask_and_wait(&fixture, &more[2]);
    assert_false(pool_waiter_add_bytes(fixture.pool, &more[2].waiter, 1));
    assert_int_equal(ask(&fixture, &more[3]), ST_SATURATED);
    assert_non_null(strstr(more[3].err.text, "max_requests"));
    pool_dequeue(fixture.pool, &more[2].waiter, FLOW_REFUSED);
    assert_true(pool_waiter_add_bytes(fixture.pool, &more[0].waiter, 1));
    pool_dequeue(fixture.pool, &more[0].waiter, FLOW_REFUSED);
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* ---- a pool without endpoints ---------------------------------------------------------------- */

static struct pool_spec *empty_spec(uint32_t n) {
    struct pool_spec *spec = wait_fixture_spec(n, 1);
    spec->flow_control.max_wait_ns = 60000 * MS;
    spec->flow_control.no_endpoint_wait_ns = 300000 * MS;
    spec->flow_control.limits.max_requests = 2;
    return spec;
}

static void pool_wait_without_endpoints_ends_with_the_first(void **state) {
    struct fixture fixture;
    struct endpoint_address address;
    struct subset nowhere = wait_fixture_subset(&address, 9);
    struct waiting_request some[3] = {0};
    (void)state;
    open_pool(&fixture, empty_spec(0));
    some[1].request.subset = &nowhere;
    ask_and_wait(&fixture, &some[0]);
    ask_and_wait(&fixture, &some[1]);
    assert_int_equal(ask(&fixture, &some[2]), ST_NO_ENDPOINT);
    assert_non_null(strstr(some[2].err.text, "the request queue is full"));
    fixture_update(fixture.pool, empty_spec(0)); /* nothing has changed for them */
    expect_nobody();
    fixture_update(fixture.pool, empty_spec(1));
    struct pool_waiter *waiter;
    while ((waiter = pool_wakeup_pop(&wakeup))) { /* one has an endpoint, the other has none */
        struct waiting_request *one = (struct waiting_request *)(void *)waiter;
        assert_int_equal(ask(&fixture, one), one == &some[0] ? ST_OK : ST_NO_ENDPOINT);
        one->waits = true;
    }
    assert_true(some[0].waits && some[1].waits);
    assert_non_null(some[0].pick.ticket.endpoint);
    give_back(&fixture, &some[0]);
    close_pool(&fixture);
}

static void expect_deadline(struct fixture *fixture, struct waiting_request *asker,
                            uint64_t until_ms) {
    struct pool_wait_expiry expiry;
    assert_false(pool_waiter_has_expired(fixture->pool, &asker->waiter, &expiry));
    assert_int_equal(asker->waiter.until_ns, until_ms * MS);
}

/* A wait begins anew when the first endpoint is ready, with the other limit. The deadlines are at
 * most the shorter limit away: no timer has to be changed from another thread. */
static void pool_wait_limit_follows_readiness(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, other = {0};
    struct pool_wait_expiry expiry;
    (void)state;
    open_pool(&fixture, empty_spec(0));
    ask_and_wait(&fixture, &one);
    ask_and_wait(&fixture, &other);
    assert_int_equal(one.waiter.until_ns, 61000 * MS);
    clock_set_fake_ns(61000 * MS);
    expect_deadline(&fixture, &one, 121000);
    clock_set_fake_ns(280000 * MS);
    expect_deadline(&fixture, &one, 301000);
    fixture_update(fixture.pool, empty_spec(1)); /* for one of them */
    expect_called(&fixture, &one);
    clock_set_fake_ns(301000 * MS);
    expect_deadline(&fixture, &other, 340000);
    clock_set_fake_ns(340000 * MS);
    assert_true(pool_waiter_has_expired(fixture.pool, &other.waiter, &expiry));
    assert_int_equal(expiry.limit, POOL_WAIT_MAX_WAIT);
    assert_int_equal(expiry.waited_ns, 60000 * MS);
    fixture_update(fixture.pool, empty_spec(0));
    clock_set_fake_ns(639999 * MS);
    expect_deadline(&fixture, &other, 640000);
    clock_set_fake_ns(640000 * MS);
    assert_true(pool_waiter_has_expired(fixture.pool, &other.waiter, &expiry));
    assert_int_equal(expiry.limit, POOL_WAIT_NO_ENDPOINT);
    assert_int_equal(expiry.waited_ns, 300000 * MS);
    pool_dequeue(fixture.pool, &other.waiter, FLOW_EXPIRED);
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* ---- usage limits ---------------------------------------------------------------------------- */

/* Of four slots the lowest priority may use two, that of 0 three, the highest all: "high" 7, "mid"
 * 3, none 0, "low" -1 by rank: 1, 5/6, 2/3, 1/2. */
static void pool_wait_holdback_keeps_capacity_for_higher_priorities(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 4);
    struct waiting_request low[3] = {0}, plain[2] = {0}, high[2] = {0};
    (void)state;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.usage = (struct usage_limit){USAGE_HOLDBACK_RANK, 0.5, 1};
    open_pool(&fixture, spec);
    for (int i = 0; i < 3; i++) {
        low[i].request.objective = STR("low");
    }
    high[0].request.objective = high[1].request.objective = STR("high");
    ask_and_go(&fixture, &low[0]);
    ask_and_go(&fixture, &low[1]);
    ask_and_wait(&fixture, &low[2]);
    ask_and_go(&fixture, &plain[0]); /* past the waiting one of a lower priority */
    ask_and_wait(&fixture, &plain[1]);
    ask_and_go(&fixture, &high[0]);
    ask_and_wait(&fixture, &high[1]);
    give_back(&fixture, &low[0]);
    expect_called(&fixture, &high[1]);
    expect_nobody();
    give_back(&fixture, &high[0]); /* three are left */
    expect_nobody();
    give_back(&fixture, &low[1]);
    expect_called(&fixture, &plain[1]);
    expect_nobody();
    give_back(&fixture, &plain[0]);
    expect_nobody();
    give_back(&fixture, &high[1]); /* one is left: there is capacity for the lowest again */
    expect_called(&fixture, &low[2]);
    give_back(&fixture, &plain[1]);
    give_back(&fixture, &low[2]);
    close_pool(&fixture);
}

/* The same for requests with subsets, which are searched for on their own. */
static void pool_wait_holdback_holds_for_subsets(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(2, 2);
    struct endpoint_address addresses[2];
    struct subset zero = wait_fixture_subset(&addresses[0], 0);
    struct waiting_request low[2] = {0}, high = {0};
    (void)state;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.usage = (struct usage_limit){USAGE_HOLDBACK_RANK, 0.5, 1};
    open_pool(&fixture, spec);
    low[0].request.objective = low[1].request.objective = STR("low");
    high.request.objective = STR("high");
    low[0].request.subset = low[1].request.subset = high.request.subset = &zero;
    ask_and_go(&fixture, &low[0]);
    ask_and_wait(&fixture, &low[1]);
    ask_and_go(&fixture, &high);
    pool_tick(fixture.pool, 0);
    expect_nobody();
    give_back(&fixture, &high);
    expect_nobody();
    give_back(&fixture, &low[0]);
    expect_called(&fixture, &low[1]);
    give_back(&fixture, &low[1]);
    close_pool(&fixture);
}

/* Below its ceiling and in some cycles above it, never at the whole capacity. */
static void pool_wait_soft_ceiling_admits_some(void **state) {
    enum { N = 12 };
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 8);
    struct waiting_request high[7] = {0}, low[N] = {0};
    (void)state;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.usage.kind = USAGE_SOFT_REFLECTIVE;
    open_pool(&fixture, spec);
    for (int i = 0; i < 7; i++) {
        high[i].request.objective = STR("high");
        ask_and_go(&fixture, &high[i]);
    }
    low[0].request.objective = STR("low"); /* 7 of 8: in every seventh cycle */
    bool waits = ask(&fixture, &low[0]) == ST_OK && !low[0].pick.ticket.endpoint;
    int n_ticks = 0;
    for (; waits && n_ticks < 7; n_ticks++) {
        pool_tick(fixture.pool, 0);
        if (pool_wakeup_pop(&wakeup)) {
            ask_and_go(&fixture, &low[0]);
            waits = false;
        }
    }
    assert_false(waits);
    low[1].request.objective = STR("low"); /* the whole capacity is used */
    ask_and_wait(&fixture, &low[1]);
    for (int i = 0; i < 20; i++) {
        pool_tick(fixture.pool, 0);
        expect_nobody();
    }
    for (int i = 0; i < 7; i++) {
        give_back(&fixture, &high[i]);
    }
    expect_called(&fixture, &low[1]);
    give_back(&fixture, &low[0]);
    give_back(&fixture, &low[1]);
    close_pool(&fixture);
}

/* ---- subsets --------------------------------------------------------------------------------- */

static void pool_wait_full_subset_does_not_block_others(void **state) {
    struct fixture fixture;
    struct endpoint_address addresses[2];
    struct subset zero = wait_fixture_subset(&addresses[0], 0),
                  first = wait_fixture_subset(&addresses[1], 1);
    struct waiting_request at_zero = {0}, narrow[3] = {0}, any[2] = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(2, 1));
    at_zero.request.subset = narrow[0].request.subset = &zero;
    narrow[1].request.selection = &zero;
    narrow[2].request.subset = &first;
    ask_and_go(&fixture, &at_zero);
    ask_and_wait(&fixture, &narrow[0]);
    ask_and_wait(&fixture, &narrow[1]);
    ask_and_go(&fixture, &any[0]); /* the other endpoint has capacity */
    ask_and_wait(&fixture, &narrow[2]);
    ask_and_wait(&fixture, &any[1]);
    give_back(&fixture, &any[0]);
    expect_called(&fixture, &narrow[2]);
    assert_int_equal(narrow[2].pick.ticket.endpoint->address.low, addresses[1].low);
    expect_nobody();
    give_back(&fixture, &at_zero);
    expect_called(&fixture, &narrow[0]);
    give_back(&fixture, &narrow[2]);
    expect_called(&fixture, &any[1]);
    expect_nobody();
    give_back(&fixture, &narrow[0]);
    expect_called(&fixture, &narrow[1]);
    give_back(&fixture, &narrow[1]);
    give_back(&fixture, &any[1]);
    close_pool(&fixture);
}

static void pool_wait_without_endpoint_is_refused(void **state) {
    struct fixture fixture;
    struct endpoint_address address;
    struct subset nowhere = wait_fixture_subset(&address, 9);
    struct waiting_request one = {0}, lost = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(1, 1));
    ask_and_go(&fixture, &one);
    lost.request.subset = &nowhere;
    assert_int_equal(ask(&fixture, &lost), ST_NO_ENDPOINT);
    assert_int_equal(wait_fixture_n(fixture.pool), 0);
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void say(struct fixture *fixture, uint32_t i, unsigned known, uint32_t waiting,
                double used) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                 .until_ns = clock_now_ns() + 100 * MS,
                                 .in_flight = endpoint_in_flight(snapshot->members[i].endpoint),
                                 .known = known,
                                 .n_waiting = waiting,
                                 .kv_cache_used = (float)used};
    pool_set_load(fixture->pool, snapshot->members[i].endpoint, &load);
}

/* Sheddable requests are refused with the probability k * load^power; others never, and none where
 * no load is known, or only an old one. */
static void pool_admitter_refuses_by_mean_load(void **state) {
    static const struct {
        uint32_t waiting[2];
        double used[2];
        int least, most; /* refused of 1000 */
    } rows[] = {{{0, 0}, {0, 0}, 0, 0},
                {{1, 0}, {0, 0.4}, 180, 320},     /* 0.25 and 0.5: 2 * 0.375^2 = 0.28 */
                {{2, 2}, {0.1, 0.8}, 1000, 1000}, /* 0.5 and 1 */
                {{9, 9}, {0, 0}, 1000, 1000}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture fixture;
        struct pool_spec *spec = wait_fixture_spec(2, 0);
        struct waiting_request asker = {0};
        int n_refused = 0;
        spec->flow_control.on = false;
        spec->admitter = (struct pool_admitter){true, 4, 0.8, 2, 2};
        open_pool(&fixture, spec);
        for (uint32_t k = 0; k < 2; k++) {
            say(&fixture, k, LOAD_WAITING | LOAD_KV_CACHE, rows[i].waiting[k], rows[i].used[k]);
        }
        for (int n = 0; n < 1000; n++) {
            asker.request.objective = STR("low");
            enum status st = ask(&fixture, &asker);
            n_refused += st == ST_SATURATED;
            if (st == ST_OK) {
                give_back(&fixture, &asker);
            }
            asker.request.objective = STR("high");
            ask_and_go(&fixture, &asker);
            give_back(&fixture, &asker);
        }
        assert_in_range(n_refused, rows[i].least, rows[i].most);
        clock_set_fake_ns(clock_now_ns() + 100 * MS); /* the loads are too old */
        asker.request.objective = STR("low");
        ask_and_go(&fixture, &asker);
        give_back(&fixture, &asker);
        close_pool(&fixture);
    }
}

static void pool_wait_queue_depth_limits_endpoint(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(2, 0);
    struct waiting_request askers[5] = {0};
    (void)state;
    spec->queue_depth = 3;
    open_pool(&fixture, spec);
    say(&fixture, 0, LOAD_WAITING, 3, 0);
    say(&fixture, 1, LOAD_WAITING, 2, 0);
    ask_and_go(&fixture, &askers[0]); /* it counts there */
    assert_int_equal(askers[0].pick.ticket.endpoint->address.low, fixture_numbered(1).low);
    for (int i = 1; i < 5; i++) {
        ask_and_wait(&fixture, &askers[i]);
    }
    say(&fixture, 1, LOAD_WAITING, 1, 0); /* capacity for two */
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &askers[1].waiter);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &askers[2].waiter);
    expect_nobody();
    ask_and_go(&fixture, &askers[1]);
    ask_and_go(&fixture, &askers[2]);
    clock_set_fake_ns(clock_now_ns() + 100 * MS); /* expired: no endpoint is full */
    expect_nobody();
    pool_tick(fixture.pool, 0);
    expect_called(&fixture, &askers[3]);
    expect_called(&fixture, &askers[4]);
    for (int i = 0; i < 5; i++) {
        give_back(&fixture, &askers[i]);
    }
    close_pool(&fixture);
}

/* Also where the report shows none of our requests: the cache is not less full with them. */
static void pool_wait_kv_cache_limits_endpoint(void **state) {
    static const struct profile_step ACTIVE = {.plugin = &plugin_active_request_scorer,
                                               .weight = 1};
    static const struct profile FEWEST = {
        .scorers = &ACTIVE, .n_scorers = 1, .picker = {.plugin = &plugin_max_score_picker}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct fixture fixture;
        struct pool_spec *spec = wait_fixture_spec(2, 0);
        struct waiting_request askers[3] = {0};
        unsigned counts = i < 2 ? 0 : LOAD_WAITING | LOAD_RUNNING;
        spec->kv_cache = 0.9;
        spec->profile = i % 2 == 1 ? &FEWEST : NULL;
        open_pool(&fixture, spec);
        say(&fixture, 0, LOAD_KV_CACHE, 0, 0.95);
        ask_and_go(&fixture, &askers[0]);
        assert_int_equal(askers[0].pick.ticket.endpoint->address.low, fixture_numbered(1).low);
        say(&fixture, 1, LOAD_KV_CACHE | counts, 0, 0.9375);
        ask_and_wait(&fixture, &askers[1]);
        askers[2].request.objective = STR("low");
        assert_int_equal(ask(&fixture, &askers[2]), ST_SATURATED);
        say(&fixture, 0, LOAD_KV_CACHE, 0, 0.5);
        expect_called(&fixture, &askers[1]);
        give_back(&fixture, &askers[0]);
        give_back(&fixture, &askers[1]);
        close_pool(&fixture);
    }
}

/* Without flow control only sheddable requests are refused. */
static void pool_wait_disabled_refuses_only_sheddable(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(1, 0);
    struct waiting_request one = {0}, cheap = {0};
    (void)state;
    spec->flow_control.on = false;
    spec->queue_depth = 2;
    open_pool(&fixture, spec);
    say(&fixture, 0, LOAD_WAITING, 2, 0);
    ask_and_go(&fixture, &one);
    cheap.request.objective = STR("low");
    assert_int_equal(ask(&fixture, &cheap), ST_SATURATED);
    clock_set_fake_ns(clock_now_ns() + 100 * MS);
    ask_and_go(&fixture, &cheap);
    give_back(&fixture, &one);
    give_back(&fixture, &cheap);
    close_pool(&fixture);
}

/* ---- changes while requests wait ------------------------------------------------------------- */

static void pool_wait_pool_update_notifies_waiters(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, more[6] = {0};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(1, 1));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 6; i++) {
        ask_and_wait(&fixture, &more[i]);
    }
    fixture_update(fixture.pool, wait_fixture_spec(3, 1));
    expect_called(&fixture, &more[0]);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[1].waiter);
    expect_nobody();
    fixture_update(fixture.pool,
                   wait_fixture_spec(1, 1)); /* before it has picked: its endpoint is removed */
    ask_and_wait(&fixture, &more[1]);
    expect_nobody();
    give_back(&fixture, &one);
    expect_called(&fixture, &more[1]);
    fixture_update(fixture.pool, wait_fixture_spec(1, 3));
    expect_called(&fixture, &more[2]);
    expect_called(&fixture, &more[3]);
    struct pool_spec *off = wait_fixture_spec(1, 1);
    off->flow_control.on = false;
    fixture_update(fixture.pool, off);
    expect_called(&fixture, &more[4]);
    fixture_update(fixture.pool, fixture_spec());
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &more[5].waiter);
    assert_int_equal(ask(&fixture, &more[5]), ST_NO_ENDPOINT);
    for (int i = 0; i < 5; i++) {
        give_back(&fixture, &more[i]);
    }
    close_pool(&fixture);
}

/* Waiters whose endpoints were all removed are refused at once, as new requests are. */
static void pool_wait_removed_endpoints_refuse_their_waiters(void **state) {
    struct fixture fixture;
    struct endpoint_address addresses[2];
    struct subset zero = wait_fixture_subset(&addresses[0], 0),
                  first = wait_fixture_subset(&addresses[1], 1);
    struct waiting_request busy[2] = {0}, narrow[3] = {0}, any = {0};
    struct pool_spec *without = fixture_spec();
    struct pool_spec_endpoint wanted = {.address = fixture_numbered(1)};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(2, 1));
    ask_and_go(&fixture, &busy[0]);
    ask_and_go(&fixture, &busy[1]);
    narrow[0].request.subset = narrow[1].request.selection = narrow[2].request.subset = &zero;
    narrow[2].request.selection = &first; /* it must be in both */
    ask_and_wait(&fixture, &any);
    ask_and_wait(&fixture, &narrow[0]);
    ask_and_wait(&fixture, &narrow[1]);
    assert_int_equal(ask(&fixture, &narrow[2]), ST_NO_ENDPOINT);
    pool_spec_add_endpoint(without, &wanted);
    without->max_in_flight = 1;
    without->flow_control.on = true;
    fixture_update(fixture.pool, without);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(pool_wakeup_pop(&wakeup), &narrow[i].waiter);
        assert_int_equal(ask(&fixture, &narrow[i]), ST_NO_ENDPOINT);
    }
    expect_nobody();
    struct pool_spec *empty = wait_fixture_spec(0, 1);
    fixture_update(fixture.pool, empty);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &any.waiter);
    assert_int_equal(ask(&fixture, &any), ST_NO_ENDPOINT);
    give_back(&fixture, &busy[0]);
    give_back(&fixture, &busy[1]);
    close_pool(&fixture);
}

/* 10.0.0.2 is full, 10.0.0.1 has capacity and is avoided: it is of no use to a waiter of both until
 * the other one has left, whatever is added before or after them. */
static void pool_wait_avoided_endpoint_follows_updates(void **state) {
    struct fixture fixture;
    struct endpoint_address addresses[] = {fixture_numbered(1), fixture_numbered(2)};
    struct subset both = {.items = addresses, .n = 2};
    struct waiting_request busy = {0}, narrow = {0};
    (void)state;
    for (uint32_t n_before = 0; n_before < 2; n_before++) {
        struct pool_spec *spec = wait_fixture_spec(0, 1);
        spec->refused_ns = 1000 * MS;
        fixture_add(spec, "10.0.0.1:8000");
        fixture_add(spec, "10.0.0.2:8000");
        open_pool(&fixture, spec);
        pool_report_refused(fixture.pool, fixture_endpoint(&fixture, "10.0.0.1:8000"));
        ask_and_go(&fixture, &busy);
        narrow.request.subset = &both;
        ask_and_wait(&fixture, &narrow);
        pool_tick(fixture.pool, 0);
        expect_nobody();
        for (uint32_t n = 3; n <= 200; n += 197) {
            spec = wait_fixture_spec(0, 1);
            for (uint32_t i = 1 - n_before; i < n; i++) {
                struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
                pool_spec_add_endpoint(spec, &wanted);
            }
            fixture_update(fixture.pool, spec);
            pool_tick(fixture.pool, 0);
            expect_nobody();
        }
        spec = wait_fixture_spec(2, 1);
        fixture_update(fixture.pool, spec);
        expect_called(&fixture, &narrow);
        assert_true(endpoint_is_refused(narrow.pick.ticket.endpoint));
        give_back(&fixture, &narrow);
        give_back(&fixture, &busy);
        close_pool(&fixture);
    }
}

static void pool_wait_ready_endpoint_notifies_waiters(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = wait_fixture_spec(2, 1);
    struct waiting_request askers[4] = {0};
    (void)state;
    spec->health.kind = POOL_HEALTH_TCP;
    spec->refused_ns = 5 * MS;
    open_pool(&fixture, spec);
    struct endpoint *endpoints[] = {fixture_endpoint(&fixture, "10.0.0.0:8000"),
                                    fixture_endpoint(&fixture, "10.0.0.1:8000")};
    pool_set_ready(fixture.pool, endpoints[0], true);
    ask_and_go(&fixture, &askers[0]); /* the other one is avoided and does not count */
    ask_and_wait(&fixture, &askers[1]);
    pool_tick(fixture.pool, 0);
    expect_nobody();
    pool_set_ready(fixture.pool, endpoints[1], true);
    expect_called(&fixture, &askers[1]);
    pool_report_refused(fixture.pool, endpoints[1]);
    ask_and_wait(&fixture, &askers[2]);
    give_back(&fixture, &askers[1]);
    expect_nobody(); /* it is avoided */
    clock_set_fake_ns(clock_now_ns() + 5 * MS);
    pool_tick(fixture.pool, 0);
    expect_called(&fixture, &askers[2]);
    pool_report_refused(fixture.pool, endpoints[1]);
    ask_and_wait(&fixture, &askers[3]);
    give_back(&fixture, &askers[2]);
    expect_nobody();
    pool_set_ready(fixture.pool, endpoints[0], false); /* now it is the only one */
    pool_tick(fixture.pool, 0);
    expect_called(&fixture, &askers[3]);
    give_back(&fixture, &askers[0]);
    give_back(&fixture, &askers[3]);
    close_pool(&fixture);
}

/* Where the filters leave only full endpoints the request waits for one of these. */
static void pool_wait_filters_leaving_full_endpoints_wait(void **state) {
    static const struct pool_label label = {STR("a"), STR("b")};
    struct fixture fixture;
    struct pool_spec *spec = fixture_spec();
    struct waiting_request askers[3] = {0};
    struct error err;
    struct doc *doc;
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i),
                                            .labels = {&label, 1 - i}};
        pool_spec_add_endpoint(spec, &wanted);
    }
    struct profile_step filter = {.plugin = &plugin_label_selector_filter};
    struct profile profile = {
        .filters = &filter, .n_filters = 1, .picker = {.plugin = &plugin_max_score_picker}};
    assert_int_equal(doc_parse(DOC_YAML, "p", STR("{matchLabels: {a: b}}"), &doc, &err), ST_OK);
    struct doc_node node = doc_root(doc);
    assert_int_equal(
        plugin_read_parameters(filter.plugin, &node, spec->arena, &filter.parameters, &err), ST_OK);
    doc_free(doc);
    spec->profile = &profile;
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    spec->flow_control.max_wait_ns = 100000 * MS;
    open_pool(&fixture, spec);
    ask_and_go(&fixture, &askers[0]);
    ask_and_wait(&fixture, &askers[1]);
    pool_tick(fixture.pool, 0); /* the other endpoint has capacity, but the filters exclude it */
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &askers[1].waiter);
    ask_and_wait(&fixture, &askers[1]);
    pool_tick(fixture.pool, 0); /* it is stalled now, and offered to one waiter later */
    expect_nobody();
    ask_and_wait(&fixture, &askers[2]);
    clock_set_fake_ns(clock_now_ns() + 1000 * MS);
    pool_tick(fixture.pool, 0);
    pool_tick(fixture.pool, 0);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &askers[1].waiter);
    expect_nobody();
    ask_and_wait(&fixture, &askers[1]);
    give_back(&fixture, &askers[0]);
    expect_called(&fixture, &askers[1]);
    give_back(&fixture, &askers[1]);
    expect_called(&fixture, &askers[2]);
    give_back(&fixture, &askers[2]);
    askers[2] = (struct waiting_request){0};
    askers[2].request.subset = &(struct subset){.items = &(struct endpoint_address){0}, .n = 1};
    *askers[2].request.subset->items = fixture_numbered(1);
    assert_int_equal(ask(&fixture, &askers[2]), ST_NO_ENDPOINT);
    close_pool(&fixture);
}

enum { N_MANY = 200, N_HELD_OF_MANY = 40 };

struct many {
    struct fixture fixture;
    struct pool_wakeup own_wakeup;
    struct endpoint_address addresses[N_MANY];
    struct subset subset, selection;
    struct pool_pick held[N_HELD_OF_MANY];
    struct waiting_request requests[N_MANY];
};

static void on_many_call(void *user) {
    (void)user;
}

/* The endpoints from `first`, of which each takes one request. */
static struct pool_spec *many_spec(uint32_t first, uint32_t n) {
    struct pool_spec *spec = wait_fixture_spec(0, 1);
    for (uint32_t i = 0; i < n; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(first + i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    return spec;
}

static enum status pick_of_many(struct many *many, struct waiting_request *request) {
    return pool_pick(many->fixture.reader, &request->request, &request->pick, &request->err);
}

static uint64_t n_waiting_of_many(struct many *many) {
    struct pool_flow_stats stats;
    pool_get_flow_stats(many->fixture.pool, NULL, 0, &stats);
    return stats.n_waiting;
}

/* Picks for all notified requests; each releases its endpoint at once. */
static void resume_many(struct many *many, uint32_t n_picked, uint32_t n_refused) {
    struct pool_waiter *waiter;
    while ((waiter = pool_wakeup_pop(&many->own_wakeup))) {
        struct waiting_request *request = (struct waiting_request *)(void *)waiter;
        if (pick_of_many(many, request) == ST_OK) {
            assert_non_null(request->pick.ticket.endpoint);
            pool_release_ticket(many->fixture.pool, &request->pick.ticket);
            n_picked--;
        } else {
            n_refused--;
        }
    }
    assert_int_equal(n_picked, 0);
    assert_int_equal(n_refused, 0);
}

/* More requests wait, each for many endpoints, than are looked at in one go under the lock: none is
 * forgotten when the pool changes. Then every second one has a selection too. */
static void pool_wait_many_subsets_follow_updates(void **state) {
    struct many *many = calloc(1, sizeof(*many));
    (void)state;
    for (uint32_t i = 0; i < N_MANY; i++) {
        many->addresses[i] = fixture_numbered(i % 2 ? N_MANY / 2 + i / 2 : i / 2);
    }
    many->subset = (struct subset){.items = many->addresses, .n = N_MANY};
    many->selection = (struct subset){.items = many->addresses, .n = N_MANY / 2};
    fixture_open(&many->fixture, many_spec(0, N_HELD_OF_MANY));
    pool_wakeup_init(&many->own_wakeup, on_many_call, NULL);
    for (uint32_t i = 0; i < N_HELD_OF_MANY; i++) {
        many->held[i] = fixture_pick(&many->fixture);
    }
    for (uint32_t i = 0; i < N_MANY; i++) {
        struct waiting_request *request = &many->requests[i];
        request->waiter.wakeup = &many->own_wakeup;
        request->request =
            (struct pool_request){.subset = &many->subset, .waiter = &request->waiter};
        assert_int_equal(pick_of_many(many, request), ST_OK);
        assert_null(request->pick.ticket.endpoint);
    }
    pool_tick(many->fixture.pool, 0);
    resume_many(many, 0, 0);
    fixture_update(many->fixture.pool, many_spec(0, N_HELD_OF_MANY + 101));
    assert_int_equal(n_waiting_of_many(many), N_MANY); /* 101 of these are notified */
    resume_many(many, N_MANY, 0);
    assert_int_equal(n_waiting_of_many(many), 0);
    fixture_update(many->fixture.pool, many_spec(0, N_HELD_OF_MANY));
    for (uint32_t i = 0; i < N_MANY; i++) {
        many->requests[i].request.selection = i % 2 ? &many->selection : NULL;
        assert_int_equal(pick_of_many(many, &many->requests[i]), ST_OK);
    }
    assert_int_equal(n_waiting_of_many(many), N_MANY);
    fixture_update(many->fixture.pool, many_spec(60, 1)); /* in the subset, not in the selection */
    resume_many(many, N_MANY / 2, N_MANY / 2);
    fixture_update(many->fixture.pool, many_spec(0, N_HELD_OF_MANY));
    for (uint32_t i = 0; i < N_MANY; i++) {
        assert_int_equal(pick_of_many(many, &many->requests[i]), ST_OK);
    }
    fixture_update(many->fixture.pool, many_spec(N_MANY, 3)); /* none that they name */
    resume_many(many, 0, N_MANY);
    for (uint32_t i = 0; i < N_HELD_OF_MANY; i++) {
        pool_release_ticket(many->fixture.pool, &many->held[i].ticket);
    }
    fixture_close(&many->fixture);
    pool_wakeup_fini(&many->own_wakeup);
    free(many);
}

static void on_reserved_call(void *user) {
    (void)user;
}

/* The reserved slot counts as a request of its endpoint, and must not make another one of the
 * subset look as good. */
static void pool_wait_notified_request_takes_reserved_slot(void **state) {
    enum { N_ENDPOINTS = 8 };
    struct fixture fixture;
    struct pool_wakeup own_wakeup;
    struct endpoint_address addresses[N_ENDPOINTS];
    struct subset subset = {.items = addresses, .n = N_ENDPOINTS};
    struct pool_pick held[N_ENDPOINTS];
    struct error err;
    (void)state;
    for (uint32_t i = 0; i < N_ENDPOINTS; i++) {
        addresses[i] = fixture_numbered(i);
    }
    fixture_open(&fixture, wait_fixture_spec(N_ENDPOINTS, 1));
    pool_wakeup_init(&own_wakeup, on_reserved_call, NULL);
    for (int i = 0; i < N_ENDPOINTS; i++) {
        held[i] = fixture_pick(&fixture);
    }
    for (int i = 0; i < 20; i++) {
        struct pool_waiter waiter = {.wakeup = &own_wakeup};
        struct pool_request request = {.subset = &subset, .waiter = &waiter};
        struct pool_pick pick, *ended = &held[i % N_ENDPOINTS];
        assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_OK);
        assert_null(pick.ticket.endpoint);
        struct endpoint *free_endpoint = ended->ticket.endpoint;
        pool_release_ticket(fixture.pool, &ended->ticket);
        assert_ptr_equal(pool_wakeup_pop(&own_wakeup), &waiter);
        assert_int_equal(pool_pick(fixture.reader, &request, ended, &err), ST_OK);
        assert_ptr_equal(ended->ticket.endpoint, free_endpoint);
    }
    for (int i = 0; i < N_ENDPOINTS; i++) {
        pool_release_ticket(fixture.pool, &held[i].ticket);
    }
    fixture_close(&fixture);
    pool_wakeup_fini(&own_wakeup);
}

/* ---- waiters of other endpoints -------------------------------------------------------------- */

/* Many requests wait for one full endpoint. A request that ends at another one, which is full as
 * well, searches them once, and then only if one that may use it has come. */
static void pool_wait_search_without_result_is_not_repeated(void **state) {
    enum { MANY = 200 };
    static struct waiting_request one[2], many[MANY], late;
    static struct endpoint_address addresses[2];
    struct fixture fixture;
    struct subset subsets[2] = {wait_fixture_subset(&addresses[0], 0),
                                wait_fixture_subset(&addresses[1], 1)};
    (void)state;
    open_pool(&fixture, wait_fixture_spec(2, 1));
    for (int i = 0; i < 2; i++) {
        one[i].request.subset = &subsets[i];
        ask_and_go(&fixture, &one[i]);
    }
    for (int i = 0; i < MANY; i++) {
        many[i].request.subset = &subsets[0];
        ask_and_wait(&fixture, &many[i]);
    }
    uint64_t before = fixture.pool->n_searches;
    for (int i = 0; i < 50; i++) {
        give_back(&fixture, &one[1]);
        ask_and_go(&fixture, &one[1]);
        if (i == 20) {
            pool_dequeue(fixture.pool, &many[MANY - 1].waiter, FLOW_ABORTED);
            ask_and_wait(&fixture, &many[MANY - 1]);
        }
    }
    assert_int_equal(fixture.pool->n_searches, before + 1);
    late.request.subset = &subsets[1];
    ask_and_wait(&fixture, &late);
    give_back(&fixture, &one[1]);
    expect_called(&fixture, &late);
    give_back(&fixture, &late);
    for (int i = 0; i < MANY; i++) {
        give_back(&fixture, i == 0 ? &one[0] : &many[i - 1]);
        expect_called(&fixture, &many[i]);
    }
    give_back(&fixture, &many[MANY - 1]);
    close_pool(&fixture);
}

/* ---- a full queue ---------------------------------------------------------------------------- */

static struct pool_spec *spec_with_limits(uint64_t max_requests, uint64_t max_bytes) {
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    spec->flow_control.limits =
        (struct flow_limits){.max_requests = max_requests, .max_bytes = max_bytes};
    return spec;
}

/* It is told by its wakeup, and its next pick is refused. */
static void expect_displaced(struct fixture *fixture, struct waiting_request *asker) {
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &asker->waiter);
    assert_int_equal(ask(fixture, asker), ST_SATURATED);
    assert_non_null(strstr(asker->err.text, "took the place of this one"));
    assert_int_equal(asker->waiter.item.state, FLOW_IDLE);
}

/* A flood of the lowest priority does not shut the others out. */
static void pool_wait_higher_priority_takes_place_of_newest_of_lowest(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, low[4] = {0}, mid = {0}, high[4] = {0}, late = {0};
    (void)state;
    open_pool(&fixture, spec_with_limits(4, 1 << 20));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 3; i++) {
        ask_and_wait(&fixture, &low[i]);
    }
    mid.request.objective = STR("mid");
    ask_and_wait(&fixture, &mid);
    assert_int_equal(ask(&fixture, &low[3]), ST_SATURATED); /* as others of its id wait */
    for (int i = 0; i < 4; i++) {
        high[i].request.objective = STR("high");
        ask_and_wait(&fixture, &high[i]);
        expect_displaced(&fixture, i < 3 ? &low[2 - i] : &mid);
        assert_int_equal(wait_fixture_n(fixture.pool), 4);
    }
    late.request.objective = STR("high");
    assert_int_equal(ask(&fixture, &late), ST_SATURATED);
    for (int i = 0; i < 4; i++) {
        give_back(&fixture, i == 0 ? &one : &high[i - 1]);
        expect_called(&fixture, &high[i]);
    }
    give_back(&fixture, &high[3]);
    close_pool(&fixture);
}

/* Of one priority each fairness id gets its part of the queue. */
static void pool_wait_fairness_id_with_fewer_takes_place_of_one_with_most(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, many[6] = {0}, few[3] = {0};
    (void)state;
    open_pool(&fixture, spec_with_limits(6, 1 << 20));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 6; i++) {
        many[i].request.fairness_id = STR("mallory");
        ask_and_wait(&fixture, &many[i]);
    }
    for (int i = 0; i < 3; i++) {
        few[i].request.fairness_id = STR("bob");
        ask_and_wait(&fixture, &few[i]);
        expect_displaced(&fixture, &many[5 - i]);
    }
    struct waiting_request again[2] = {{.request = {.fairness_id = STR("mallory")}},
                                       {.request = {.fairness_id = STR("bob")}}};
    for (int i = 0; i < 2; i++) { /* three each */
        assert_int_equal(ask(&fixture, &again[i]), ST_SATURATED);
    }
    for (int i = 0; i < 3; i++) {
        pool_dequeue(fixture.pool, &many[i].waiter, FLOW_ABORTED);
        pool_dequeue(fixture.pool, &few[i].waiter, FLOW_ABORTED);
    }
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* Bytes alike: for a new request, and for one that grows while it waits. */
static void pool_wait_bytes_are_taken_from_lowest_priority(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, low[4] = {0}, high = {0};
    (void)state;
    open_pool(&fixture, spec_with_limits(100, 1000));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 4; i++) {
        low[i].request.n_bytes = 250;
        ask_and_wait(&fixture, &low[i]);
    }
    high.request.objective = STR("high");
    high.request.n_bytes = 300;
    ask_and_wait(&fixture, &high);
    expect_displaced(&fixture, &low[3]);
    expect_displaced(&fixture, &low[2]);
    assert_true(pool_waiter_add_bytes(fixture.pool, &high.waiter, 400));
    pool_dequeue(fixture.pool, &low[1].waiter, FLOW_ABORTED); /* before it was told */
    assert_null(pool_wakeup_pop(&wakeup));
    assert_false(pool_waiter_add_bytes(fixture.pool, &high.waiter, 500)); /* too large by itself */
    assert_null(pool_wakeup_pop(&wakeup));
    pool_dequeue(fixture.pool, &low[0].waiter, FLOW_ABORTED);
    pool_dequeue(fixture.pool, &high.waiter, FLOW_ABORTED);
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* Of one priority each fairness id gets its part of the bytes, however many requests it needs for
 * them. */
static void pool_wait_fairness_id_with_fewer_bytes_takes_place_of_one_with_most(void **state) {
    struct fixture fixture;
    struct waiting_request one = {0}, large[2] = {0}, small[4] = {0}, grown = {0};
    (void)state;
    open_pool(&fixture, spec_with_limits(100, 1000));
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 4; i++) {
        small[i].request.fairness_id = STR("bob");
        small[i].request.n_bytes = 10;
    }
    for (int i = 0; i < 3; i++) {
        ask_and_wait(&fixture, &small[i]);
    }
    for (int i = 0; i < 2; i++) {
        large[i].request.fairness_id = STR("mallory");
        large[i].request.n_bytes = 480;
        ask_and_wait(&fixture, &large[i]);
    }
    ask_and_wait(&fixture, &small[3]); /* 1,000 bytes */
    grown.request.fairness_id = STR("carol");
    grown.request.n_bytes = 100;
    ask_and_wait(&fixture, &grown);
    expect_displaced(&fixture, &large[1]);
    assert_int_equal(ask(&fixture, &large[1]), ST_SATURATED);                /* it has most */
    assert_true(pool_waiter_add_bytes(fixture.pool, &small[0].waiter, 380)); /* 1,000 again */
    assert_true(pool_waiter_add_bytes(fixture.pool, &grown.waiter, 50));
    expect_displaced(&fixture, &large[0]);
    for (int i = 0; i < 4; i++) {
        pool_dequeue(fixture.pool, &small[i].waiter, FLOW_ABORTED);
    }
    pool_dequeue(fixture.pool, &grown.waiter, FLOW_ABORTED);
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* A request that would not fit in their place displaces no others: neither for the bytes of all,
 * nor for those of its band, nor where it has a place but no bytes. */
static void pool_wait_request_that_does_not_fit_displaces_none(void **state) {
    static const struct flow_band_rules band = {.priority = 3, .max_requests = 4, .max_bytes = 500};
    struct fixture fixture;
    struct waiting_request one = {0}, mid[4] = {0}, low[2] = {0};
    (void)state;
    struct pool_spec *spec = spec_with_limits(6, 1000);
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.limits.bands = &band;
    spec->flow_control.limits.n_bands = 1;
    open_pool(&fixture, spec);
    ask_and_go(&fixture, &one);
    for (int i = 0; i < 4; i++) {
        mid[i].request.objective = STR("mid");
        mid[i].request.fairness_id = i < 3 ? STR("mallory") : STR("bob");
        mid[i].request.n_bytes = i < 3 ? 50 : 300;
        ask_and_wait(&fixture, &mid[i]);
    }
    for (int i = 0; i < 2; i++) {
        low[i].request.objective = STR("low");
        low[i].request.n_bytes = 250;
        ask_and_wait(&fixture, &low[i]);
    }
    /* The lowest priority's bytes and one of mallory's places would do, but not for the band's
     * bytes. */
    struct waiting_request carol = {
        .request = {.objective = STR("mid"), .fairness_id = STR("carol"), .n_bytes = 310}};
    assert_int_equal(ask(&fixture, &carol), ST_SATURATED);
    assert_non_null(strstr(carol.err.text, "bytes"));
    assert_false(pool_waiter_add_bytes(fixture.pool, &mid[0].waiter, 300));
    assert_null(pool_wakeup_pop(&wakeup));
    assert_int_equal(wait_fixture_n(fixture.pool), 6);
    for (int i = 0; i < 4; i++) {
        pool_dequeue(fixture.pool, &mid[i].waiter, FLOW_ABORTED);
    }
    for (int i = 0; i < 2; i++) {
        pool_dequeue(fixture.pool, &low[i].waiter, FLOW_ABORTED);
    }
    give_back(&fixture, &one);
    close_pool(&fixture);
}

/* With turn-priority the conversation with the most turns goes first; a request that was not sent
 * is not one that is in flight. */
static void pool_wait_deepest_conversation_is_first(void **state) {
    static const struct flow_band_rules others = {
        .max_requests = FLOW_UNLIMITED, .max_bytes = FLOW_UNLIMITED, .fairness = FLOW_BY_PROGRAM};
    struct fixture fixture;
    struct waiting_request one = {.request = {.fairness_id = STR("deep")}}, more[3] = {0};
    struct pool_spec *spec = wait_fixture_spec(1, 1);
    (void)state;
    spec->flow_control.limits.others = &others;
    spec->flow_control.has_programs = true;
    spec->flow_control.programs =
        (struct program_rules){.strategy = PROGRAMS_DEEPEST, .time_weight = 1, .inactivity_s = 5};
    open_pool(&fixture, spec);
    for (int i = 0; i < 3; i++) {
        ask_and_go(&fixture, &one);
        pool_count_service(fixture.pool, &one.pick.ticket, 0, 0);
        give_back(&fixture, &one);
    }
    ask_and_go(&fixture, &one); /* the fourth turn */
    more[0].request.fairness_id = STR("shallow");
    more[1].request.fairness_id = STR("deep");
    more[2].request.fairness_id = STR("deep");
    ask_and_wait(&fixture, &more[0]);
    ask_and_wait(&fixture, &more[1]);
    clock_set_fake_ns(3000 * MS);
    ask_and_wait(&fixture, &more[2]);
    give_back(&fixture, &one); /* it was never sent */
    expect_called(&fixture, &more[1]);
    pool_count_service(fixture.pool, &more[1].pick.ticket, 0, 0);
    give_back(&fixture, &more[1]);
    expect_called(&fixture, &more[2]); /* turn 6, 2 s later than turn 1 */
    pool_count_service(fixture.pool, &more[2].pick.ticket, 0, 0);
    clock_set_fake_ns(9000 * MS); /* idle for 6 s: turn 1 */
    ask_and_wait(&fixture, &more[1]);
    give_back(&fixture, &more[2]);
    expect_called(&fixture, &more[0]);
    give_back(&fixture, &more[0]);
    expect_called(&fixture, &more[1]);
    give_back(&fixture, &more[1]);
    close_pool(&fixture);
}

/* One tick for each pool that requests wait for, however many do. */
static void pool_wait_ticks_each_pool_once(void **state) {
    struct fixture fixtures[3];
    struct pool_waited waited = {{NULL}};
    (void)state;
    clock_set_fake_ns(1000 * MS);
    for (int i = 0; i < 3; i++) {
        fixture_open(&fixtures[i], wait_fixture_spec(1, 1));
    }
    for (int k = 0; k < 1000; k++) {
        pool_waited_add(&waited, fixtures[k % 2].reader);
    }
    int n = 0;
    struct pool_reader *reader;
    LIST_FOREACH(reader, &waited.readers, waited_link) {
        n++;
    }
    assert_int_equal(n, 2);
    pool_waited_tick(&waited, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixtures[i].pool->ticked_ns, i < 2 ? 1000 * MS : 0);
    }
    for (int k = 0; k < 1000; k++) {
        assert_false(pool_waited_is_empty(&waited));
        pool_waited_remove(fixtures[k % 2].reader);
    }
    assert_true(pool_waited_is_empty(&waited));
    for (int i = 0; i < 3; i++) {
        fixture_close(&fixtures[i]);
    }
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_wait_request_that_does_not_fit_displaces_none),
        cmocka_unit_test(pool_wait_deepest_conversation_is_first),
        cmocka_unit_test(pool_wait_ticks_each_pool_once),
        cmocka_unit_test(pool_wait_search_without_result_is_not_repeated),
        cmocka_unit_test(pool_wait_higher_priority_takes_place_of_newest_of_lowest),
        cmocka_unit_test(pool_wait_fairness_id_with_fewer_takes_place_of_one_with_most),
        cmocka_unit_test(pool_wait_bytes_are_taken_from_lowest_priority),
        cmocka_unit_test(pool_wait_fairness_id_with_fewer_bytes_takes_place_of_one_with_most),
        cmocka_unit_test(pool_wait_notifies_as_many_as_capacity_allows),
        cmocka_unit_test(pool_wait_notifies_many_in_parts),
        cmocka_unit_test(pool_wait_new_request_does_not_overtake_notified),
        cmocka_unit_test(pool_wait_ids_of_a_band_alternate),
        cmocka_unit_test(pool_wait_criticality_sets_priority),
        cmocka_unit_test(pool_wait_dequeued_waiter_releases_capacity),
        cmocka_unit_test(pool_wait_sheddable_waits_in_its_band),
        cmocka_unit_test(pool_wait_higher_priority_displaces_newest_sheddable),
        cmocka_unit_test(pool_wait_order_by_deadline_header),
        cmocka_unit_test(pool_wait_full_queue_error_names_the_limit),
        cmocka_unit_test(pool_admitter_refuses_by_mean_load),
        cmocka_unit_test(pool_wait_without_endpoints_ends_with_the_first),
        cmocka_unit_test(pool_wait_limit_follows_readiness),
        cmocka_unit_test(pool_wait_holdback_keeps_capacity_for_higher_priorities),
        cmocka_unit_test(pool_wait_holdback_holds_for_subsets),
        cmocka_unit_test(pool_wait_soft_ceiling_admits_some),
        cmocka_unit_test(pool_wait_full_subset_does_not_block_others),
        cmocka_unit_test(pool_wait_without_endpoint_is_refused),
        cmocka_unit_test(pool_wait_notified_request_takes_reserved_slot),
        cmocka_unit_test(pool_wait_many_subsets_follow_updates),
        cmocka_unit_test(pool_wait_queue_depth_limits_endpoint),
        cmocka_unit_test(pool_wait_kv_cache_limits_endpoint),
        cmocka_unit_test(pool_wait_disabled_refuses_only_sheddable),
        cmocka_unit_test(pool_wait_pool_update_notifies_waiters),
        cmocka_unit_test(pool_wait_removed_endpoints_refuse_their_waiters),
        cmocka_unit_test(pool_wait_avoided_endpoint_follows_updates),
        cmocka_unit_test(pool_wait_ready_endpoint_notifies_waiters),
        cmocka_unit_test(pool_wait_filters_leaving_full_endpoints_wait),
    };
    return cmocka_run_group_tests_name("pick/pool/flow/wait", tests, NULL, NULL);
}
