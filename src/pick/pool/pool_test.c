/* A pool and its updates: endpoints are added, removed and kept, become ready and unready, refuse
 * connections and recover. With a fake clock. */
#include "pick/pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"

static void pool_empty_pool_picks_nothing(void **state) {
    (void)state;
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_new(&pool, &err), ST_OK);
    assert_int_equal(pool_generation(pool), 0);
    assert_int_equal(pool_reader_new(pool, 0, &reader, &err), ST_OK);
    struct pool_request request = {.model = STR("m")};
    assert_int_equal(pool_pick(reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_string_equal(err.text, "none of the pool's 0 endpoints is ready");
    assert_int_equal(status_http(err.status), 503);
    pool_reader_unref(reader);
    pool_free(pool);
}

static void pool_pick_takes_least_requests_in_flight(void **state) {
    (void)state;
    struct fixture f;
    struct pool_ticket tickets[9];
    fixture_open(&f, fixture_spec_of(3));
    for (int i = 0; i < 9; i++) {
        struct pool_pick pick = fixture_pick(&f);
        assert_int_equal(endpoint_in_flight(pick.ticket.endpoint), i / 3 + 1);
        assert_ptr_equal(pick.endpoints[0], pick.ticket.endpoint);
        assert_int_equal(pick.n_endpoints, 1);
        tickets[i] = pick.ticket;
    }
    struct endpoint *free_again = tickets[4].endpoint;
    pool_release_ticket(f.pool, &tickets[4]);
    assert_null(tickets[4].endpoint);
    pool_release_ticket(f.pool, &tickets[4]); /* an empty ticket: no effect */
    assert_int_equal(endpoint_in_flight(free_again), 2);
    tickets[4] = fixture_pick(&f).ticket;
    assert_ptr_equal(tickets[4].endpoint, free_again);
    for (int i = 0; i < 9; i++) {
        pool_release_ticket(f.pool, &tickets[i]);
    }
    fixture_close(&f);
}

static void pool_pick_breaks_ties_at_random(void **state) {
    (void)state;
    enum { N = 5, PICKS = 50000 };
    struct fixture f;
    fixture_open(&f, fixture_spec_of(N));
    const struct pool_snapshot *snapshot = pool_reader_refresh(f.reader);
    for (int i = 0; i < PICKS; i++) {
        struct pool_pick pick = fixture_pick(&f);
        pool_release_ticket(f.pool, &pick.ticket);
    }
    for (int i = 0; i < N; i++) {
        uint64_t n = endpoint_n_picked(snapshot->members[i].endpoint);
        assert_in_range(n, PICKS / N * 95 / 100, PICKS / N * 105 / 100);
    }
    fixture_close(&f);
}

static void pool_update_keeps_state_of_remaining_endpoint(void **state) {
    (void)state;
    struct fixture f;
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    fixture_add(spec, "[::1]:8000");
    fixture_open(&f, spec);
    struct endpoint *one = fixture_endpoint(&f, "10.0.0.1:8000");
    struct endpoint *six = fixture_endpoint(&f, "[::1]:8000");
    struct pool_pick a = fixture_pick(&f), b = fixture_pick(&f), c = fixture_pick(&f);
    uint32_t before = endpoint_in_flight(one);

    spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    fixture_add(spec, "10.0.0.2:8000");
    fixture_update(f.pool, spec);
    assert_ptr_equal(fixture_endpoint(&f, "10.0.0.1:8000"), one);
    assert_int_equal(endpoint_in_flight(one), before);
    assert_null(fixture_endpoint(&f, "[::1]:8000"));
    assert_false(endpoint_is_ready(six)); /* kept for its request, but not picked */
    assert_string_equal(six->text, "[::1]:8000");
    struct pool_pick d = fixture_pick(&f);
    assert_string_equal(d.ticket.endpoint->text, "10.0.0.2:8000");

    spec = fixture_spec(); /* added again, it is the same: its request is still in flight */
    fixture_add(spec, "[::1]:8000");
    fixture_update(f.pool, spec);
    assert_ptr_equal(fixture_endpoint(&f, "[::1]:8000"), six);
    assert_int_equal(endpoint_in_flight(six) + before, 3);
    pool_release_ticket(f.pool, &a.ticket);
    pool_release_ticket(f.pool, &b.ticket);
    pool_release_ticket(f.pool, &c.ticket);
    pool_release_ticket(f.pool, &d.ticket);
    fixture_close(&f);
}

static void pool_update_frees_old_snapshots(void **state) {
    (void)state;
    struct fixture f;
    fixture_open(&f, fixture_spec_of(3));
    int64_t arenas = metric_read(METRIC_ARENAS);
    struct pool_snapshot *held = pool_reader_refresh(f.reader);
    pool_snapshot_ref(held);
    for (uint32_t i = 0; i < 10; i++) {
        fixture_update(f.pool, fixture_spec_of(i));
        assert_int_equal(pool_reader_refresh(f.reader)->n_members, i);
        assert_int_equal(pool_generation(f.pool), i + 2);
    }
    assert_int_equal(metric_read(METRIC_ARENAS), arenas + 1); /* the one held, and the newest */
    assert_int_equal(held->n_members, 3);
    assert_string_equal(held->members[2].endpoint->text, "10.0.0.2:8000");
    pool_snapshot_unref(held);
    assert_int_equal(metric_read(METRIC_ARENAS), arenas);
    fixture_close(&f);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

/* ---- readiness ------------------------------------------------------------------------------- */

static struct pool_spec *checked_spec(uint32_t n) {
    struct pool_spec *spec = fixture_spec_of(n);
    spec->health.kind = POOL_HEALTH_TCP;
    return spec;
}

static void pool_pick_takes_only_ready_endpoints(void **state) {
    (void)state;
    struct fixture f;
    struct pool_request request = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    fixture_open(&f, checked_spec(2));
    struct endpoint *one = fixture_endpoint(&f, "10.0.0.1:8000");
    pool_set_ready(f.pool, one, false);
    pool_set_ready(f.pool, fixture_endpoint(&f, "10.0.0.0:8000"), false);
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    pool_set_ready(f.pool, one, true);
    pool_set_ready(f.pool, one, true);
    for (int i = 0; i < 20; i++) {
        pick = fixture_pick(&f);
        assert_ptr_equal(pick.ticket.endpoint, one);
        pool_release_ticket(f.pool, &pick.ticket);
    }
    fixture_update(f.pool, checked_spec(3)); /* it keeps its readiness; that of others is unknown */
    pick = fixture_pick(&f);
    assert_ptr_equal(pick.ticket.endpoint, one);
    pool_set_ready(f.pool, one, false); /* with a request in flight */
    assert_int_equal(endpoint_in_flight(one), 1);
    pool_release_ticket(f.pool, &pick.ticket);
    pool_set_ready(f.pool, fixture_endpoint(&f, "10.0.0.2:8000"), false);
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_string_equal(err.text, "none of the pool's 3 endpoints is ready");
    fixture_update(f.pool, fixture_spec_of(3)); /* health checks are switched off: all are ready */
    struct pool_stats stats;
    pool_get_stats(f.pool, &stats);
    assert_int_equal(stats.n_ready, 3);
    pool_set_ready(f.pool, one, false); /* a late check result */
    assert_true(endpoint_is_ready(one));
    fixture_close(&f);
}

/* Picks and releases. Returns: the endpoint. */
static struct endpoint *picked(struct fixture *f) {
    struct pool_pick pick = fixture_pick(f);
    struct endpoint *endpoint = pick.ticket.endpoint;
    pool_release_ticket(f->pool, &pick.ticket);
    return endpoint;
}

static void assert_numbers(struct fixture *f, uint32_t n_ready, uint32_t n_unchecked,
                           uint32_t n_refused) {
    struct pool_stats stats;
    pool_get_stats(f->pool, &stats);
    assert_int_equal(stats.n_ready, n_ready);
    assert_int_equal(stats.n_unchecked, n_unchecked);
    assert_int_equal(stats.n_refused, n_refused);
}

/* Unchecked endpoints are picked, but only where none is known to be ready. */
static void pool_unchecked_endpoint_is_the_last_resort(void **state) {
    (void)state;
    struct fixture f;
    fixture_open(&f, checked_spec(2));
    struct endpoint *one = fixture_endpoint(&f, "10.0.0.0:8000");
    struct endpoint *two = fixture_endpoint(&f, "10.0.0.1:8000");
    assert_numbers(&f, 0, 2, 0);
    assert_true(endpoint_is_unchecked(one) && endpoint_is_avoided(one));
    assert_false(endpoint_is_refused(one));
    struct pool_pick first = fixture_pick(&f), second = fixture_pick(&f);
    assert_ptr_not_equal(first.ticket.endpoint, second.ticket.endpoint);
    pool_set_ready(f.pool, one, true);
    assert_numbers(&f, 1, 1, 0);
    for (int i = 0; i < 20; i++) {
        assert_ptr_equal(picked(&f), one);
    }
    pool_set_ready(f.pool, one, false);
    assert_numbers(&f, 0, 1, 0);
    assert_ptr_equal(picked(&f), two);
    pool_report_refused(f.pool, two); /* its state is known now, for a while */
    assert_numbers(&f, 1, 0, 1);
    assert_true(endpoint_is_refused(two));
    pool_report_answered(f.pool, two);
    assert_numbers(&f, 0, 1, 0);
    pool_release_ticket(f.pool, &first.ticket);
    pool_release_ticket(f.pool, &second.ticket);
    fixture_update(f.pool, checked_spec(1)); /* it is removed, unchecked */
    assert_numbers(&f, 0, 0, 0);
    fixture_update(f.pool, checked_spec(3));
    assert_numbers(&f, 0, 2, 0);
    fixture_update(f.pool, fixture_spec_of(3)); /* health checks are switched off */
    assert_numbers(&f, 3, 0, 0);
    fixture_close(&f);
}

static void pool_refused_endpoint_is_the_last_resort(void **state) {
    (void)state;
    enum { SECOND = 1000000000 };
    struct fixture f;
    struct pool_pick picks[6];
    clock_set_fake_ns(100 * (uint64_t)SECOND);
    fixture_open(&f, fixture_spec_of(2));
    struct endpoint *one = fixture_endpoint(&f, "10.0.0.1:8000");
    struct endpoint *zero = fixture_endpoint(&f, "10.0.0.0:8000");
    pool_report_refused(f.pool, one);
    assert_true(endpoint_is_refused(one));
    for (int i = 0; i < 3; i++) {
        picks[i] = fixture_pick(&f);
        assert_ptr_equal(picks[i].ticket.endpoint, zero);
    }
    pool_report_refused(f.pool, zero); /* all have refused: one of them is picked */
    picks[3] = fixture_pick(&f);
    assert_ptr_equal(picks[3].ticket.endpoint, one);
    pool_report_answered(f.pool, zero);
    picks[4] = fixture_pick(&f);
    assert_ptr_equal(picks[4].ticket.endpoint, zero);
    clock_set_fake_ns(105 * (uint64_t)SECOND - 1);
    assert_true(endpoint_is_refused(one));
    picks[5] = fixture_pick(&f);
    assert_ptr_equal(picks[5].ticket.endpoint, zero);
    pool_release_ticket(f.pool, &picks[5].ticket);
    clock_set_fake_ns(105 * (uint64_t)SECOND); /* refused_ns is 5 s */
    picks[5] = fixture_pick(&f);
    assert_ptr_equal(picks[5].ticket.endpoint, one);
    assert_false(endpoint_is_refused(one));
    for (int i = 0; i < 6; i++) {
        pool_release_ticket(f.pool, &picks[i].ticket);
    }
    fixture_close(&f);
    clock_set_fake_ns(0);
}

static void pool_refused_endpoint_can_be_removed(void **state) {
    (void)state;
    struct fixture f;
    fixture_open(&f, fixture_spec_of(3));
    struct pool_pick pick = fixture_pick(&f);
    pool_report_refused(f.pool, pick.ticket.endpoint);
    fixture_update(f.pool, fixture_spec_of(0));
    struct pool_stats stats;
    pool_get_stats(f.pool, &stats);
    assert_int_equal(stats.n_refused, 0);
    assert_int_equal(stats.n_in_flight, 1);
    pool_report_refused(f.pool, pick.ticket.endpoint); /* too late to have an effect */
    pool_get_stats(f.pool, &stats);
    assert_int_equal(stats.n_refused, 0);
    pool_release_ticket(f.pool, &pick.ticket);
    fixture_close(&f);
}

/* Only ready endpoints can be refused: n_refused is never above n_ready. */
static void pool_endpoint_not_ready_is_not_marked_refused(void **state) {
    (void)state;
    struct fixture f;
    struct pool_spec *spec = fixture_spec_of(1);
    struct pool_stats stats;
    spec->health = (struct pool_health){.kind = POOL_HEALTH_TCP};
    fixture_open(&f, spec);
    struct endpoint *one = fixture_endpoint(&f, "10.0.0.0:8000");
    pool_report_refused(f.pool, one); /* before its first check, which may be of another port */
    pool_set_ready(f.pool, one, true);
    assert_true(endpoint_is_refused(one));
    pool_set_ready(f.pool, one, false);
    pool_report_refused(f.pool, one);
    pool_set_ready(f.pool, one, true);
    assert_false(endpoint_is_refused(one));
    pool_report_refused(f.pool, one);
    assert_true(endpoint_is_refused(one));
    pool_set_ready(f.pool, one, false);
    pool_get_stats(f.pool, &stats);
    assert_int_equal(stats.n_ready, 0);
    assert_int_equal(stats.n_refused, 0);
    pool_set_ready(f.pool, one, true); /* a check has just succeeded */
    assert_false(endpoint_is_refused(one));
    fixture_close(&f);
}

/* ---- the endpoint that served ---------------------------------------------------------------- */

static void pool_ticket_move_counts_at_serving_endpoint(void **state) {
    (void)state;
    struct fixture f;
    fixture_open(&f, fixture_spec_of(2));
    struct endpoint *ends[2] = {fixture_endpoint(&f, "10.0.0.0:8000"),
                                fixture_endpoint(&f, "10.0.0.1:8000")};
    struct pool_pick pick = fixture_pick(&f);
    struct endpoint *other = ends[pick.ticket.endpoint == ends[0]];
    struct endpoint_address stranger = fixture_address("10.0.0.9:8000");
    assert_false(pool_ticket_move(f.reader, &pick.ticket, &stranger));
    assert_false(pool_ticket_move(f.reader, &pick.ticket, &pick.ticket.endpoint->address));
    assert_true(pool_ticket_move(f.reader, &pick.ticket, &other->address));
    assert_ptr_equal(pick.ticket.endpoint, other);
    assert_int_equal(endpoint_in_flight(other), 1);
    assert_int_equal(endpoint_in_flight(ends[other == ends[0]]), 0);
    pool_release_ticket(f.pool, &pick.ticket);
    assert_false(pool_ticket_move(f.reader, &pick.ticket, &other->address));
    fixture_close(&f);
}

/* Attributes of endpoints that stay are kept where plugins still read them, in whatever order; a
 * report for other attributes is left out. */
static void pool_attributes_survive_updates(void **state) {
    static const struct attribute_key keys[] = {{STR("a"), STR("p")}, {STR("b"), STR("p")}},
                                      swapped[] = {{STR("b"), STR("p")}, {STR("c"), STR("p")}};
    struct profile one = PROFILE_DEFAULT, other = PROFILE_DEFAULT;
    struct attribute_report report = {.until_ns = 50, .known = 3, .values = {1.5, -2}};
    struct fixture fixture;
    double value;
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        one.needs.attributes[i] = keys[i];
        other.needs.attributes[i] = swapped[i];
    }
    one.needs.n_attributes = other.needs.n_attributes = 2;
    struct pool_spec *spec = fixture_spec_of(2);
    spec->profile = &one;
    fixture_open(&fixture, spec);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    assert_false(attribute_cell_get(&snapshot->attributes[2], 0, &value));
    pool_set_attributes(fixture.pool, snapshot->members[1].endpoint, swapped, 2, &report);
    assert_false(attribute_cell_get(&snapshot->attributes[2], 0, &value));
    pool_set_attributes(fixture.pool, snapshot->members[1].endpoint, keys, 2, &report);
    report = (struct attribute_report){.until_ns = 60, .known = 1, .values = {2.5, 9}};
    pool_set_attributes(fixture.pool, snapshot->members[1].endpoint, keys, 2, &report);
    assert_true(attribute_cell_get(&snapshot->attributes[2], 59, &value) && value == 2.5);
    assert_false(attribute_cell_get(&snapshot->attributes[2], 60, &value));
    assert_true(attribute_cell_get(&snapshot->attributes[3], 49, &value) && value == -2);
    assert_false(attribute_cell_get(&snapshot->attributes[0], 0, &value));

    spec = fixture_spec_of(3);
    spec->profile = &other;
    fixture_update(fixture.pool, spec);
    snapshot = pool_reader_refresh(fixture.reader);
    assert_true(attribute_cell_get(&snapshot->attributes[2], 49, &value) && value == -2);
    assert_false(attribute_cell_get(&snapshot->attributes[2], 50, &value));
    assert_false(attribute_cell_get(&snapshot->attributes[3], 0, &value));
    assert_false(attribute_cell_get(&snapshot->attributes[4], 0, &value));
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_empty_pool_picks_nothing),
        cmocka_unit_test(pool_pick_takes_least_requests_in_flight),
        cmocka_unit_test(pool_pick_breaks_ties_at_random),
        cmocka_unit_test(pool_update_keeps_state_of_remaining_endpoint),
        cmocka_unit_test(pool_update_frees_old_snapshots),
        cmocka_unit_test(pool_pick_takes_only_ready_endpoints),
        cmocka_unit_test(pool_unchecked_endpoint_is_the_last_resort),
        cmocka_unit_test(pool_refused_endpoint_is_the_last_resort),
        cmocka_unit_test(pool_refused_endpoint_can_be_removed),
        cmocka_unit_test(pool_endpoint_not_ready_is_not_marked_refused),
        cmocka_unit_test(pool_ticket_move_counts_at_serving_endpoint),
        cmocka_unit_test(pool_attributes_survive_updates),
    };
    return cmocka_run_group_tests_name("pick/pool/pool", tests, NULL, NULL);
}
