/* Outlier detection: which outcomes eject an endpoint, for how long, and how many at most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

static const uint64_t SECOND = 1000000000;

static void open_at_100_s(struct fixture *f, struct pool_spec *spec) {
    clock_set_fake_ns(100 * SECOND);
    fixture_open(f, spec);
}

static void close_fixture(struct fixture *f) {
    fixture_close(f);
    clock_set_fake_ns(0);
}

static struct endpoint *numbered(struct fixture *f, uint32_t i) {
    return pool_reader_refresh(f->reader)->members[i].endpoint;
}

static void report(struct fixture *f, struct endpoint *endpoint, enum pool_outcome outcome, int n) {
    for (int i = 0; i < n; i++) {
        pool_report_outcome(f->pool, endpoint, outcome);
    }
}

/* A pick ends ejections whose time has passed. */
static struct endpoint *pick_once(struct fixture *f) {
    struct pool_pick pick = fixture_pick(f);
    struct endpoint *endpoint = pick.ticket.endpoint;
    pool_release_ticket(f->pool, &pick.ticket);
    return endpoint;
}

static struct pool_stats stats_of(struct fixture *f) {
    struct pool_stats stats;
    pool_get_stats(f->pool, &stats);
    return stats;
}

/* Whether the endpoint is ejected for exactly this time. */
static void expect_ejected_for(struct fixture *f, const struct endpoint *endpoint, uint64_t ns) {
    uint64_t start_ns = clock_now_ns();
    assert_true(endpoint_is_ejected(endpoint));
    clock_set_fake_ns(start_ns + ns - 1);
    for (int i = 0; i < 10; i++) {
        assert_ptr_not_equal(pick_once(f), endpoint);
    }
    clock_set_fake_ns(start_ns + ns);
    pick_once(f);
    assert_false(endpoint_is_ejected(endpoint));
}

static uint32_t endpoint_member(struct fixture *f, const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(f->reader);
    return (uint32_t)(pool_snapshot_find(snapshot, &endpoint->address) - snapshot->members);
}

static void outlier_consecutive_errors_eject(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 4);
    report(&f, bad, POOL_OUTCOME_OK, 1);
    report(&f, bad, POOL_OUTCOME_GATEWAY_FAILURE, 4);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    assert_true(endpoint_is_ejected(bad) && endpoint_is_ready(bad));
    assert_false(endpoint_is_refused(bad));
    assert_int_equal(stats_of(&f).n_ejected, 1);
    assert_int_equal(stats_of(&f).n_refused, 0);
    pool_report_refused(f.pool, bad); /* does not shorten the ejection */
    pool_report_answered(f.pool, bad);
    expect_ejected_for(&f, bad, 30 * SECOND);
    assert_int_equal(stats_of(&f).n_ejected, 0);
    close_fixture(&f);
}

/* With consecutive_5xx off, errors of the model do not count, and those of the server do. */
static void outlier_gateway_failures_are_counted_apart(void **state) {
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->outlier_detection.consecutive_5xx = 0;
    spec->outlier_detection.failure_percentage_threshold = 0;
    spec->outlier_detection.consecutive_gateway_failure = 3;
    open_at_100_s(&f, spec);
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 200);
    report(&f, bad, POOL_OUTCOME_GATEWAY_FAILURE, 2);
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    report(&f, bad, POOL_OUTCOME_GATEWAY_FAILURE, 2);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_GATEWAY_FAILURE, 1);
    assert_true(endpoint_is_ejected(bad));
    close_fixture(&f);
}

