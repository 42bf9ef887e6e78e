/* How an endpoint that has failed comes back: trials, slow start, windows of servers that shed
 * load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/pool_fixture.h"

static const uint64_t SECOND = 1000000000;
enum { MOST_PICKS = 400 };

struct window_stage {
    struct fixture pool;
    struct pool_pick picks[MOST_PICKS]; /* in flight */
    size_t n;
};

static void stage_open(struct window_stage *stage, struct pool_spec *spec) {
    clock_set_fake_ns(100 * SECOND);
    stage->n = 0;
    fixture_open(&stage->pool, spec);
}

static void stage_close(struct window_stage *stage) {
    for (size_t i = 0; i < stage->n; i++) {
        pool_release_ticket(stage->pool.pool, &stage->picks[i].ticket);
    }
    fixture_close(&stage->pool);
    clock_set_fake_ns(0);
}

static struct endpoint *numbered(struct window_stage *stage, uint32_t i) {
    return pool_reader_refresh(stage->pool.reader)->members[i].endpoint;
}

/* Picks for `n` requests, which stay in flight. Returns: how many were sent to this endpoint. */
static uint32_t pick_more(struct window_stage *stage, const struct endpoint *endpoint, uint32_t n) {
    uint32_t n_there = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(stage->n < MOST_PICKS);
        stage->picks[stage->n] = fixture_pick(&stage->pool);
        n_there += stage->picks[stage->n++].ticket.endpoint == endpoint;
    }
    return n_there;
}

/* Picks that end at once, at other endpoints. */
static void pass_picks(struct window_stage *stage, const struct endpoint *other_than, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct pool_pick pick = fixture_pick(&stage->pool);
        assert_ptr_not_equal(pick.ticket.endpoint, other_than);
        pool_release_ticket(stage->pool.pool, &pick.ticket);
    }
}

/* The newest of its requests in flight ends so. */
static void end_one(struct window_stage *stage, struct endpoint *endpoint,
                    enum pool_outcome outcome) {
    size_t i = stage->n;
    while (stage->picks[--i].ticket.endpoint != endpoint) {
    }
    pool_report_outcome(stage->pool.pool, endpoint, outcome);
    pool_release_ticket(stage->pool.pool, &stage->picks[i].ticket);
    stage->picks[i] = stage->picks[--stage->n];
}

/* However many requests the others have, a trial is one; then each answer lets one more in. */
static void window_trial_is_one_request_then_grows(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(4));
    struct endpoint *bad = numbered(&stage, 0);
    pool_report_refused(stage.pool.pool, bad);
    assert_int_equal(pick_more(&stage, bad, 60), 0); /* 20 at each of the others */
    clock_set_fake_ns(105 * SECOND);                 /* refused_for has passed */
    assert_int_equal(pick_more(&stage, bad, 30), 1);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 30), 2);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 30), 4);
    for (int i = 0; i < 100; i++) { /* until it has as many as the others */
        end_one(&stage, bad, POOL_OUTCOME_OK);
        pick_more(&stage, bad, 1);
        if (endpoint_window_size(bad) == 0) {
            break;
        }
    }
    assert_int_equal(endpoint_window_size(bad), 0);
    assert_true(pick_more(&stage, bad, 100) > 20);
    stage_close(&stage);
}

