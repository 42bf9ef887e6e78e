/* Profiles in a pool: what the default does with load reports, and that picks between two reports
 * do not herd. */
#include "pick/pool/profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool.h"
#include "pick/pool/pool_fixture.h"

enum { MOST = 100 };

static const uint64_t NOW_NS = 1000, OLD_NS = 2000;

static void say(struct fixture *fixture, uint32_t i, uint32_t n_waiting, uint32_t n_running,
                float kv_cache_used) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    struct endpoint *endpoint = snapshot->members[i].endpoint;
    struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                 .until_ns = OLD_NS,
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE,
                                 .n_waiting = n_waiting,
                                 .n_running = n_running,
                                 .kv_cache_used = kv_cache_used};
    pool_set_load(fixture->pool, endpoint, &load);
}

static void open_pool(struct fixture *fixture, uint32_t n, const struct profile *profile) {
    struct pool_spec *spec = fixture_spec_of(n);
    clock_set_fake_ns(NOW_NS);
    spec->profile = profile;
    fixture_open(fixture, spec);
}

static void close_pool(struct fixture *fixture) {
    fixture_close(fixture);
    clock_set_fake_ns(0);
}

/* Picks `n_picks` and counts them by endpoint; releases all at the end. */
static void pick_many(struct fixture *fixture, uint32_t n_picks, uint32_t *n_of) {
    struct pool_ticket tickets[1000];
    assert_true(n_picks <= 1000);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    for (uint32_t i = 0; i < n_picks; i++) {
        struct pool_pick pick = fixture_pick(fixture);
        const struct pool_member *member =
            pool_snapshot_find(snapshot, &pick.endpoints[0]->address);
        n_of[member - snapshot->members]++;
        tickets[i] = pick.ticket;
    }
    for (uint32_t i = 0; i < n_picks; i++) {
        pool_release_ticket(fixture->pool, &tickets[i]);
    }
}

/* A thousand picks between two reports, of equal endpoints: within 10 % of even. */
static void profile_burst_of_picks_spreads(void **state) {
    static const uint32_t sizes[] = {2, 3, 8, 10, 50, 100};
    (void)state;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
        struct fixture fixture;
        uint32_t n = sizes[k], n_of[MOST] = {0};
        open_pool(&fixture, n, NULL);
        for (uint32_t i = 0; i < n; i++) {
            say(&fixture, i, 3, 8, 0.4f);
        }
        pick_many(&fixture, 1000, n_of);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(n_of[i] * n >= 900);
            assert_true(n_of[i] * n <= 1100);
        }
        close_pool(&fixture);
    }
}

/* The same with requests in flight before, half of which have ended since. */
static void profile_burst_spreads_over_existing_load(void **state) {
    struct fixture fixture;
    uint32_t n_of[MOST] = {0};
    struct pool_ticket before[40];
    (void)state;
    open_pool(&fixture, 10, NULL);
    for (uint32_t i = 0; i < 40; i++) {
        before[i] = fixture_pick(&fixture).ticket;
    }
    for (uint32_t i = 0; i < 10; i++) {
        say(&fixture, i, 0, 4, 0.1f);
    }
    for (uint32_t i = 0; i < 20; i++) {
        pool_release_ticket(fixture.pool, &before[i]);
    }
    pick_many(&fixture, 1000, n_of);
    for (uint32_t i = 0; i < 10; i++) {
        assert_in_range(n_of[i], 90, 110);
    }
    for (uint32_t i = 20; i < 40; i++) {
        pool_release_ticket(fixture.pool, &before[i]);
    }
    close_pool(&fixture);
}