/* Each ejection in a row is longer by the base time; intervals without one make it shorter. */
static void outlier_repeated_ejections_grow(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    expect_ejected_for(&f, bad, 30 * SECOND);
    report(&f, bad, POOL_OUTCOME_5XX, 1); /* on trial: one error is enough */
    expect_ejected_for(&f, bad, 60 * SECOND);
    for (uint64_t n = 3; n <= 12; n++) {
        report(&f, bad, POOL_OUTCOME_5XX, 1);
        expect_ejected_for(&f, bad, (n < 10 ? n : 10) * 30 * SECOND); /* max_ejection_time */
    }
    report(&f, bad, POOL_OUTCOME_OK, 1); /* it is well again */
    report(&f, bad, POOL_OUTCOME_5XX, 4);
    assert_false(endpoint_is_ejected(bad));
    clock_set_fake_ns(clock_now_ns() + 110 * SECOND); /* 11 of the 12 are forgotten */
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    expect_ejected_for(&f, bad, 60 * SECOND);
    close_fixture(&f);
}

/* A worker's clock stands while it processes a message, so that an ejection may have ended, by
 * another worker's tick, after the time of the failure that is reported. */
static void outlier_failure_from_before_readmission_counts(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    expect_ejected_for(&f, bad, 30 * SECOND);
    clock_set_fake_ns(clock_now_ns() - 1);
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    expect_ejected_for(&f, bad, 60 * SECOND);
    close_fixture(&f);
}

/* The same for the interval in which errors are counted. */
static void outlier_failure_from_before_interval_counts(void **state) {
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->outlier_detection.consecutive_5xx = 0;
    spec->outlier_detection.failure_percentage_request_volume = 50;
    open_at_100_s(&f, spec);
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 49);
    clock_set_fake_ns(clock_now_ns() - 1);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    assert_true(endpoint_is_ejected(bad));
    close_fixture(&f);
}

static void outlier_failure_share_ejects(void **state) {
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->outlier_detection.failure_percentage_threshold = 60;
    open_at_100_s(&f, spec);
    struct endpoint *bad = numbered(&f, 1);
    for (int i = 0; i < 16; i++) { /* 2 of 3: 32 of 48 */
        report(&f, bad, POOL_OUTCOME_5XX, 2);
        report(&f, bad, POOL_OUTCOME_OK, 1);
    }
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    assert_false(endpoint_is_ejected(bad)); /* 49: fewer than failure_percentage_request_volume */
    clock_set_fake_ns(111 * SECOND);        /* the interval is over: all are forgotten */
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    report(&f, bad, POOL_OUTCOME_OK, 1);
    for (int i = 0; i < 15; i++) { /* 31 of 47 */
        report(&f, bad, POOL_OUTCOME_5XX, 2);
        report(&f, bad, POOL_OUTCOME_OK, 1);
    }
    report(&f, bad, POOL_OUTCOME_5XX, 2);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_5XX, 1);
    assert_true(endpoint_is_ejected(bad));
    close_fixture(&f);
}

/* Reports, in turns, failures of the first endpoints and answers of the others. */
static void fail_first(struct fixture *f, uint32_t n_endpoints, uint32_t n_failing, int n) {
    for (int i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n_endpoints; k++) {
            report(f, numbered(f, k), k < n_failing ? POOL_OUTCOME_5XX : POOL_OUTCOME_OK, 1);
        }
    }
}

/* The pool must keep endpoints. */
static void outlier_ejections_are_limited(void **state) {
    static const struct {
        uint32_t n_endpoints, n_failing, percent, n_ejected;
    } cases[] = {{1, 1, 100, 0}, {2, 1, 50, 1},   {2, 1, 100, 1}, {3, 1, 50, 1},
                 {3, 1, 10, 1},  {4, 2, 50, 2},   {4, 2, 25, 1},  {3, 1, 0, 0},
                 {3, 2, 50, 1},  {10, 5, 100, 5}, {10, 5, 30, 3}, {20, 10, 50, 10}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        struct pool_spec *spec = fixture_spec_of(cases[i].n_endpoints);
        spec->outlier_detection.max_ejection_percent = cases[i].percent;
        open_at_100_s(&f, spec);
        fail_first(&f, cases[i].n_endpoints, cases[i].n_failing, 100);
        assert_int_equal(stats_of(&f).n_ejected, cases[i].n_ejected);
        for (int k = 0; k < 10; k++) {
            assert_false(endpoint_is_ejected(pick_once(&f)));
        }
        close_fixture(&f);
    }
}

