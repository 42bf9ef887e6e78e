/* A running request is evicted for one that waits: what the proxy gets in each state, and that what
 * the request has is free again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/session/pick_fixture.h"

#define BATCH "|x-llm-d-inference-objective=batch"
#define AT_PATH ":method=POST|:path=/v2/models/m/infer" BATCH
#define AT_BODY ":method=POST|:path=/v1/completions" BATCH

/* A request of another proxy. */
struct other {
    struct pool_wakeup wakeup;
    struct pool_waiter waiter;
    struct pool_request request;
    struct pool_pick pick;
};

static void on_notified(void *user) {
    (void)user;
}

static struct pool_spec *spec_of(void) {
    static const struct pool_objective batch = {STR("batch"), -1};
    struct pool_spec *spec = proxy_models();
    pool_spec_add_objective(spec, &batch);
    spec->max_in_flight = 1;
    spec->detector.kind = DETECTOR_REQUESTS;
    spec->flow_control.on = true;
    spec->flow_control.sheddable_waits = true;
    spec->flow_control.evicts = true;
    return spec;
}

static enum status ask(const struct fake_proxy *proxy, struct other *other) {
    struct error err;
    other->request.waiter = &other->waiter;
    other->waiter.wakeup = &other->wakeup;
    return pool_pick(proxy->pool.reader, &other->request, &other->pick, &err);
}

static void begin_waiting(const struct fake_proxy *proxy, struct other *other) {
    *other = (struct other){.request = {.model = STR("m")}};
    pool_wakeup_init(&other->wakeup, on_notified, NULL);
    assert_int_equal(ask(proxy, other), ST_OK);
    assert_null(other->pick.ticket.endpoint);
}

/* It has the place of the other request. */
static void expect_served(const struct fake_proxy *proxy, struct other *other) {
    assert_ptr_equal(pool_wakeup_pop(&other->wakeup), &other->waiter);
    assert_int_equal(ask(proxy, other), ST_OK);
    assert_non_null(other->pick.ticket.endpoint);
    pool_release_ticket(proxy->pool.pool, &other->pick.ticket);
    pool_wakeup_fini(&other->wakeup);
}

static void expect_evicted(struct fake_proxy *proxy, const char *body) {
    assert_int_equal(proxy->n_notified, 1);
    proxy_resume(proxy);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 429);
    proxy_assert_text(reply->body, body);
    proxy_assert_text(proxy_set(reply, "x-llm-d-request-dropped-reason"), "evicted");
    assert_non_null(strstr(proxy->last_outcome, "|request evicted by flow control"));
}

static void expect_lease(const struct fake_proxy *proxy, uint64_t n) {
    struct pool_eviction_stats stats;
    pool_get_eviction(proxy->pool.pool, &stats);
    assert_int_equal(stats.n_leases, n);
}

/* How far the request has come. */
enum progress { PICKED, IN_BODY, IN_RESPONSE, IN_RESPONSE_BODY };

static void evict_ends_a_request_wherever_it_is(void **state) {
    (void)state;
    for (enum progress progress = PICKED; progress <= IN_RESPONSE_BODY; progress++) {
        struct fake_proxy *proxy = proxy_open(spec_of());
        struct other other;
        proxy_request(proxy, AT_PATH, false, PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
        proxy_pick(proxy_next(proxy));
        expect_lease(proxy, 1);
        if (progress >= IN_BODY) {
            proxy_body(proxy, "{\"prompt\":", false);
            proxy_next(proxy);
        }
        if (progress >= IN_RESPONSE) {
            proxy_answer(proxy, ":status=200", false);
            proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
        }
        if (progress == IN_RESPONSE_BODY) {
            proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("data: 1\n\n"), false);
            proxy_next(proxy);
        }
        begin_waiting(proxy, &other);
        expect_evicted(proxy, "request evicted by flow control");
        expect_lease(proxy, 0);
        expect_served(proxy, &other);
        proxy_close(proxy);
    }
}

/* Picked at the headers, while the body is searched for the model. */
static void evict_ends_a_request_whose_body_is_checked(void **state) {
    struct fake_proxy *proxy = proxy_open(spec_of());
    struct other other;
    (void)state;
    proxy_request(proxy, AT_BODY, false, PROXY_CONFIG(STREAMED, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_body(proxy, "{\"prompt\":\"", false);
    proxy_next(proxy);
    begin_waiting(proxy, &other);
    expect_evicted(proxy, "request evicted by flow control");
    expect_served(proxy, &other);
    proxy_close(proxy);
}

static void evict_answers_grpc_clients_as_such(void **state) {
    struct fake_proxy *proxy = proxy_open(spec_of());
    struct other other;
    (void)state;
    proxy_request(proxy,
                  ":method=POST|:path=/v2/models/m/infer|content-type=application/grpc" BATCH,
                  false, PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    begin_waiting(proxy, &other);
    assert_int_equal(proxy->n_notified, 1);
    proxy_resume(proxy);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 429);
    assert_int_equal(reply->grpc_status, 8);
    expect_served(proxy, &other);
    proxy_close(proxy);
}

/* The response ends, or the stream, before the request was told: it is not, and gets no answer. */
static void evict_leaves_a_request_that_has_ended(void **state) {
    (void)state;
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        struct fake_proxy *proxy = proxy_open(spec_of());
        struct other other;
        struct error err;
        proxy_request(proxy, AT_PATH, true, PROXY_CONFIG(NONE, NONE));
        proxy_pick(proxy_next(proxy));
        begin_waiting(proxy, &other);
        assert_int_equal(proxy->n_notified, 1);
        if (by_stream) {
            error_set(&err, ST_CANCELLED, "cancelled");
            pick_session_cancel(proxy->session, &err);
        } else {
            proxy_answer(proxy, ":status=200", true);
            proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
        }
        assert_null(pool_wakeup_pop(&proxy->wakeup));
        proxy_expect_no_message(proxy);
        expect_lease(proxy, 0);
        expect_served(proxy, &other);
        proxy_close(proxy);
    }
}

/* A request that waits itself has no lease, nor one that was refused. */
static void evict_does_not_count_requests_that_do_not_run(void **state) {
    struct fake_proxy *proxy = proxy_open(spec_of());
    struct pool_pick busy = fixture_pick(&proxy->pool);
    (void)state;
    proxy_request(proxy, AT_PATH, true, PROXY_CONFIG(NONE, NONE));
    proxy_expect_no_message(proxy);
    expect_lease(proxy, 0);
    pool_release_ticket(proxy->pool.pool, &busy.ticket);
    proxy_resume(proxy);
    proxy_pick(proxy_next(proxy));
    expect_lease(proxy, 1);
    proxy_end(proxy);
    expect_lease(proxy, 0);
    proxy_stream(proxy, &proxy_limits);
    proxy_request(proxy, ":method=POST|:path=/v2/models/unknown/infer" BATCH, true,
                  PROXY_CONFIG(NONE, NONE));
    proxy_expect_refusal(proxy, 404);
    expect_lease(proxy, 0);
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evict_ends_a_request_wherever_it_is),
        cmocka_unit_test(evict_ends_a_request_whose_body_is_checked),
        cmocka_unit_test(evict_answers_grpc_clients_as_such),
        cmocka_unit_test(evict_leaves_a_request_that_has_ended),
        cmocka_unit_test(evict_does_not_count_requests_that_do_not_run),
    };
    return cmocka_run_group_tests_name("pick/session/evict", tests, NULL, NULL);
}
