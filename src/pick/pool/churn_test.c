/* Picks on several threads while the pool is updated: endpoints are added and removed, become ready
 * and unready, refuse connections and respond, report loads, and profiles change. Which endpoints
 * may be picked follows from the generation of the pick, so each pick is checked afterwards. At the
 * end nothing is in flight. For the thread sanitizer. */
#include "pick/pool/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

enum { N = 64, PICKERS = 4, HELD = 32, UPDATES = 1500 };

/* Whether endpoint `i` is in the pool in this generation. */
static bool is_member(uint64_t generation, uint32_t i) {
    struct prng prng = {generation * N + i};
    return generation > 0 && prng_next(&prng) % 4 > 0;
}

static const struct profile_step RUNNING = {.plugin = &plugin_running_requests_size_scorer,
                                            .weight = 1};
static const struct profile BY_TWO = {
    .scorers = &RUNNING,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_power_of_two_picker},
    .needs = {.tokens = true, .load = {.output_ratio = 1.5, .max_output = 1000}}};
static const struct profile WITH_OUTPUT = {
    .scorers = &RUNNING,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_power_of_two_picker},
    .needs = {.tokens = true,
              .load = {.adds_output = true, .output_ratio = 1.5, .max_output = 1000}}};

static struct pool_spec *spec_of(uint64_t generation) {
    struct pool_spec *spec = fixture_spec();
    spec->profile = generation % 4 == 1 ? &BY_TWO : generation % 4 == 3 ? &WITH_OUTPUT : NULL;
    spec->health.kind = generation % 3 == 0 ? POOL_HEALTH_TCP : POOL_HEALTH_NONE;
    spec->refused_ns = 1000000;
    for (uint32_t i = 0; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (is_member(generation, i)) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    return spec;
}

struct picker {
    struct pool *pool;
    struct pool_reader *reader;
    struct prng prng;
    _Atomic bool *over;
    struct pool_ticket held[HELD];
    unsigned n_picked, n_none, n_wrong;
};

/* The picked endpoint and the fallbacks must be in the pool and in the subset. */
static bool is_allowed(const struct pool_pick *pick, const struct endpoint *endpoint,
                       const struct subset *subset) {
    uint32_t number = (uint32_t)(endpoint->address.low - (10u << 24));
    bool named = !subset;
    for (size_t i = 0; subset && i < subset->n; i++) {
        named = named || endpoint_address_equal(&subset->items[i], &endpoint->address);
    }
    return named && is_member(pick->generation, number);
}

static void pick_one(struct picker *picker, struct pool_ticket *ticket) {
    struct endpoint_address items[8];
    struct subset subset = {.items = items, .n = prng_below(&picker->prng, 8)};
    for (size_t i = 0; i < subset.n; i++) {
        items[i] = fixture_numbered(prng_below(&picker->prng, N));
    }
    bool has_subset = prng_below(&picker->prng, 2) == 0;
    struct pool_request request = {.subset = has_subset ? &subset : NULL,
                                   .n_tokens = prng_below(&picker->prng, 5000),
                                   .max_output_tokens = prng_below(&picker->prng, 2) * 700,
                                   .n_fallbacks = prng_below(&picker->prng, 4)};
    struct pool_pick pick;
    struct error err;
    enum status st = pool_pick(picker->reader, &request, &pick, &err);
    picker->n_none += st == ST_NO_ENDPOINT;
    picker->n_wrong += st != ST_OK && st != ST_NO_ENDPOINT;
    picker->n_wrong += st == ST_NO_ENDPOINT && pick.ticket.endpoint;
    if (st != ST_OK) {
        return;
    }
    picker->n_picked++;
    for (size_t i = 0; i < pick.n_endpoints; i++) {
        picker->n_wrong += !is_allowed(&pick, pick.endpoints[i], request.subset);
    }
    picker->n_wrong += endpoint_in_flight(pick.ticket.endpoint) == 0;
    *ticket = pick.ticket;
}

static void say_something(struct picker *picker, struct pool_ticket *ticket) {
    struct endpoint_address other = fixture_numbered(prng_below(&picker->prng, N));
    switch (prng_below(&picker->prng, 9)) {
    case 8:
        pool_ticket_end_prompt(picker->pool, ticket);
        break;
    case 0:
        pool_report_refused(picker->pool, ticket->endpoint);
        break;
    case 1:
        pool_report_answered(picker->pool, ticket->endpoint);
        break;
    case 2:
        pool_ticket_move(picker->reader, ticket, &other);
        break;
    default:
        break;
    }
}

static void *run_picker(void *arg) {
    struct picker *picker = arg;
    while (!atomic_load(picker->over)) {
        struct pool_ticket *ticket = &picker->held[prng_below(&picker->prng, HELD)];
        if (ticket->endpoint) {
            say_something(picker, ticket);
            pool_release_ticket(picker->pool, ticket);
        } else {
            pick_one(picker, ticket);
        }
    }
    pool_reader_unref(picker->reader); /* tickets may outlive it */
    return NULL;
}

static void say_load(struct pool *pool, const struct endpoint *endpoint, struct prng *prng) {
    struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                 .until_ns = clock_now_ns() + 100000,
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = prng_below(prng, 32),
                                 .n_waiting = prng_below(prng, 9)};
    load_add_adapter(&load, STR("sql"), false);
    pool_set_load(pool, endpoint, &load);
}