/* A trial that fails costs one request, and the next one takes its time. */
static void window_failed_trial_waits_again(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    pick_more(&stage, NULL, 30);
    pool_report_refused(stage.pool.pool, bad);
    for (int i = 0; i < 3; i++) {
        pass_picks(&stage, bad, 70);
        clock_set_fake_ns(clock_now_ns() + SECOND - 1);
        pass_picks(&stage, bad, 10);
        clock_set_fake_ns(clock_now_ns() + 1);
        assert_int_equal(pick_more(&stage, bad, 5), 1);
        pool_report_refused(stage.pool.pool, bad);
        end_one(&stage, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    stage_close(&stage);
}

/* While others serve, a trial comes for each 64 picks; otherwise at the end of the ejection. */
static void window_trials_are_rare_where_picks_are(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(120 * SECOND);
    pass_picks(&stage, bad, 63);
    assert_true(endpoint_is_ejected(bad));
    pass_picks(&stage, bad, 1);
    clock_set_fake_ns(121 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 6), 1);
    assert_false(endpoint_is_ejected(bad));
    end_one(&stage, bad, POOL_OUTCOME_5XX); /* the trial has failed */
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(130 * SECOND); /* 30 s after the first failure: tried in any case */
    assert_int_equal(pick_more(&stage, bad, 6), 1);
    stage_close(&stage);
}

/* An answer to a request that the endpoint had got before, or as the last choice. */
static void window_answer_ends_ejection(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    assert_true(pick_more(&stage, bad, 30) == 10);
    for (int i = 0; i < 5; i++) {
        end_one(&stage, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    assert_int_equal(pick_more(&stage, bad, 10), 0);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_false(endpoint_is_ejected(bad));
    assert_true(pick_more(&stage, bad, 10) > 0);
    stage_close(&stage);
}

/* A server that sheds with seven requests there can take six; the others get the rest. */
static void window_of_shedding_server_is_its_capacity(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *full = numbered(&stage, 0);
    assert_int_equal(pick_more(&stage, full, 21), 7);
    end_one(&stage, full, POOL_OUTCOME_SHED);
    assert_int_equal(endpoint_window_size(full), 6);
    assert_int_equal(pick_more(&stage, full, 30), 0);
    assert_int_equal(endpoint_avoidance(full), ENDPOINT_NOT_AVOIDED);
    end_one(&stage, full, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, full, 10), 1);
    stage_close(&stage);
}

/* It sheds whatever it gets: it gets nothing until its trial. Retry-After makes that later. */
static void window_of_server_that_sheds_all_is_closed(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *full = numbered(&stage, 0);
    struct pool_result shed = {.outcome = POOL_OUTCOME_SHED, .retry_after_ns = 7 * SECOND};
    struct pool_stats numbers;
    pick_more(&stage, full, 3);
    pool_report_result(stage.pool.pool, full, &shed);
    assert_false(endpoint_is_shedding(full)); /* nothing is known of the others */
    pool_report_outcome(stage.pool.pool, numbered(&stage, 1), POOL_OUTCOME_OK);
    pool_report_result(stage.pool.pool, full, &shed);
    assert_true(endpoint_is_shedding(full));
    pool_get_stats(stage.pool.pool, &numbers);
    assert_int_equal(numbers.n_shedding, 1);
    assert_int_equal(numbers.n_ejected, 0);
    assert_int_equal(pick_more(&stage, full, 10), 0);
    pass_picks(&stage, full, 100);
    clock_set_fake_ns(107 * SECOND - 1); /* others are tried after a second */
    pass_picks(&stage, full, 100);
    clock_set_fake_ns(107 * SECOND);
    pick_more(&stage, full, 10);
    assert_false(endpoint_is_shedding(full));
    stage_close(&stage);
}

/* Where the proxy does not tell how requests end, their end lets the window grow. */
static void window_grows_without_results(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(2));
    struct endpoint *bad = numbered(&stage, 0);
    pool_report_refused(stage.pool.pool, bad);
    pool_report_answered(stage.pool.pool, bad); /* a health check */
    assert_int_equal(endpoint_window_size(bad), 1);
    pass_picks(&stage, NULL, 40);
    assert_int_equal(endpoint_window_size(bad), 0);
    stage_close(&stage);
}

/* A health check that began after the failures and succeeds is a proof, where picks are rare, too:
 * one request is sent there, a second after the last failure. */
static void window_health_check_ends_ejection(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(102 * SECOND);
    pool_report_healthy(stage.pool.pool, bad, 100 * SECOND - 1); /* it began before */
    assert_true(endpoint_is_ejected(bad));
    pool_report_healthy(stage.pool.pool, bad, 101 * SECOND);
    assert_false(endpoint_is_ejected(bad));
    assert_int_equal(pick_more(&stage, bad, 30), 1);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 30), 2); /* slow start */
    stage_close(&stage);
}

