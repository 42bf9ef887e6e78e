/* Three faults that users report of another picker, in issues that are open, and that this pool
 * must not have: bursts that all go to one endpoint, loads that are not reported any more and stop
 * all requests, and counts of requests in flight that drift. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/flow/wait_fixture.h"
#include "pick/pool/profile/profile.h"

#define SECOND UINT64_C(1000000000)
#define BEGIN_NS (1000 * SECOND)
enum { ENDPOINTS = 8 };

/* ---- fixture --------------------------------------------------------------------------------- */

/* llm-d's usual ones: of its chart, of its guides, and the queue alone. NULL: the pool's own. */
static const struct profile_step CHART[] = {
    {.plugin = &plugin_queue_scorer, .weight = 2},
    {.plugin = &plugin_kv_cache_utilization_scorer, .weight = 2},
    {.plugin = &plugin_prefix_cache_scorer, .weight = 3}};
static const struct profile_step TOKENS = {.plugin = &plugin_token_load_scorer, .weight = 1};
static const struct profile_step ACTIVE = {.plugin = &plugin_active_request_scorer, .weight = 1};
static const struct {
    const struct profile_step *scorers;
    size_t n;
    uint32_t n_tokens; /* of a request; 0: unknown, all endpoints score the same */
} PROFILES[] = {{NULL, 0, 100},    {CHART, 3, 100}, {CHART, 1, 100},
                {&TOKENS, 1, 100}, {&TOKENS, 1, 0}, {&ACTIVE, 1, 100}};
enum { N_PROFILES = sizeof(PROFILES) / sizeof(PROFILES[0]) };

static void set_profile(struct pool_spec *spec, size_t i) {
    struct profile *profile = arena_calloc(spec->arena, 1, sizeof(*profile));
    struct profile_step *scorers = arena_calloc(spec->arena, 4, sizeof(*scorers));
    struct doc_node none = {0};
    struct error err;
    assert_true(profile && scorers);
    if (!PROFILES[i].scorers) {
        return;
    }
    *profile = (struct profile){.scorers = scorers,
                                .n_scorers = PROFILES[i].n,
                                .picker = {.plugin = &plugin_max_score_picker}};
    for (size_t k = 0; k < PROFILES[i].n; k++) {
        scorers[k] = PROFILES[i].scorers[k];
        assert_int_equal(plugin_read_parameters(scorers[k].plugin, &none, spec->arena,
                                                &scorers[k].parameters, &err),
                         ST_OK);
    }
    assert_int_equal(profile_collect_needs(profile, &err), ST_OK);
    spec->profile = profile;
}

/* All endpoints report the same, valid for so long. */
static void report_loads(struct fixture *fixture, uint32_t n_waiting, float kv_cache,
                         uint64_t valid_ns) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                     .until_ns = clock_now_ns() + valid_ns,
                                     .in_flight = endpoint_in_flight(endpoint),
                                     .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE,
                                     .n_waiting = n_waiting,
                                     .n_running = 1,
                                     .kv_cache_used = kv_cache};
        pool_set_load(fixture->pool, endpoint, &load);
    }
}

static struct pool_ticket pick(struct pool_reader *reader, size_t profile) {
    struct pool_request request = {.model = {NULL, 0}, .n_tokens = PROFILES[profile].n_tokens};
    struct pool_pick picked;
    struct error err;
    assert_int_equal(pool_pick(reader, &request, &picked, &err), ST_OK);
    return picked.ticket;
}

/* The most requests in flight at an endpoint less the fewest. */
static uint32_t spread_of(struct fixture *fixture) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        uint32_t n = endpoint_in_flight(snapshot->members[i].endpoint);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    return most - least;
}

/* ---- herding --------------------------------------------------------------------------------- */

enum { BURST = 5 * ENDPOINTS + 3 };

/* What is known of the endpoints when the burst comes. */
enum known { NO_LOADS, EQUAL_LOADS, FULL_LOADS, OLD_LOADS, N_KNOWN };

static void set_loads(struct fixture *fixture, enum known known) {
    static const uint32_t waiting[N_KNOWN] = {0, 0, 40, 3};
    if (known != NO_LOADS) {
        report_loads(fixture, waiting[known], 0.5f, 3600 * SECOND);
    }
    if (known == OLD_LOADS) {
        clock_set_fake_ns(clock_now_ns() + 7200 * SECOND);
    }
}