/* Endpoint 1 is the better one, for one reason at a time. */
static void profile_default_prefers_lower_load(void **state) {
    static const struct {
        uint32_t waiting[2];
        float used[2];
    } rows[] = {{{4, 0}, {0.5f, 0.5f}}, {{0, 0}, {0.9f, 0.1f}}, {{9, 8}, {0.1f, 0.1f}}};
    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
        struct fixture fixture;
        open_pool(&fixture, 2, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            say(&fixture, i, rows[k].waiting[i], 1, rows[k].used[i]);
        }
        for (int i = 0; i < 20; i++) {
            uint32_t n_of[2] = {0};
            pick_many(&fixture, 1, n_of);
            assert_int_equal(n_of[1], 1);
        }
        close_pool(&fixture);
    }
}

/* Then our own counts decide, and an endpoint without a report is not full. */
static void profile_expired_load_is_ignored(void **state) {
    struct fixture fixture;
    uint32_t n_of[2] = {0};
    (void)state;
    open_pool(&fixture, 2, NULL);
    say(&fixture, 0, 1000, 1000, 1);
    say(&fixture, 1, 0, 0, 0);
    clock_set_fake_ns(OLD_NS);
    pick_many(&fixture, 100, n_of);
    assert_int_equal(n_of[0], 50);
    assert_int_equal(n_of[1], 50);
    close_pool(&fixture);
}

static void profile_endpoint_without_load_gets_its_share(void **state) {
    struct fixture fixture;
    uint32_t n_of[3] = {0};
    (void)state;
    open_pool(&fixture, 3, NULL);
    say(&fixture, 0, 0, 0, 0.5f);
    say(&fixture, 1, 0, 0, 0.5f);
    pick_many(&fixture, 300, n_of);
    for (uint32_t i = 0; i < 3; i++) {
        assert_in_range(n_of[i], 90, 110);
    }
    close_pool(&fixture);
}

/* ---- rules of every pick hold with a profile too --------------------------------------------- */

static const struct profile RANDOM = {.name = STR("random"),
                                      .picker = {.plugin = &plugin_random_picker}};

static void profile_pick_stays_within_subset(void **state) {
    struct fixture fixture;
    struct arena *arena = arena_new(NULL, 0);
    struct subset subset;
    struct error err;
    (void)state;
    open_pool(&fixture, 10, &RANDOM);
    subset_init(&subset, false);
    assert_int_equal(
        subset_add_list(&subset, arena, STR("10.0.0.3:8000,10.0.0.3:8000,10.0.9.9:1"), &err),
        ST_OK);
    struct pool_request request = {.subset = &subset, .n_fallbacks = 3};
    for (int i = 0; i < 20; i++) {
        struct pool_pick pick;
        assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_OK);
        assert_int_equal(pick.n_endpoints, 1);
        assert_string_equal(pick.endpoints[0]->text, "10.0.0.3:8000");
        pool_release_ticket(fixture.pool, &pick.ticket);
    }
    subset.n = 0;
    struct pool_pick pick;
    assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    arena_free(arena);
    close_pool(&fixture);
}

static void profile_refused_endpoint_is_the_last_resort(void **state) {
    struct fixture fixture;
    uint32_t n_of[3] = {0};
    (void)state;
    open_pool(&fixture, 3, &RANDOM);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    pool_report_refused(fixture.pool, snapshot->members[0].endpoint);
    pool_report_refused(fixture.pool, snapshot->members[2].endpoint);
    pick_many(&fixture, 50, n_of);
    assert_int_equal(n_of[1], 50);
    pool_report_refused(fixture.pool, snapshot->members[1].endpoint);
    pick_many(&fixture, 300, n_of);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(n_of[i] > 50);
    }
    close_pool(&fixture);
}

