/* A pick of several stages: one that decodes, the destination, one that prefills until the response
 * begins, and one that encodes pictures until it ends. What the proxy is told, and that each ticket
 * is released once, however the request ends. No configuration makes several stages. The fixture's
 * `struct fake_proxy` is the proxy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/profile/profile.h"
#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions"
#define INFER ":method=POST|:path=/v2/models/old/infer"

enum { DECODE, PREFILL, ENCODE, N_STAGES };

static const char *const ENDPOINTS[N_STAGES] = {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"};
static const char *const HEADERS[N_STAGES] = {PROXY_DESTINATION, "x-prefiller-host-port",
                                              "x-encoder-hosts-ports"};

/* A pool with an endpoint for each stage, each of which has capacity for one request. */
struct staged {
    struct fake_proxy *proxy;
    struct endpoint_address addresses[N_STAGES];
    struct subset candidates[N_STAGES];
    struct pick_stage_plan plans[N_STAGES];
    struct pool_pick other; /* of another request */
};

static struct staged *begin(size_t n_stages) {
    struct staged *staged = calloc(1, sizeof(*staged));
    struct pool_spec *spec = proxy_models();
    assert_non_null(staged);
    fixture_add(spec, ENDPOINTS[PREFILL]);
    fixture_add(spec, ENDPOINTS[ENCODE]);
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    for (size_t i = 0; i < N_STAGES; i++) {
        staged->addresses[i] = fixture_address(ENDPOINTS[i]);
        staged->candidates[i] = (struct subset){.items = &staged->addresses[i], .n = 1, .cap = 1};
        staged->plans[i] = (struct pick_stage_plan){
            .header = str_of(HEADERS[i]),
            .candidates = &staged->candidates[i],
            .end = i == PREFILL ? PICK_STAGE_LASTS_TO_RESPONSE : PICK_STAGE_LASTS_FOR_RESPONSE};
    }
    staged->proxy = proxy_open(spec);
    proxy_end(staged->proxy);
    staged->proxy->stages = staged->plans;
    staged->proxy->n_stages = n_stages;
    proxy_stream(staged->proxy, &proxy_limits);
    return staged;
}

/* Occupies the endpoint of a stage with another request. */
static void occupy(struct staged *staged, size_t at) {
    struct pool_request request = {.subset = &staged->candidates[at]};
    struct error err;
    assert_int_equal(pool_pick(staged->proxy->pool.reader, &request, &staged->other, &err), ST_OK);
}

static void make_room(struct staged *staged) {
    pool_release_ticket(staged->proxy->pool.pool, &staged->other.ticket);
    proxy_resume(staged->proxy);
}

static void end(struct staged *staged) {
    struct pool_flow_stats counts;
    pool_release_ticket(staged->proxy->pool.pool, &staged->other.ticket);
    proxy_end(staged->proxy);
    pool_get_flow_stats(staged->proxy->pool.pool, NULL, 0, &counts);
    assert_int_equal(counts.n_waiting + counts.n_bytes, 0);
    assert_int_equal(metric_read(METRIC_PICK_HELD_BYTES), 0);
    fixture_close(&staged->proxy->pool);
    pool_wakeup_fini(&staged->proxy->wakeup);
    free(staged->proxy);
    free(staged);
}

/* Requests in flight at the endpoints of the stages, as digits. */
static void expect_in_flight(struct staged *staged, const char *expected) {
    char got[N_STAGES + 1] = "";
    for (size_t i = 0; i < N_STAGES; i++) {
        struct endpoint *endpoint = fixture_endpoint(&staged->proxy->pool, ENDPOINTS[i]);
        got[i] = (char)('0' + endpoint_in_flight(endpoint));
    }
    assert_string_equal(got, expected);
}

/* The next response names the endpoints of the first `n` stages. */
static const struct ext_proc_client_response *expect_pick(struct staged *staged, size_t n) {
    const struct ext_proc_client_response *reply = proxy_next(staged->proxy);
    proxy_assert_text(proxy_pick(reply), ENDPOINTS[DECODE]);
    for (size_t i = 1; i < N_STAGES; i++) {
        struct str got = proxy_set(reply, HEADERS[i]);
        if (i < n) {
            proxy_assert_text(got, ENDPOINTS[i]);
        } else {
            assert_null(got.ptr);
        }
    }
    return reply;
}