/* Checks of a server that fails all requests succeed: each time that costs one, twice as many are
 * needed, until the end of the ejection; an answer makes one enough again. */
static void window_health_checks_that_are_wrong_count_less(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    }
    for (uint32_t n_checks = 1; n_checks <= 8; n_checks *= 2) {
        for (uint32_t i = 0; i < n_checks; i++) {
            assert_true(endpoint_is_ejected(bad));
            assert_int_equal(pick_more(&stage, bad, 3), 0);
            clock_set_fake_ns(clock_now_ns() + SECOND);
            pool_report_healthy(stage.pool.pool, bad, clock_now_ns());
        }
        assert_false(endpoint_is_ejected(bad)); /* after 1, 3, 7 and 15 s */
        pick_more(&stage, bad, 1);
        end_one(&stage, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(130 * SECOND); /* base_ejection_time */
    assert_true(pick_more(&stage, bad, 3) > 0);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(clock_now_ns() + SECOND);
    pool_report_healthy(stage.pool.pool, bad, clock_now_ns());
    assert_false(endpoint_is_ejected(bad));
    stage_close(&stage);
}

/* Requests that hang from before the trial leave the window as it is: it grows beside them. */
static void window_grows_beside_requests_that_hang(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    assert_int_equal(pick_more(&stage, bad, 60), 20);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    assert_int_equal(pick_more(&stage, bad, 80), 0);
    clock_set_fake_ns(101 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 20), 1);
    for (uint32_t size = 1; size <= 8; size *= 2) {
        for (uint32_t i = 0; i < size; i++) {
            end_one(&stage, bad, POOL_OUTCOME_OK);
        }
        assert_int_equal(pick_more(&stage, bad, 30), 2 * size);
    }
    stage_close(&stage);
}

/* A request of before the trial that the proxy sends there during it leaves those that hang exempt
 * when it ends. */
static void window_of_trial_is_kept_by_moved_requests(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    struct pool_pick early;
    while ((early = fixture_pick(&stage.pool)).ticket.endpoint == bad) {
        stage.picks[stage.n++] = early;
    }
    pick_more(&stage, bad, 60);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    assert_int_equal(pick_more(&stage, bad, 80), 0);
    clock_set_fake_ns(101 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 20), 1);
    assert_true(pool_ticket_move(stage.pool.reader, &early.ticket, &bad->address));
    pool_release_ticket(stage.pool.pool, &early.ticket);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 30), 2);
    stage_close(&stage);
}

/* It sheds one while it comes back: its window is smaller by one, and still beside them. */
static void window_shrinks_beside_requests_that_hang(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    assert_int_equal(pick_more(&stage, bad, 60), 20);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    assert_int_equal(pick_more(&stage, bad, 80), 0);
    clock_set_fake_ns(101 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 20), 1);
    for (uint32_t i = 0; i < 3; i++) {
        end_one(&stage, bad, POOL_OUTCOME_OK);
        assert_int_equal(pick_more(&stage, bad, 30), 2);
    }
    end_one(&stage, bad, POOL_OUTCOME_SHED);
    assert_int_equal(endpoint_window_size(bad), 3);
    assert_int_equal(pick_more(&stage, bad, 30), 0);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 30), 1);
    stage_close(&stage);
}