/* A pool is saturated when its least loaded endpoint is full, whichever the profile would pick. */
static void profile_pool_is_saturated_when_all_are_full(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = fixture_spec_of(2);
    struct pool_objective cheap = {.name = STR("cheap"), .priority = -1};
    struct pool_request request = {.objective = STR("cheap")};
    struct pool_pick pick;
    struct error err;
    struct pool_ticket tickets[4];
    (void)state;
    spec->profile = &RANDOM;
    spec->max_in_flight = 2;
    pool_spec_add_objective(spec, &cheap);
    fixture_open(&fixture, spec);
    /* Moves the random picks so that both have 2. */
    for (uint32_t i = 0; i < 4; i++) {
        struct endpoint_address wanted = fixture_numbered(i / 2);
        assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_OK);
        tickets[i] = pick.ticket;
        pool_ticket_move(fixture.reader, &tickets[i], &wanted);
    }
    assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_SATURATED);
    pool_release_ticket(fixture.pool, &tickets[3]);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_OK);
        pool_release_ticket(fixture.pool, &pick.ticket);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pool_release_ticket(fixture.pool, &tickets[i]);
    }
    fixture_close(&fixture);
}

static void take_all(const void *parameters, struct candidate_set *candidates) {
    (void)parameters;
    candidates->n = 0;
}

static void profile_filters_leaving_none_explain_the_error(void **state) {
    static const struct plugin taker = {
        .type = "none-filter", .kind = PLUGIN_FILTER, .filter = take_all};
    static const struct profile_step step = {.plugin = &taker};
    static const struct profile profile = {
        .filters = &step, .n_filters = 1, .picker = {.plugin = &plugin_random_picker}};
    struct fixture fixture;
    struct pool_request request = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    (void)state;
    open_pool(&fixture, 3, &profile);
    assert_int_equal(pool_pick(fixture.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_string_equal(err.text, "the filters of the profile removed all 3 candidate endpoints");
    close_pool(&fixture);
}

static void profile_least_requests_is_recognized(void **state) {
    const struct profile_step active = {.plugin = &plugin_active_request_scorer, .weight = 1};
    struct profile profile = {
        .scorers = &active, .n_scorers = 1, .picker = {.plugin = &plugin_max_score_picker}};
    (void)state;
    assert_true(profile_is_least_requests(&profile));
    assert_false(profile_is_least_requests(&PROFILE_DEFAULT));
    assert_false(profile_is_least_requests(&RANDOM));
    profile.picker.plugin = &plugin_power_of_two_picker;
    assert_false(profile_is_least_requests(&profile));
}

/* `member` in an explanation is an index into the snapshot that the reader holds, also when the
 * pool was updated meanwhile. */
static void profile_explanation_matches_held_snapshot(void **state) {
    struct fixture fixture;
    struct arena *arena = arena_new(NULL, 0);
    struct pool_request request = {.n_fallbacks = 0};
    struct pool_explanation explanation;
    struct error err;
    (void)state;
    open_pool(&fixture, 3, NULL);
    say(&fixture, 0, 1, 1, 0.5F);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, snapshot->members[2].endpoint->text);
    fixture_update(fixture.pool, spec);
    assert_int_equal(pool_explain(fixture.reader, &request, arena, &explanation, &err), ST_OK);
    assert_non_null(explanation.profile);
    assert_int_equal(explanation.n, 1); /* the others were removed */
    assert_int_equal(explanation.items[0].member, 2);
    pool_reader_refresh(fixture.reader);
    assert_int_equal(pool_explain(fixture.reader, &request, arena, &explanation, &err), ST_OK);
    assert_int_equal(explanation.n, 1);
    assert_int_equal(explanation.items[0].member, 0);
    arena_free(arena);
    close_pool(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_burst_of_picks_spreads),
        cmocka_unit_test(profile_burst_spreads_over_existing_load),
        cmocka_unit_test(profile_default_prefers_lower_load),
        cmocka_unit_test(profile_expired_load_is_ignored),
        cmocka_unit_test(profile_endpoint_without_load_gets_its_share),
        cmocka_unit_test(profile_pick_stays_within_subset),
        cmocka_unit_test(profile_refused_endpoint_is_the_last_resort),
        cmocka_unit_test(profile_pool_is_saturated_when_all_are_full),
        cmocka_unit_test(profile_filters_leaving_none_explain_the_error),
        cmocka_unit_test(profile_least_requests_is_recognized),
        cmocka_unit_test(profile_explanation_matches_held_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