/* The loads are never reported again. */
static void pool_burst_spreads_at_most_one_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < N_PROFILES * N_KNOWN; i++) {
        struct pool_spec *spec = fixture_spec_of(ENDPOINTS);
        struct pool_ticket tickets[BURST];
        struct fixture fixture;
        clock_set_fake_ns(BEGIN_NS);
        set_profile(spec, i / N_KNOWN);
        fixture_open(&fixture, spec);
        set_loads(&fixture, (enum known)(i % N_KNOWN));
        for (int k = 0; k < BURST; k++) {
            tickets[k] = pick(fixture.reader, i / N_KNOWN);
            if (spread_of(&fixture) > 1) {
                fail_msg("profile %zu, loads %zu: after %d picks %u apart", i / N_KNOWN,
                         i % N_KNOWN, k + 1, spread_of(&fixture));
            }
        }
        for (int k = 0; k < BURST; k++) {
            pool_release_ticket(fixture.pool, &tickets[k]);
        }
        fixture_close(&fixture);
    }
    clock_set_fake_ns(0);
}

enum { THREADS = 4, OF_THREAD = 2000 };

struct worker {
    struct pool_reader *reader;
    size_t profile;
    struct pool_ticket tickets[OF_THREAD];
};

static void *pick_burst(void *user) {
    struct worker *worker = user;
    for (int i = 0; i < OF_THREAD; i++) {
        worker->tickets[i] = pick(worker->reader, worker->profile);
    }
    return NULL;
}

/* Between a worker's choice and its count each other worker may have chosen the same endpoint. */
static void pool_burst_of_workers_spreads_within_their_number(void **state) {
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct error err;
    (void)state;
    for (size_t k = 0; k < N_PROFILES; k++) {
        struct pool_spec *spec = fixture_spec_of(ENDPOINTS);
        struct fixture fixture;
        clock_set_fake_ns(BEGIN_NS);
        set_profile(spec, k);
        fixture_open(&fixture, spec);
        report_loads(&fixture, 0, 0.5f, 3600 * SECOND);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pool_reader_new(fixture.pool, 2, &workers[i].reader, &err), ST_OK);
            workers[i].profile = k;
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, pick_burst, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        assert_in_range(spread_of(&fixture), 0, THREADS);
        for (int i = 0; i < THREADS * OF_THREAD; i++) {
            pool_release_ticket(fixture.pool, &workers[i % THREADS].tickets[i / THREADS]);
        }
        for (int i = 0; i < THREADS; i++) {
            pool_reader_unref(workers[i].reader);
        }
        fixture_close(&fixture);
    }
    clock_set_fake_ns(0);
}

/* ---- stale loads ----------------------------------------------------------------------------- */

static void ignore_wakeup(void *user) {
    (void)user;
}

/* Saturated by loads that are reported once: a request waits while they are valid, and no
 * longer. */
static void pool_stale_loads_stop_no_request(void **state) {
    static const enum detector_kind detectors[] = {DETECTOR_NONE, DETECTOR_LOADS};
    (void)state;
    for (size_t i = 0; i < N_PROFILES * 2; i++) {
        struct pool_spec *spec = wait_fixture_spec(ENDPOINTS, 0);
        struct waiting_request request = {.waits = false};
        struct pool_ticket tickets[BURST];
        struct pool_wakeup wakeup;
        struct fixture fixture;
        clock_set_fake_ns(BEGIN_NS);
        spec->queue_depth = 5;
        spec->kv_cache = 0.8;
        spec->detector.kind = detectors[i % 2];
        set_profile(spec, i / 2);
        fixture_open(&fixture, spec);
        pool_wakeup_init(&wakeup, ignore_wakeup, NULL);
        report_loads(&fixture, 50, 1, 2 * SECOND);
        request.waiter.wakeup = &wakeup;
        request.request.waiter = &request.waiter;
        assert_int_equal(pool_pick(fixture.reader, &request.request, &request.pick, &request.err),
                         ST_OK);
        assert_null(request.pick.ticket.endpoint);
        clock_set_fake_ns(BEGIN_NS + SECOND);
        pool_tick(fixture.pool, 0);
        assert_null(pool_wakeup_pop(&wakeup));
        clock_set_fake_ns(BEGIN_NS + 3 * SECOND);
        pool_tick(fixture.pool, 0);
        assert_ptr_equal(pool_wakeup_pop(&wakeup), &request.waiter);
        assert_int_equal(pool_pick(fixture.reader, &request.request, &request.pick, &request.err),
                         ST_OK);
        assert_non_null(request.pick.ticket.endpoint);
        pool_release_ticket(fixture.pool, &request.pick.ticket);
        clock_set_fake_ns(BEGIN_NS + 24 * 3600 * SECOND);
        for (int k = 0; k < BURST; k++) {
            tickets[k] = pick(fixture.reader, i / 2);
            assert_non_null(tickets[k].endpoint);
        }
        assert_in_range(spread_of(&fixture), 0, 1);
        for (int k = 0; k < BURST; k++) {
            pool_release_ticket(fixture.pool, &tickets[k]);
        }
        pool_wakeup_fini(&wakeup);
        fixture_close(&fixture);
    }
    clock_set_fake_ns(0);
}