/* Where no other endpoint is avoided, too, the next trial takes its picks. */
static void window_unanswered_trials_are_rare_where_picks_are(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 0);
    pick_more(&stage, bad, 30);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    pass_picks(&stage, bad, 64);
    clock_set_fake_ns(101 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 30), 1);
    for (uint64_t second = 102; second < 106; second++) {
        clock_set_fake_ns(second * SECOND);
        pass_picks(&stage, bad, 8);
    }
    pass_picks(&stage, bad, 64);
    clock_set_fake_ns(106 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 30), 1);
    stage_close(&stage);
}

/* A server that sheds its trial as well is tried like one that fails. */
static void window_shed_trials_are_rare_where_picks_are(void **state) {
    static struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *full = numbered(&stage, 0);
    pool_report_outcome(stage.pool.pool, numbered(&stage, 1), POOL_OUTCOME_OK);
    pick_more(&stage, full, 3);
    pool_report_outcome(stage.pool.pool, numbered(&stage, 1), POOL_OUTCOME_5XX); /* is compared */
    pool_report_outcome(stage.pool.pool, numbered(&stage, 1), POOL_OUTCOME_OK);
    end_one(&stage, full, POOL_OUTCOME_SHED);
    assert_true(endpoint_is_shedding(full));
    clock_set_fake_ns(101 * SECOND); /* the first one comes after a second */
    assert_int_equal(pick_more(&stage, full, 5), 1);
    end_one(&stage, full, POOL_OUTCOME_SHED);
    assert_true(endpoint_is_shedding(full));
    clock_set_fake_ns(103 * SECOND);
    pass_picks(&stage, full, 50);
    assert_true(endpoint_is_shedding(full));
    pass_picks(&stage, full, 14);
    clock_set_fake_ns(104 * SECOND);
    assert_int_equal(pick_more(&stage, full, 5), 1);
    end_one(&stage, full, POOL_OUTCOME_SHED);
    pass_picks(&stage, full, 5);
    clock_set_fake_ns(134 * SECOND); /* in any case */
    assert_int_equal(pick_more(&stage, full, 5), 1);
    stage_close(&stage);
}

static void set_all_ready(struct window_stage *stage) {
    for (uint32_t i = 0; i < 3; i++) {
        pool_set_ready(stage->pool.pool, numbered(stage, i), true);
    }
}

/* A trial that a failed health check ends has no consequences: neither is one failure later a
 * second ejection, nor do the checks that were wrong count. */
static void window_failed_health_check_ends_trial(void **state) {
    static struct window_stage stage;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->health.kind = POOL_HEALTH_HTTP;
    stage_open(&stage, spec);
    set_all_ready(&stage);
    struct endpoint *bad = numbered(&stage, 0);
    for (int trial = 0; trial < 4; trial++) {
        for (int i = 0; i < (trial == 0 ? 5 : 1); i++) {
            pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
        }
        while (endpoint_is_ejected(bad)) {
            clock_set_fake_ns(clock_now_ns() + SECOND);
            pool_report_healthy(stage.pool.pool, bad, clock_now_ns());
        }
    }
    pool_set_ready(stage.pool.pool, bad, false);
    pool_set_ready(stage.pool.pool, bad, true);
    pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    assert_false(endpoint_is_ejected(bad));
    for (int i = 0; i < 4; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
    }
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(clock_now_ns() + SECOND);
    pool_report_healthy(stage.pool.pool, bad, clock_now_ns());
    assert_false(endpoint_is_ejected(bad));
    stage_close(&stage);
}

static void no_notify(void *user) {
    (void)user;
}

/* Also without a queue: while the others have more in flight than usual, a trial that is due gets
 * the next request, and an endpoint in its slow start those that its window has room for. */