/* What most endpoints do at the same time ejects none of them: neither overload, nor a client whose
 * own requests fail everywhere. When they are well again they have their share at once. */
static void outlier_failure_of_most_ejects_none(void **state) {
    static const uint32_t failing[] = {6, 8, 10};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        uint32_t n_picks[10] = {0};
        open_at_100_s(&f, fixture_spec_of(10));
        fail_first(&f, 10, 0, 20);
        fail_first(&f, 10, failing[i], 100);
        assert_int_equal(stats_of(&f).n_ejected, 0);
        for (int k = 0; k < 40; k++) {
            fail_first(&f, 10, 0, 1);
        }
        struct pool_pick picks[100];
        for (int k = 0; k < 100; k++) {
            picks[k] = fixture_pick(&f);
            n_picks[endpoint_member(&f, picks[k].ticket.endpoint)]++;
        }
        for (int k = 0; k < 10; k++) {
            assert_int_equal(n_picks[k], 10);
        }
        for (int k = 0; k < 100; k++) {
            pool_release_ticket(f.pool, &picks[k].ticket);
        }
        close_fixture(&f);
    }
}

/* They are not ejected, and yet most requests go to those that answer: each failure in a row makes
 * a larger debt. When they are well again they have their share. */
static void outlier_failing_majority_gets_few_requests(void **state) {
    struct fixture f;
    uint32_t n_failing = 0, n_well = 0;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(10));
    fail_first(&f, 10, 0, 20);
    fail_first(&f, 10, 7, 10);
    for (int k = 0; k < 2000; k++) {
        struct pool_pick pick = fixture_pick(&f);
        struct endpoint *endpoint = pick.ticket.endpoint;
        bool fails = endpoint_member(&f, endpoint) < 7 && k < 1000;
        report(&f, endpoint, fails ? POOL_OUTCOME_5XX : POOL_OUTCOME_OK, 1);
        pool_release_ticket(f.pool, &pick.ticket);
        n_failing += fails;
        n_well += k >= 1500 && endpoint_member(&f, endpoint) < 7;
    }
    assert_int_equal(stats_of(&f).n_ejected, 0);
    assert_true(n_failing < 150); /* seven tenths would be 700 */
    assert_in_range(n_well, 300, 400);
    close_fixture(&f);
}

/* Two clients: one whose requests fail wherever they go, first at one endpoint, and a good one. The
 * first one's failures count until it has failed elsewhere, for the endpoint where it begins. */
static void outlier_failures_of_one_client_eject_none(void **state) {
    struct fixture f;
    struct pool_result bad = {.outcome = POOL_OUTCOME_5XX, .client = 7},
                       good = {.outcome = POOL_OUTCOME_OK, .client = 8};
    (void)state;
    open_at_100_s(&f, fixture_spec_of(4));
    for (uint32_t n = 0; n < 400; n++) {
        pool_report_result(f.pool, numbered(&f, n % 4), &bad);
        for (uint32_t k = 0; k < 4 && n % 5 == 0; k++) {
            pool_report_result(f.pool, numbered(&f, k), &good);
        }
    }
    assert_int_equal(stats_of(&f).n_ejected, 0);
    for (uint32_t n = 0; n < 20; n++) { /* one that fails here only is the endpoint's failure */
        struct pool_result here = {.outcome = n % 2 ? POOL_OUTCOME_5XX : POOL_OUTCOME_OK,
                                   .client = 9};
        pool_report_result(f.pool, numbered(&f, n % 2), &here);
    }
    assert_true(endpoint_is_ejected(numbered(&f, 1)));
    close_fixture(&f);
}

/* A rejection may be the client's fault: it counts where the others answer. */
static void outlier_rejections_eject_where_others_answer(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    report(&f, numbered(&f, 1), POOL_OUTCOME_REJECTED, 100);
    assert_int_equal(stats_of(&f).n_ejected, 0); /* nothing is known of the others */
    report(&f, numbered(&f, 0), POOL_OUTCOME_OK, 1);
    report(&f, numbered(&f, 1), POOL_OUTCOME_REJECTED, 4);
    assert_int_equal(stats_of(&f).n_ejected, 0);
    report(&f, numbered(&f, 1), POOL_OUTCOME_REJECTED, 1);
    assert_true(endpoint_is_ejected(numbered(&f, 1)));
    close_fixture(&f);
}