static void expect_waiting(const struct staged *staged) {
    proxy_expect_no_message(staged->proxy);
    assert_true(pick_session_deadline_ns(staged->proxy->session) > clock_now_ns());
    assert_false(pool_waited_is_empty(&staged->proxy->waited));
}

/* ---- whole requests -------------------------------------------------------------------------- */

static void stages_are_named_and_end_with_response(void **state) {
    static const char *const in_flight[N_STAGES + 1][2] = {
        {"", ""}, {"100", "100"}, {"110", "100"}, {"111", "101"}};
    (void)state;
    for (size_t n = 1; n <= N_STAGES; n++) {
        struct staged *staged = begin(n);
        proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, STREAMED));
        const struct ext_proc_client_response *reply = expect_pick(staged, n);
        proxy_assert_text(proxy_set(reply, ":path"), "/v2/models/new/infer");
        expect_in_flight(staged, in_flight[n][0]);
        proxy_answer(staged->proxy, ":status=200", false);
        proxy_expect_continue(staged->proxy, EXT_PROC_RESPONSE_HEADERS);
        expect_in_flight(staged, in_flight[n][1]);
        proxy_part(staged->proxy, EXT_PROC_RESPONSE_BODY, STR("x"), true);
        proxy_expect_continue(staged->proxy, EXT_PROC_RESPONSE_BODY);
        expect_in_flight(staged, "000");
        end(staged);
    }
}

static void stages_outcome_is_destinations(void **state) {
    struct staged *staged = begin(N_STAGES);
    (void)state;
    proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
    expect_pick(staged, N_STAGES);
    assert_string_equal(staged->proxy->last_outcome, "POST /v2/models/old/infer|old|new|");
    end(staged);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The candidates of the last stage left the pool. */
static void stages_without_endpoint_refuse_and_release_all(void **state) {
    (void)state;
    for (size_t n = 2; n <= N_STAGES; n++) {
        struct staged *staged = begin(n);
        staged->addresses[n - 1] = fixture_address("10.0.0.9:8000");
        proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
        proxy_expect_refusal(staged->proxy, 503);
        expect_in_flight(staged, "000");
        end(staged);
    }
}

/* The model is removed while the second stage waits. */
static void stages_failure_after_wait_releases_all(void **state) {
    struct staged *staged = begin(2);
    (void)state;
    occupy(staged, PREFILL);
    proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
    expect_waiting(staged);
    struct pool_spec *spec = fixture_spec();
    spec->strict_models = true;
    for (size_t i = 0; i < N_STAGES; i++) {
        fixture_add(spec, ENDPOINTS[i]);
    }
    fixture_update(staged->proxy->pool.pool, spec);
    proxy_resume(staged->proxy);
    proxy_expect_refusal(staged->proxy, 404);
    expect_in_flight(staged, "010"); /* the other request */
    end(staged);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The second of three stages has no capacity: the first keeps its ticket, and the third is picked
 * for when the second was. The response is the one that a pick of one stage has in that mode. */
static void stages_wait_in_second_continues_in_each_mode(void **state) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_NONE, EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_STREAMED};
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct ext_proc_config config = {.request_body = modes[i]};
        bool has_body = modes[i] == EXT_PROC_BODY_FULL_DUPLEX || modes[i] == EXT_PROC_BODY_BUFFERED;
        struct staged *staged = begin(N_STAGES);
        occupy(staged, PREFILL);
        proxy_request(staged->proxy, has_body ? POST : INFER, false, &config);
        if (modes[i] == EXT_PROC_BODY_BUFFERED) {
            proxy_expect_continue(staged->proxy, EXT_PROC_REQUEST_HEADERS);
        }
        if (has_body) {
            proxy_body(staged->proxy, "{\"model\":\"old\"}", true);
        }
        expect_waiting(staged);
        expect_in_flight(staged, "110"); /* the other request is at the second */
        make_room(staged);
        const struct ext_proc_client_response *reply = expect_pick(staged, N_STAGES);
        if (modes[i] == EXT_PROC_BODY_BUFFERED) {
            assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
            proxy_assert_text(reply->body, "{\"model\":\"new\"}");
        } else if (modes[i] == EXT_PROC_BODY_FULL_DUPLEX) {
            proxy_expect_body(staged->proxy, EXT_PROC_REQUEST_BODY, STR("{\"model\":\"new\"}"),
                              true);
        }
        assert_int_equal(pick_session_deadline_ns(staged->proxy->session), 0);
        expect_in_flight(staged, "111");
        end(staged);
    }
}