static void window_trial_is_preferred_to_overloading_others(void **state) {
    static struct window_stage stage;
    struct pool_spec *spec = fixture_spec_of(3);
    (void)state;
    spec->max_in_flight = 4;
    stage_open(&stage, spec);
    struct endpoint *bad = numbered(&stage, 0);
    pool_report_refused(stage.pool.pool, bad);
    assert_int_equal(pick_more(&stage, bad, 80), 0); /* the others are far beyond max_in_flight */
    clock_set_fake_ns(101 * SECOND);
    assert_int_equal(pick_more(&stage, bad, 1), 1);
    assert_int_equal(pick_more(&stage, bad, 10), 0); /* one at a time */
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_int_equal(pick_more(&stage, bad, 2), 2);
    assert_int_equal(pick_more(&stage, bad, 10), 0);
    end_one(&stage, bad, POOL_OUTCOME_5XX); /* a failure in the slow start */
    assert_int_equal(pick_more(&stage, bad, 1), 1);
    stage_close(&stage);
}

/* A request that waits is sent as a trial as soon as one is due. */
static void window_trial_is_preferred_to_waiting(void **state) {
    static struct window_stage stage;
    struct pool_spec *spec = fixture_spec_of(2);
    struct pool_wakeup wakeup;
    (void)state;
    spec->flow_control.on = true;
    spec->flow_control.max_wait_ns = 60 * SECOND;
    spec->flow_control.limits = (struct flow_limits){.max_requests = 10, .max_bytes = 1 << 20};
    spec->max_in_flight = 2;
    stage_open(&stage, spec);
    struct endpoint *bad = numbered(&stage, 0);
    pool_report_refused(stage.pool.pool, bad);
    assert_int_equal(pick_more(&stage, bad, 2), 0);
    pool_wakeup_init(&wakeup, no_notify, NULL);
    struct pool_waiter waiters[2] = {{.wakeup = &wakeup}, {.wakeup = &wakeup}};
    for (int i = 0; i < 2; i++) {
        struct pool_request request = {.waiter = &waiters[i]};
        struct pool_pick pick;
        struct error err;
        assert_int_equal(pool_pick(stage.pool.reader, &request, &pick, &err), ST_OK);
        assert_null(pick.ticket.endpoint);
    }
    clock_set_fake_ns(101 * SECOND);
    pool_tick(stage.pool.pool, 0);
    struct pool_waiter *notified = pool_wakeup_pop(&wakeup);
    assert_ptr_equal(notified, &waiters[0]);
    assert_null(pool_wakeup_pop(&wakeup)); /* one at a time */
    struct pool_request request = {.waiter = notified};
    struct error err;
    assert_int_equal(pool_pick(stage.pool.reader, &request, &stage.picks[stage.n], &err), ST_OK);
    assert_ptr_equal(stage.picks[stage.n++].ticket.endpoint, bad);
    end_one(&stage, bad, POOL_OUTCOME_OK);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &waiters[1]);
    pool_dequeue(stage.pool.pool, &waiters[1], FLOW_ABORTED);
    stage_close(&stage);
    pool_wakeup_fini(&wakeup);
}

/* bug-queue-window: a request was notified of capacity, and then the endpoint's window shrank. It
 * goes on waiting, and the endpoint is offered again as soon as its window has room. */