/* With a third of the other requests failing as well, five failures in a row are chance. */
static void outlier_common_failures_need_longer_rows(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(4));
    struct endpoint *bad = numbered(&f, 3);
    report(&f, numbered(&f, 0), POOL_OUTCOME_5XX, 1);
    report(&f, numbered(&f, 1), POOL_OUTCOME_OK, 1);
    report(&f, numbered(&f, 2), POOL_OUTCOME_OK, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 10);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_5XX, 1); /* a third to the 11th is less than 0.00001 */
    assert_true(endpoint_is_ejected(bad));
    close_fixture(&f);
}

/* One of a row of requests for a model. Returns: the member that it was sent to. */
static uint32_t ask_for(struct fixture *f, const char *model, uint32_t lacking) {
    struct pool_request request = {.model = str_of(model), .path_hash = 1};
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_pick(f->reader, &request, &pick, &err), ST_OK);
    uint32_t member = endpoint_member(f, pick.ticket.endpoint);
    bool fails = member == lacking && strcmp(model, "rare") == 0;
    struct pool_result result = {.outcome = fails ? POOL_OUTCOME_REJECTED : POOL_OUTCOME_OK,
                                 .kind = pick.ticket.kind};
    pool_report_result(f->pool, pick.ticket.endpoint, &result);
    pool_release_ticket(f->pool, &pick.ticket);
    return member;
}

/* A server lacks one of two models, and answers the other: no rows of failures. Requests for the
 * lacking one go to the others, but for a trial now and then; and the rest is spread as before. */
static void check_lacking_model(struct fixture *f) {
    uint32_t n_lost = 0, n_there = 0;
    for (int k = 0; k < 3000; k++) {
        clock_set_fake_ns(clock_now_ns() + SECOND / 100);
        n_lost += ask_for(f, k % 3 == 0 ? "rare" : "common", 1) == 1 && k % 3 == 0;
        n_there += k >= 1000 && k % 3 != 0 && ask_for(f, "common", 1) == 1;
    }
    assert_true(n_lost < 50); /* five, and a trial in a second; a third would be 333 */
    assert_true(n_there > 300);
    assert_int_equal(stats_of(f).n_ejected, 0);
    assert_int_equal(stats_of(f).n_avoided_kinds, 1);
    for (uint32_t k = 0, n_back = 0; k < 200 && n_back == 0; k++) { /* it has the model now */
        clock_set_fake_ns(clock_now_ns() + SECOND / 100);
        n_back = ask_for(f, "rare", UINT32_MAX) == 1;
    }
    assert_int_equal(stats_of(f).n_avoided_kinds, 0);
}

static void outlier_kind_that_fails_is_sent_elsewhere(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    check_lacking_model(&f);
    close_fixture(&f);
}

static void outlier_kind_that_fails_is_sent_elsewhere_by_profile(void **state) {
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->profile = &PROFILE_DEFAULT;
    open_at_100_s(&f, spec);
    check_lacking_model(&f);
    close_fixture(&f);
}

/* A model that no server has says nothing of any, and a pool of one endpoint has it always. */
static void outlier_kind_that_fails_everywhere_is_avoided_nowhere(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 3; n += 2) {
        struct fixture f;
        open_at_100_s(&f, fixture_spec_of(n));
        for (int k = 0; k < 600; k++) {
            struct pool_request request = {.model = k % 2 ? STR("none") : STR("common"),
                                           .path_hash = 1};
            struct pool_pick pick;
            struct error err;
            assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
            struct pool_result result = {.outcome = k % 2 ? POOL_OUTCOME_REJECTED : POOL_OUTCOME_OK,
                                         .kind = pick.ticket.kind};
            pool_report_result(f.pool, pick.ticket.endpoint, &result);
            pool_release_ticket(f.pool, &pick.ticket);
        }
        assert_int_equal(stats_of(&f).n_ejected, 0);
        assert_int_equal(stats_of(&f).n_avoided_kinds, 0);
        close_fixture(&f);
    }
}