/* ---- counts that drift ----------------------------------------------------------------------- */

enum { MOST_STREAMS = 400, HOURS = 48 };

struct stream {
    struct pool_ticket ticket;
    uint64_t ends_ns;
};

/* Some of the endpoints; new ones where others were at the same address. */
static void flap(struct fixture *fixture, size_t profile, struct prng *prng) {
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (i == 0 || prng_below(prng, 3) > 0) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    set_profile(spec, profile);
    fixture_update(fixture->pool, spec);
}

/* The response begins, in part, and goes to another endpoint, in part. */
static void go_on(struct fixture *fixture, struct stream *stream, struct prng *prng) {
    struct endpoint_address other = fixture_numbered(prng_below(prng, ENDPOINTS + 1));
    switch (prng_below(prng, 4)) {
    case 0:
        pool_ticket_end_prompt(fixture->pool, &stream->ticket);
        break;
    case 1:
        (void)pool_ticket_move(fixture->reader, &stream->ticket, &other);
        break;
    case 2:
        pool_report_refused(fixture->pool, stream->ticket.endpoint);
        break;
    default:
        pool_ticket_response_started(fixture->pool, &stream->ticket, true);
        break;
    }
}

static void expect_nothing_in_flight(struct fixture *fixture) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    struct pool_stats stats;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        assert_int_equal(endpoint_in_flight(snapshot->members[i].endpoint), 0);
        assert_int_equal(endpoint_n_tokens(snapshot->members[i].endpoint), 0);
    }
    pool_get_stats(fixture->pool, &stats);
    assert_int_equal(stats.n_in_flight, 0);
}

/* Two days of endpoints that come and go and of streams that last up to an hour, of which the proxy
 * vanishes now and then: all of its streams end at once. */
static void pool_counts_do_not_drift_in_days_of_flapping(void **state) {
    static struct stream streams[MOST_STREAMS];
    (void)state;
    for (size_t k = 0; k < N_PROFILES; k++) {
        struct prng prng = {k + 1};
        struct fixture fixture;
        uint64_t now_ns = BEGIN_NS, ends_ns = BEGIN_NS + HOURS * 3600 * SECOND;
        uint32_t n_picked = 0;
        clock_set_fake_ns(BEGIN_NS);
        fixture_open(&fixture, fixture_spec_of(ENDPOINTS));
        while (now_ns < ends_ns) {
            struct stream *stream = &streams[prng_below(&prng, MOST_STREAMS)];
            bool vanishes = prng_below(&prng, 500) == 0;
            now_ns += prng_share(&prng, 20 * SECOND);
            clock_set_fake_ns(now_ns);
            if (prng_below(&prng, 10) == 0) {
                flap(&fixture, k, &prng);
            }
            if (!stream->ticket.endpoint) {
                stream->ticket = pick(fixture.reader, k);
                stream->ends_ns = now_ns + prng_share(&prng, 3600 * SECOND);
                n_picked++;
            } else {
                go_on(&fixture, stream, &prng);
            }
            for (int i = 0; i < MOST_STREAMS; i++) {
                if (streams[i].ticket.endpoint && (vanishes || streams[i].ends_ns <= now_ns)) {
                    pool_release_ticket(fixture.pool, &streams[i].ticket);
                }
            }
            if (vanishes) {
                expect_nothing_in_flight(&fixture);
            }
        }
        assert_true(n_picked > 5000);
        for (int i = 0; i < MOST_STREAMS; i++) {
            pool_release_ticket(fixture.pool, &streams[i].ticket);
        }
        expect_nothing_in_flight(&fixture);
        fixture_close(&fixture);
    }
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_burst_spreads_at_most_one_apart),
        cmocka_unit_test(pool_burst_of_workers_spreads_within_their_number),
        cmocka_unit_test(pool_stale_loads_stop_no_request),
        cmocka_unit_test(pool_counts_do_not_drift_in_days_of_flapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