static void window_that_shrinks_does_not_stall_the_queue(void **state) {
    static struct window_stage stage;
    struct pool_spec *spec = fixture_spec_of(2);
    struct pool_wakeup wakeup;
    struct pool_pick pick;
    struct error err;
    (void)state;
    spec->flow_control.on = true;
    spec->flow_control.max_wait_ns = 60 * SECOND;
    spec->flow_control.limits = (struct flow_limits){.max_requests = 10, .max_bytes = 1 << 20};
    spec->max_in_flight = 4;
    stage_open(&stage, spec);
    struct endpoint *shedding = numbered(&stage, 0);
    assert_int_equal(pick_more(&stage, shedding, 8), 4);
    pool_wakeup_init(&wakeup, no_notify, NULL);
    struct pool_waiter waiter = {.wakeup = &wakeup};
    struct pool_request request = {.waiter = &waiter};
    assert_int_equal(pool_pick(stage.pool.reader, &request, &pick, &err), ST_OK);
    assert_null(pick.ticket.endpoint);
    end_one(&stage, shedding, POOL_OUTCOME_OK);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &waiter);
    end_one(&stage, shedding, POOL_OUTCOME_SHED); /* before the request picks */
    assert_int_equal(endpoint_window_size(shedding), 2);
    assert_int_equal(pool_pick(stage.pool.reader, &request, &pick, &err), ST_OK);
    assert_null(pick.ticket.endpoint);
    assert_null(pool_wakeup_pop(&wakeup));
    end_one(&stage, shedding, POOL_OUTCOME_OK);
    assert_ptr_equal(pool_wakeup_pop(&wakeup), &waiter);
    assert_int_equal(pool_pick(stage.pool.reader, &request, &stage.picks[stage.n], &err), ST_OK);
    assert_ptr_equal(stage.picks[stage.n++].ticket.endpoint, shedding);
    stage_close(&stage);
    pool_wakeup_fini(&wakeup);
}

/* bug-queue-debt: an endpoint that failed counts as loaded, and not as full: while others are full,
 * requests do not wait for them beside it, also when the limit changes. */
static void window_debt_is_no_lack_of_capacity(void **state) {
    static struct window_stage stage;
    struct pool_wakeup wakeup;
    (void)state;
    pool_wakeup_init(&wakeup, no_notify, NULL);
    for (uint64_t most = 2; most <= 3; most++) {
        struct pool_spec *spec = fixture_spec_of(2);
        spec->flow_control.on = true;
        spec->flow_control.max_wait_ns = 60 * SECOND;
        spec->flow_control.limits = (struct flow_limits){.max_requests = 10, .max_bytes = 1 << 20};
        spec->outlier_detection.max_ejection_percent = 0;
        spec->max_in_flight = 2;
        stage_open(&stage, spec);
        struct endpoint *bad = numbered(&stage, 0);
        for (int i = 0; i < 6; i++) {
            pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_5XX);
        }
        assert_true(endpoint_debt(bad) > 10);
        if (most > 2) {
            spec = fixture_spec_of(2);
            spec->flow_control.on = true;
            spec->flow_control.limits =
                (struct flow_limits){.max_requests = 10, .max_bytes = 1 << 20};
            spec->max_in_flight = most;
            fixture_update(stage.pool.pool, spec);
        }
        uint32_t n = (uint32_t)most, n_bad = pick_more(&stage, bad, n);
        assert_true(n_bad < n); /* the other one is preferred */
        assert_int_equal(n_bad + pick_more(&stage, bad, n), n);
        struct pool_waiter waiter = {.wakeup = &wakeup};
        struct pool_request request = {.waiter = &waiter};
        struct pool_pick pick;
        struct error err;
        assert_int_equal(pool_pick(stage.pool.reader, &request, &pick, &err), ST_OK);
        assert_null(pick.ticket.endpoint); /* both are full */
        pool_dequeue(stage.pool.pool, &waiter, FLOW_ABORTED);
        stage_close(&stage);
    }
    pool_wakeup_fini(&wakeup);
}

/* An endpoint hung. The trial that it got before it was well again has no answer for a long time:
 * after a second another request is sent there, and its answer is enough. */
static void window_trial_without_answer_is_followed_by_another(void **state) {
    struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 1);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    assert_true(endpoint_is_ejected(bad));
    pass_picks(&stage, bad, 64);
    for (int trial = 0; trial < 3; trial++) {
        clock_set_fake_ns(clock_now_ns() + SECOND);
        assert_int_equal(pick_more(&stage, bad, 8), 1); /* one at a time */
        clock_set_fake_ns(clock_now_ns() + SECOND - 1);
        pass_picks(&stage, bad, 64); /* too early for another one */
        clock_set_fake_ns(clock_now_ns() + 1 - SECOND);
    }
    /* The first one fails: the next trial is due as before, a second after the last one began. */
    pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    assert_true(endpoint_is_ejected(bad));
    clock_set_fake_ns(clock_now_ns() + SECOND);
    assert_int_equal(pick_more(&stage, bad, 8), 1);
    pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_OK);
    assert_int_equal(endpoint_avoidance(bad), ENDPOINT_NOT_AVOIDED);
    assert_int_equal(endpoint_window_size(bad), 2);
    stage_close(&stage);
}