/* Changes the readiness of some endpoints, as checks would, and reports loads. */
static void flip(struct pool_reader *reader, struct pool *pool, struct prng *prng) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        if (prng_below(prng, 3) == 0) {
            pool_set_ready(pool, snapshot->members[i].endpoint, prng_below(prng, 2) == 0);
        }
        if (prng_below(prng, 8) == 0) {
            say_load(pool, snapshot->members[i].endpoint, prng);
        }
    }
}

static void pool_concurrent_updates_keep_picks_valid(void **state) {
    (void)state;
    static struct picker pickers[PICKERS];
    pthread_t threads[PICKERS];
    _Atomic bool over = false;
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_stats stats;
    struct error err;
    struct prng prng = {5};
    unsigned n_picked = 0, n_none = 0;
    assert_int_equal(pool_new(&pool, &err), ST_OK);
    assert_int_equal(pool_reader_new(pool, 9, &reader, &err), ST_OK);
    for (unsigned i = 0; i < PICKERS; i++) {
        pickers[i] = (struct picker){.pool = pool, .prng = {i}, .over = &over};
        assert_int_equal(pool_reader_new(pool, 0, &pickers[i].reader, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_picker, &pickers[i]), 0);
    }
    for (uint64_t generation = 1; generation <= UPDATES; generation++) {
        fixture_update(pool, spec_of(generation));
        assert_int_equal(pool_generation(pool), generation);
        for (int i = 0; i < 20; i++) {
            flip(reader, pool, &prng);
        }
    }
    atomic_store(&over, true);
    for (int i = 0; i < PICKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(pickers[i].n_wrong, 0);
        n_picked += pickers[i].n_picked;
        n_none += pickers[i].n_none;
    }
    assert_true(n_picked > 0 && n_none > 0);
    for (int i = 0; i < PICKERS * HELD; i++) {
        pool_release_ticket(pool, &pickers[i / HELD].held[i % HELD]);
    }
    const struct pool_snapshot *last = pool_reader_refresh(reader);
    for (uint32_t i = 0; i < last->n_members; i++) {
        assert_int_equal(endpoint_in_flight(last->members[i].endpoint), 0);
        assert_int_equal(endpoint_n_tokens(last->members[i].endpoint), 0);
    }
    pool_get_stats(pool, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    pool_reader_unref(reader);
    pool_free(pool);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_concurrent_updates_keep_picks_valid),
    };
    return cmocka_run_group_tests_name("pick/pool/churn", tests, NULL, NULL);
}