/* The target was chosen with the destination. The snapshot that has its name is freed while the
 * second stage waits. */
static void stages_wait_keeps_target_of_destination(void **state) {
    static const struct pool_target other = {{"other", 5}, 1};
    struct staged *staged = begin(2);
    struct pool_spec *spec = fixture_spec();
    (void)state;
    occupy(staged, PREFILL);
    proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
    expect_waiting(staged);
    for (size_t i = 0; i < N_STAGES; i++) {
        fixture_add(spec, ENDPOINTS[i]);
    }
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    proxy_add_target(spec, "old", &other);
    fixture_update(staged->proxy->pool.pool, spec);
    make_room(staged);
    const struct ext_proc_client_response *reply = expect_pick(staged, 2);
    proxy_assert_text(proxy_set(reply, ":path"), "/v2/models/new/infer");
    assert_string_equal(staged->proxy->last_outcome, "POST /v2/models/old/infer|old|new|");
    end(staged);
}

/* Each stage waits in its turn. What came meanwhile is counted in the queue in each wait, and is
 * processed after the last one. */
static void stages_wait_twice_keeps_buffered_messages(void **state) {
    struct staged *staged = begin(2);
    struct pool_flow_stats first, second;
    struct pool *pool = staged->proxy->pool.pool;
    struct pool_pick prefill;
    (void)state;
    occupy(staged, PREFILL);
    prefill = staged->other;
    occupy(staged, DECODE);
    proxy_request(staged->proxy, INFER, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(staged->proxy, "one", false);
    expect_waiting(staged);
    pool_get_flow_stats(pool, NULL, 0, &first);
    make_room(staged); /* at the first */
    expect_waiting(staged);
    expect_in_flight(staged, "110");
    pool_get_flow_stats(pool, NULL, 0, &second);
    assert_int_equal(second.n_waiting, 1);
    assert_int_equal(second.n_bytes, first.n_bytes);
    proxy_body(staged->proxy, "two", true);
    expect_waiting(staged);
    pool_release_ticket(pool, &prefill.ticket);
    proxy_resume(staged->proxy);
    expect_pick(staged, 2);
    proxy_expect_body(staged->proxy, EXT_PROC_REQUEST_BODY, STR("onetwo"), true);
    end(staged);
}

/* The client, the proxy or the time ends the request while its second stage waits. */
static void stages_end_in_second_wait_releases_first(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++) {
        struct staged *staged = begin(N_STAGES);
        struct error why;
        occupy(staged, PREFILL);
        proxy_request(staged->proxy, INFER, false, PROXY_CONFIG(NONE, NONE));
        expect_waiting(staged);
        expect_in_flight(staged, "110");
        switch (how) {
        case 0:
            pick_session_cancel(staged->proxy->session, NULL);
            break;
        case 1:
            pick_session_half_close(staged->proxy->session);
            break;
        case 2:
            pick_session_on_timeout(staged->proxy->session);
            proxy_expect_refusal(staged->proxy, 429);
            break;
        case 3: /* the proxy replied itself: that shows nothing of the first stage's endpoint */
            proxy_answer(staged->proxy, ":status=503|x-envoy-upstream-service-time=1", false);
            proxy_expect_continue(staged->proxy, EXT_PROC_RESPONSE_HEADERS);
            assert_false(
                endpoint_is_avoided(fixture_endpoint(&staged->proxy->pool, ENDPOINTS[DECODE])));
            break;
        case 4:
            error_set(&why, ST_OVERLOADED, "no memory");
            pick_session_on_message_rejected(staged->proxy->session, &why);
            proxy_expect_refusal(staged->proxy, 503);
            break;
        default: /* notified, and ended before it picks */
            pool_release_ticket(staged->proxy->pool.pool, &staged->other.ticket);
            pick_session_cancel(staged->proxy->session, NULL);
            expect_in_flight(staged, "000");
            break;
        }
        if (how < 5) {
            expect_in_flight(staged, "010");
        }
        assert_int_equal(pick_session_deadline_ns(staged->proxy->session), 0);
        make_room(staged);
        proxy_expect_no_message(staged->proxy);
        expect_in_flight(staged, "000");
        end(staged);
    }
}