/* Clients that ask for a new model each time displace no kind that is in use. */
static void outlier_unknown_models_displace_no_kind(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    for (int k = 0; k < 300; k++) {
        ask_for(&f, k % 2 ? "rare" : "common", 1);
    }
    assert_int_equal(stats_of(&f).n_avoided_kinds, 1);
    for (int k = 0; k < 3000; k++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m%d", k);
        struct pool_request request = {.model = str_of(name), .path_hash = 1};
        struct pool_pick pick;
        struct error err;
        clock_set_fake_ns(clock_now_ns() + SECOND / 1000);
        assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
        struct pool_result result = {.outcome = POOL_OUTCOME_REJECTED, .kind = pick.ticket.kind};
        pool_report_result(f.pool, pick.ticket.endpoint, &result);
        pool_release_ticket(f.pool, &pick.ticket);
        if (k % 100 == 0) {
            ask_for(&f, "rare", 1);
        }
    }
    assert_int_equal(stats_of(&f).n_avoided_kinds, 1);
    assert_int_equal(stats_of(&f).n_ejected, 0);
    close_fixture(&f);
}

/* Where only ejected endpoints are left in a subset, they are picked. */
static void outlier_ejected_endpoint_is_the_last_resort(void **state) {
    struct fixture f;
    struct arena *arena = arena_new(NULL, 0);
    struct subset subset;
    struct pool_pick pick;
    struct error err;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(2));
    report(&f, numbered(&f, 0), POOL_OUTCOME_5XX, 5);
    subset_init(&subset, false);
    assert_int_equal(subset_add(&subset, arena, endpoint_text(numbered(&f, 0)), &err), ST_OK);
    struct pool_request request = {.subset = &subset};
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
    assert_ptr_equal(pick.ticket.endpoint, numbered(&f, 0));
    assert_int_equal(pick.picked_by, POOL_BY_LAST_RESORT);
    pool_release_ticket(f.pool, &pick.ticket);
    close_fixture(&f);
    arena_free(arena);
}

/* An ejection does not survive the endpoint's removal, its failed health check, and the setting. */
static void outlier_ejection_ends_with_its_cause(void **state) {
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->health = (struct pool_health){.kind = POOL_HEALTH_TCP};
    open_at_100_s(&f, spec);
    struct endpoint *bad = numbered(&f, 1);
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    assert_false(endpoint_is_ejected(bad)); /* its readiness is not known yet */
    pool_set_ready(f.pool, bad, true);
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    assert_true(endpoint_is_ejected(bad));
    pool_set_ready(f.pool, bad, true); /* its health says 200 all the time */
    assert_true(endpoint_is_ejected(bad));
    pool_set_ready(f.pool, bad, false);
    assert_int_equal(stats_of(&f).n_ejected, 0);
    pool_set_ready(f.pool, bad, true);
    assert_false(endpoint_is_ejected(bad));
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    struct pool_spec *off = fixture_spec_of(3);
    off->outlier_detection.max_ejection_percent = 0;
    fixture_update(f.pool, off);
    assert_int_equal(stats_of(&f).n_ejected, 0);
    fixture_update(f.pool, fixture_spec_of(3));
    struct pool_pick pick = fixture_pick(&f);
    for (uint32_t i = 0; i < 3; i++) {
        report(&f, numbered(&f, i), POOL_OUTCOME_OK, 1);
    }
    report(&f, pick.ticket.endpoint, POOL_OUTCOME_5XX, 5);
    assert_int_equal(stats_of(&f).n_ejected, 1);
    fixture_update(f.pool, fixture_spec_of(0));
    assert_int_equal(stats_of(&f).n_ejected, 0);
    report(&f, pick.ticket.endpoint, POOL_OUTCOME_5XX, 50); /* too late to have an effect */
    assert_int_equal(stats_of(&f).n_ejected, 0);
    pool_release_ticket(f.pool, &pick.ticket);
    close_fixture(&f);
}