/* An endpoint hung and is well again. Requests that it got before its trial fail only now: that is
 * no failure of the trial, nor of later requests. */
static void window_older_failures_do_not_end_a_trial(void **state) {
    struct window_stage stage;
    (void)state;
    stage_open(&stage, fixture_spec_of(3));
    struct endpoint *bad = numbered(&stage, 1);
    struct pool_result late = {.outcome = POOL_OUTCOME_GATEWAY_FAILURE};
    while (pick_more(&stage, bad, 1) == 0) {
    }
    late.number = stage.picks[stage.n - 1].ticket.number;
    assert_int_equal(late.number, stage.n);
    for (int i = 0; i < 5; i++) {
        pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_GATEWAY_FAILURE);
    }
    assert_true(endpoint_is_ejected(bad));
    pass_picks(&stage, bad, 64);
    clock_set_fake_ns(clock_now_ns() + SECOND);
    while (pick_more(&stage, bad, 1) == 0) {
    }
    struct pool_result of_trial = {.outcome = POOL_OUTCOME_GATEWAY_FAILURE,
                                   .number = stage.picks[stage.n - 1].ticket.number};
    pool_report_result(stage.pool.pool, bad, &late);
    assert_int_equal(endpoint_avoidance(bad), ENDPOINT_NOT_AVOIDED);
    assert_int_equal(endpoint_window_size(bad), 1);
    pool_report_outcome(stage.pool.pool, bad, POOL_OUTCOME_OK);
    pool_report_result(stage.pool.pool, bad, &late);
    assert_int_equal(endpoint_debt(bad), 0);
    assert_int_equal(endpoint_window_size(bad), 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(endpoint_avoidance(bad), ENDPOINT_NOT_AVOIDED);
        pool_report_result(stage.pool.pool, bad, &of_trial);
    }
    assert_true(endpoint_is_ejected(bad));
    stage_close(&stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_trial_is_one_request_then_grows),
        cmocka_unit_test(window_failed_trial_waits_again),
        cmocka_unit_test(window_trials_are_rare_where_picks_are),
        cmocka_unit_test(window_answer_ends_ejection),
        cmocka_unit_test(window_grows_beside_requests_that_hang),
        cmocka_unit_test(window_of_trial_is_kept_by_moved_requests),
        cmocka_unit_test(window_shrinks_beside_requests_that_hang),
        cmocka_unit_test(window_unanswered_trials_are_rare_where_picks_are),
        cmocka_unit_test(window_shed_trials_are_rare_where_picks_are),
        cmocka_unit_test(window_failed_health_check_ends_trial),
        cmocka_unit_test(window_of_shedding_server_is_its_capacity),
        cmocka_unit_test(window_of_server_that_sheds_all_is_closed),
        cmocka_unit_test(window_grows_without_results),
        cmocka_unit_test(window_health_check_ends_ejection),
        cmocka_unit_test(window_health_checks_that_are_wrong_count_less),
        cmocka_unit_test(window_trial_is_preferred_to_overloading_others),
        cmocka_unit_test(window_trial_is_preferred_to_waiting),
        cmocka_unit_test(window_that_shrinks_does_not_stall_the_queue),
        cmocka_unit_test(window_debt_is_no_lack_of_capacity),
        cmocka_unit_test(window_trial_without_answer_is_followed_by_another),
        cmocka_unit_test(window_older_failures_do_not_end_a_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