/* After the pick: the stream ends without a response. */
static void stages_end_of_stream_releases_all(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct staged *staged = begin(N_STAGES);
        proxy_request(staged->proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
        expect_pick(staged, N_STAGES);
        expect_in_flight(staged, "111");
        if (how == 0) {
            pick_session_half_close(staged->proxy->session);
        } else {
            pick_session_cancel(staged->proxy->session, NULL);
        }
        expect_in_flight(staged, "000");
        end(staged);
    }
}

/* ---- prompts --------------------------------------------------------------------------------- */

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};
static const struct profile BY_PREFIX = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(16, 4, 1000)}};

enum { HALF = 4 };

/* Each stage has four candidates, and a prompt goes in both where it was sent before: each stage's
 * endpoint is known to have it. */
static void stages_prompt_is_recorded_for_each(void **state) {
    struct endpoint_address addresses[2 * HALF];
    struct subset halves[2] = {{.items = addresses, .n = HALF, .cap = HALF},
                               {.items = addresses + HALF, .n = HALF, .cap = HALF}};
    struct pick_stage_plan plans[2] = {{.candidates = &halves[0]},
                                       {.header = str_of(HEADERS[1]),
                                        .candidates = &halves[1],
                                        .end = PICK_STAGE_LASTS_TO_RESPONSE}};
    struct pool_spec *spec = fixture_spec_of(2 * HALF);
    (void)state;
    spec->profile = &BY_PREFIX;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    for (uint32_t i = 0; i < 2 * HALF; i++) {
        addresses[i] = fixture_numbered(i);
    }
    proxy->stages = plans;
    proxy->n_stages = 2;
    char before[2][64];
    for (int i = 0; i < 40; i++) {
        char body[200], now[2][64];
        proxy_next_stream(proxy);
        snprintf(body, sizeof(body), "{\"prompt\":\"%064d\"}", i / 2);
        proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
        proxy_body(proxy, body, true);
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        snprintf(now[0], sizeof(now[0]), "%.*s", STR_ARG(proxy_pick(reply)));
        snprintf(now[1], sizeof(now[1]), "%.*s", STR_ARG(proxy_set(reply, HEADERS[1])));
        if (i % 2 == 1) {
            assert_string_equal(now[0], before[0]);
            assert_string_equal(now[1], before[1]);
        }
        memcpy(before, now, sizeof(before));
        proxy_answer(proxy, ":status=200", true);
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    }
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_named_and_end_with_response),
        cmocka_unit_test(stages_outcome_is_destinations),
        cmocka_unit_test(stages_without_endpoint_refuse_and_release_all),
        cmocka_unit_test(stages_failure_after_wait_releases_all),
        cmocka_unit_test(stages_wait_in_second_continues_in_each_mode),
        cmocka_unit_test(stages_wait_keeps_target_of_destination),
        cmocka_unit_test(stages_wait_twice_keeps_buffered_messages),
        cmocka_unit_test(stages_end_in_second_wait_releases_first),
        cmocka_unit_test(stages_end_of_stream_releases_all),
        cmocka_unit_test(stages_prompt_is_recorded_for_each),
    };
    return cmocka_run_group_tests_name("pick/session/stages", tests, NULL, NULL);
}