/* A request in flight keeps the endpoint's record. The server that has the address later starts
 * without the errors of the one before, as it would without that request. */
static void outlier_added_again_starts_without_errors(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(3));
    struct pool_pick pick = fixture_pick(&f);
    struct endpoint *bad = pick.ticket.endpoint;
    for (int on_trial = 0; on_trial < 2; on_trial++) {
        if (on_trial) {
            report(&f, bad, POOL_OUTCOME_5XX, 5);
            expect_ejected_for(&f, bad, 30 * SECOND);
        } else {
            report(&f, bad, POOL_OUTCOME_5XX, 4);
        }
        fixture_update(f.pool, fixture_spec_of(0));
        fixture_update(f.pool, fixture_spec_of(3));
        report(&f, bad, POOL_OUTCOME_5XX, 1);
        assert_false(endpoint_is_ejected(bad));
        report(&f, bad, POOL_OUTCOME_OK, 1);
    }
    report(&f, bad, POOL_OUTCOME_5XX, 5);
    expect_ejected_for(&f, bad, 30 * SECOND); /* its first ejection */
    pool_release_ticket(f.pool, &pick.ticket);
    close_fixture(&f);
}

/* Avoided endpoints are kept by the end of their time, whatever the order in which they come. */
static void outlier_shorter_avoidance_ends_first(void **state) {
    struct fixture f;
    (void)state;
    open_at_100_s(&f, fixture_spec_of(4));
    report(&f, numbered(&f, 0), POOL_OUTCOME_5XX, 5);
    pool_report_refused(f.pool, numbered(&f, 1));
    clock_set_fake_ns(102 * SECOND);
    pool_report_refused(f.pool, numbered(&f, 2));
    clock_set_fake_ns(105 * SECOND);
    pick_once(&f);
    assert_true(endpoint_is_ejected(numbered(&f, 0)) && endpoint_is_refused(numbered(&f, 2)));
    assert_false(endpoint_is_refused(numbered(&f, 1)));
    clock_set_fake_ns(107 * SECOND);
    pick_once(&f);
    assert_false(endpoint_is_refused(numbered(&f, 2)));
    clock_set_fake_ns(130 * SECOND);
    pick_once(&f);
    assert_false(endpoint_is_ejected(numbered(&f, 0)));
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outlier_consecutive_errors_eject),
        cmocka_unit_test(outlier_gateway_failures_are_counted_apart),
        cmocka_unit_test(outlier_repeated_ejections_grow),
        cmocka_unit_test(outlier_failure_from_before_readmission_counts),
        cmocka_unit_test(outlier_failure_from_before_interval_counts),
        cmocka_unit_test(outlier_failure_share_ejects),
        cmocka_unit_test(outlier_ejections_are_limited),
        cmocka_unit_test(outlier_failure_of_most_ejects_none),
        cmocka_unit_test(outlier_failing_majority_gets_few_requests),
        cmocka_unit_test(outlier_failures_of_one_client_eject_none),
        cmocka_unit_test(outlier_rejections_eject_where_others_answer),
        cmocka_unit_test(outlier_common_failures_need_longer_rows),
        cmocka_unit_test(outlier_kind_that_fails_is_sent_elsewhere),
        cmocka_unit_test(outlier_kind_that_fails_is_sent_elsewhere_by_profile),
        cmocka_unit_test(outlier_kind_that_fails_everywhere_is_avoided_nowhere),
        cmocka_unit_test(outlier_unknown_models_displace_no_kind),
        cmocka_unit_test(outlier_ejected_endpoint_is_the_last_resort),
        cmocka_unit_test(outlier_ejection_ends_with_its_cause),
        cmocka_unit_test(outlier_added_again_starts_without_errors),
        cmocka_unit_test(outlier_shorter_avoidance_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
