/* Responses in a session: what they show about the endpoint, how they are answered, and when the
 * request has ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/state.h"
#include "pick/session/pick_fixture.h"
#include "pick/session/state.h"

#define GET ":method=GET|:path=/"
#define OF_GRPC ":method=POST|:path=/p.S/Method|content-type=application/grpc"
#define OK ":status=200|content-type=application/json"

static struct pool_spec *two(void) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    fixture_add(spec, "10.0.0.2:8000");
    return spec;
}

static uint64_t n_in_flight(struct fake_proxy *proxy) {
    struct pool_stats pool_counts;
    pool_get_stats(proxy->pool.pool, &pool_counts);
    return pool_counts.n_in_flight;
}

/* A stream with a pick. Returns: the endpoint. */
static struct endpoint *begin_request(struct fake_proxy *proxy, const char *headers,
                                      const struct ext_proc_config *config) {
    char text[ENDPOINT_TEXT_BYTES];
    proxy_next_stream(proxy);
    proxy_request(proxy, headers, true, config);
    struct str picked = proxy_pick(proxy_next(proxy));
    snprintf(text, sizeof(text), "%.*s", STR_ARG(picked));
    assert_int_equal(n_in_flight(proxy), 1);
    return fixture_endpoint(&proxy->pool, text);
}

static struct endpoint *begin(struct fake_proxy *proxy, const struct ext_proc_config *config) {
    return begin_request(proxy, GET, config);
}

/* ---- end of the response --------------------------------------------------------------------- */

/* After the last message, of whatever kind, the request is not counted any more. */
static void response_end_releases_ticket(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    begin(proxy, PROXY_CONFIG(NONE, NONE));
    proxy_answer(proxy, OK, true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    assert_int_equal(n_in_flight(proxy), 0);
    begin(proxy, PROXY_CONFIG(NONE, STREAMED));
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("{}"), false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    assert_int_equal(n_in_flight(proxy), 1);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR(""), true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    assert_int_equal(n_in_flight(proxy), 0);
    begin(proxy, PROXY_CONFIG(NONE, NONE));
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_TRAILERS);
    assert_int_equal(n_in_flight(proxy), 0);
    proxy_close(proxy);
}

/* A proxy that sends nothing of the response ends the stream with the request. */
static void stream_end_releases_ticket(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    begin(proxy, PROXY_CONFIG(NONE, NONE));
    pick_session_half_close(proxy->session);
    assert_true(proxy->finished);
    assert_int_equal(proxy->why.status, ST_OK);
    assert_int_equal(n_in_flight(proxy), 0);
    begin(proxy, PROXY_CONFIG(NONE, NONE)); /* also by a reset */
    proxy_close(proxy);
}

/* The response's headers may not be sent at all: trailers or a body are first. */
static void response_without_headers_is_accepted(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    begin(proxy, PROXY_CONFIG(NONE, NONE));
    proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_TRAILERS);
    begin(proxy, PROXY_CONFIG(NONE, BUFFERED));
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("{}"), true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    assert_int_equal(n_in_flight(proxy), 0);
    proxy_close(proxy);
}

/* The request's headers may not be sent either: then nothing is picked, without an error. */
static void response_without_request_is_accepted(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_TRAILERS);
    assert_false(proxy->finished);
    proxy_close(proxy);
}

/* ---- what the response cost ------------------------------------------------------------------ */

#define CHARGED                                                                                    \
    ":method=POST|:path=/v1/completions|content-length=4000"                                       \
    "|x-gateway-inference-fairness-id=program"
enum { N_ESTIMATED = 4000 / PROMPT_BYTES_PER_TOKEN };

/* `two`, with a band of the policy program-aware-fairness; services do not fade. */
static struct pool_spec *two_with_programs(void) {
    struct pool_spec *spec = two();
    spec->flow_control.on = true;
    spec->flow_control.has_programs = true;
    return spec;
}

/* What the fairness id was charged so far. */
static double service_of(struct fake_proxy *proxy) {
    static const struct program_rules lasting = {.half_life_s = 0};
    struct pool *pool = proxy->pool.pool;
    return programs_service(&pool->flow.programs, &lasting,
                            flow_hash_id(&pool->flow, STR("program")));
}

enum charged_end {
    END_BY_HEADERS,
    END_BY_BODY,
    END_BY_TRAILERS,
    END_WITH_USAGE,
    END_NOT_SHOWN,
    END_CLIENT_LEFT,
    END_CLIENT_LEFT_WITH_USAGE,
    END_BEFORE_RESPONSE,
    END_REFUSED_MESSAGE,
    N_CHARGED_ENDS
};

/* Whether the end is seen, or the session ends without it: a request is charged once. */
static void response_is_charged_once_however_it_ends(void **state) {
    struct fake_proxy *proxy = proxy_open(two_with_programs());
    (void)state;
    for (int how = 0; how < N_CHARGED_ENDS; how++) {
        bool is_shown = how != END_BY_HEADERS && how != END_NOT_SHOWN;
        bool has_usage = how == END_WITH_USAGE || how == END_CLIENT_LEFT_WITH_USAGE;
        double before = service_of(proxy), expected = has_usage ? 10 + 2 * 5 : N_ESTIMATED;
        begin_request(proxy, CHARGED,
                      is_shown ? PROXY_CONFIG(NONE, STREAMED) : PROXY_CONFIG(NONE, NONE));
        if (how != END_BEFORE_RESPONSE) {
            proxy_answer(proxy, OK, how == END_BY_HEADERS);
        }
        if (is_shown && how != END_BEFORE_RESPONSE) {
            proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("{"), false);
        }
        if (has_usage) {
            pick_session_note_usage(
                proxy->session,
                &(struct pick_usage){.is_known = true, .n_prompt = 10, .n_output = 5});
        }
        if (how == END_BY_BODY || how == END_WITH_USAGE) {
            proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("}"), true);
        } else if (how == END_BY_TRAILERS) {
            proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
        } else if (how == END_REFUSED_MESSAGE) {
            proxy_answer(proxy, OK, false); /* the headers twice: the session ends */
            assert_true(proxy->finished);
        } else if (how != END_BY_HEADERS) {
            assert_float_equal(service_of(proxy), before, 0); /* it may go on */
        }
        pick_session_half_close(proxy->session);
        double cost = service_of(proxy) - before;
        assert_float_equal(cost, expected, 0);
    }
    proxy_close(proxy);
}

/* A destination is picked, but the request waits for another stage: no server has it. */
static void response_of_queued_request_is_not_charged(void **state) {
    struct endpoint_address addresses[] = {fixture_address("10.0.0.1:8000"),
                                           fixture_address("10.0.0.2:8000")};
    struct subset candidates[] = {{.items = &addresses[0], .n = 1, .cap = 1},
                                  {.items = &addresses[1], .n = 1, .cap = 1}};
    const struct pick_stage_plan plans[] = {
        {.candidates = &candidates[0]},
        {.header = STR("x-prefiller-host-port"), .candidates = &candidates[1]}};
    struct pool_request request = {.subset = &candidates[1]};
    (void)state;
    for (int replies = 0; replies < 2; replies++) { /* the client leaves; a reply of the proxy */
        struct pool_spec *spec = two_with_programs();
        struct pool_pick other;
        struct error err;
        spec->max_in_flight = 1;
        struct fake_proxy *proxy = proxy_open(spec);
        proxy_end(proxy);
        proxy->stages = plans;
        proxy->n_stages = 2;
        proxy_stream(proxy, &proxy_limits);
        assert_int_equal(pool_pick(proxy->pool.reader, &request, &other, &err), ST_OK);
        proxy_request(proxy, CHARGED, true, PROXY_CONFIG(NONE, NONE));
        proxy_expect_no_message(proxy);
        assert_int_equal(n_in_flight(proxy), 2);
        if (replies) {
            proxy_answer(proxy, ":status=503", true);
        }
        pick_session_half_close(proxy->session);
        assert_int_equal(n_in_flight(proxy), 1);
        assert_float_equal(service_of(proxy), 0, 0);
        pool_release_ticket(proxy->pool.pool, &other.ticket);
        proxy_close(proxy);
    }
}

/* ---- body ------------------------------------------------------------------------------------ */

static void response_duplex_body_is_echoed(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    char *body = malloc(150000);
    (void)state;
    memset(body, 'y', 150000);
    begin(proxy, PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, str_make(body, 150000), true);
    assert_int_equal(proxy->n_sent, 2 + 3);
    proxy_expect_body(proxy, EXT_PROC_RESPONSE_BODY, str_make(body, 150000), true);
    free(body);
    proxy_close(proxy);
}

/* gRPC messages are sent back; a message with its prefix, and one that is not gRPC, is a body like
 * any other. */
static void response_grpc_messages_are_echoed(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    char *body = malloc(150000);
    (void)state;
    memset(body, 'y', 150000);
    begin_request(proxy, OF_GRPC, PROXY_CONFIG(NONE, GRPC));
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, str_make(body, 150000), false);
    assert_int_equal(proxy_next(proxy)->body.len, 150000); /* one message */
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("\0\0\0\0\1y\1\0\0\0\0"), false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("\0\0\0\0\2y"), false);
    assert_int_equal(proxy_next(proxy)->body.len, 6);
    proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_TRAILERS);
    begin(proxy, PROXY_CONFIG(NONE, GRPC));
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, str_make(body, 150000), true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    proxy_close(proxy);
    free(body);
}

/* An endless stream: messages that were sent take no memory. */
static void response_endless_body_uses_bounded_memory(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    size_t bytes = 0;
    (void)state;
    begin(proxy, PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    proxy_answer(proxy, OK, false);
    proxy_flush(proxy);
    for (int i = 0; i < 3000; i++) {
        proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("data: {}\n\n"), false);
        proxy_flush(proxy);
        assert_int_equal(proxy->n_messages, 0);
        if (i == 30) {
            bytes = arena_bytes(proxy->arena);
        }
    }
    assert_int_equal(arena_bytes(proxy->arena), bytes);
    assert_int_equal(proxy->n_sent, 3002);
    proxy_close(proxy);
}

/* ---- the endpoint that served ---------------------------------------------------------------- */

static void answer_status_with(struct fake_proxy *proxy, const char *status, const char *space,
                               const char *key, const char *value, bool as_attribute) {
    struct ext_proc_header header = {STR(":status"), str_of(status)};
    struct ext_proc_entry entry = {.key = str_of(key), .text = str_of(value)};
    struct ext_proc_namespace spaces = {str_of(space), &entry, 1};
    struct ext_proc_client_request question = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                               .headers = &header,
                                               .n_headers = 1,
                                               .has_metadata = true};
    if (as_attribute) {
        question.attributes = &spaces;
        question.n_attributes = 1;
    } else {
        question.metadata = &spaces;
        question.n_metadata = 1;
    }
    proxy_send(proxy, &question);
}

static void answer_with(struct fake_proxy *proxy, const char *space, const char *key,
                        const char *value, bool as_attribute) {
    answer_status_with(proxy, "200", space, key, value, as_attribute);
}

#define SERVED PROXY_DESTINATION "-served"
#define ATTRIBUTES "envoy.filters.http.ext_proc"

static void answer_from(struct fake_proxy *proxy, const char *status, const char *served) {
    answer_status_with(proxy, status, "envoy.lb", SERVED, served, false);
}

/* The request is counted at the endpoint that it was sent to. */
static void response_served_endpoint_takes_ticket(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct endpoint *picked = begin(proxy, PROXY_CONFIG(NONE, NONE));
        const char *other =
            str_is(endpoint_text(picked), "10.0.0.1:8000") ? "10.0.0.2:8000" : "10.0.0.1:8000";
        struct endpoint *served = fixture_endpoint(&proxy->pool, other);
        answer_with(proxy, i ? ATTRIBUTES : "envoy.lb", i ? "upstream.address" : SERVED, other, i);
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
        assert_int_equal(endpoint_in_flight(picked), 0);
        assert_int_equal(endpoint_in_flight(served), 1);
    }
    struct endpoint *picked = begin(proxy, PROXY_CONFIG(NONE, NONE));
    answer_with(proxy, "envoy.lb", SERVED, "10.9.9.9:1", false); /* in none of our pools */
    assert_int_equal(endpoint_in_flight(picked), 1);
    proxy_close(proxy);
}

static void response_connection_failure_marks_endpoint_refused(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    struct endpoint *first = begin(proxy, PROXY_CONFIG(NONE, NONE));
    answer_with(proxy, ATTRIBUTES, "response.code_details",
                "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_"
                "error:_Connection_refused}",
                true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    assert_true(endpoint_is_refused(first));
    struct endpoint *second = begin(proxy, PROXY_CONFIG(NONE, NONE)); /* while there is another
                                                                         endpoint */
    assert_ptr_not_equal(second, first);
    answer_with(proxy, ATTRIBUTES, "response.code_details",
                "upstream_reset_before_response_started{connection_termination}", true);
    assert_false(endpoint_is_refused(second)); /* it had accepted the connection */
    pool_report_refused(proxy->pool.pool, second);
    struct endpoint *third = begin(proxy, PROXY_CONFIG(NONE, NONE));
    answer_with(proxy, ATTRIBUTES, "response.code_details", "via_upstream", true);
    assert_false(endpoint_is_refused(third));
    proxy_close(proxy);
}

/* A fallback endpoint served: the endpoints before it, in the order of the list, did not. */
static void response_from_fallback_marks_endpoints_before_it_refused(void **state) {
    struct pool_spec *spec = two();
    fixture_add(spec, "10.0.0.3:8000");
    spec->protocol.fallback = FALLBACK_LIST;
    spec->protocol.n_fallbacks = 2;
    struct fake_proxy *proxy = proxy_open(spec);
    (void)state;
    proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
    struct endpoint *listed[3];
    struct str list = proxy_pick(proxy_next(proxy));
    for (size_t i = 0; i < 3; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct str item = str_cut(&list, ',');
        snprintf(text, sizeof(text), "%.*s", STR_ARG(item));
        listed[i] = fixture_endpoint(&proxy->pool, text);
    }
    answer_with(proxy, "envoy.lb", SERVED, listed[1]->text, false);
    assert_true(endpoint_is_refused(listed[0]));
    assert_false(endpoint_is_refused(listed[1]));
    assert_false(endpoint_is_refused(listed[2]));
    assert_int_equal(endpoint_in_flight(listed[1]), 1);
    proxy_close(proxy);
}

/* The endpoint that served answered with an error as well: the proxy may have tried the request
 * again because of its status, so that the endpoints before it had answered. */
static void response_error_of_fallback_marks_no_endpoint(void **state) {
    struct pool_spec *spec = two();
    struct pool_stats numbers;
    spec->protocol.fallback = FALLBACK_LIST;
    spec->protocol.n_fallbacks = 1;
    struct fake_proxy *proxy = proxy_open(spec);
    (void)state;
    for (int i = 0; i < 20; i++) {
        char served[ENDPOINT_TEXT_BYTES];
        proxy_next_stream(proxy);
        proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
        struct str list = proxy_pick(proxy_next(proxy));
        str_cut(&list, ',');
        snprintf(served, sizeof(served), "%.*s", STR_ARG(list));
        answer_from(proxy, "429", served);
        pool_get_stats(proxy->pool.pool, &numbers);
        assert_int_equal(numbers.n_refused, 0);
        assert_int_equal(numbers.n_ejected, 0);
    }
    proxy_close(proxy);
}

/* The proxy chose another endpoint than one of ours: it may not have tried the first one. */
static void response_from_elsewhere_does_not_mark_endpoint_refused(void **state) {
    struct fake_proxy *proxy = proxy_open(two());
    (void)state;
    struct endpoint *picked = begin(proxy, PROXY_CONFIG(NONE, NONE));
    answer_with(proxy, "envoy.lb", SERVED,
                str_is(endpoint_text(picked), "10.0.0.1:8000") ? "10.0.0.2:8000" : "10.0.0.1:8000",
                false);
    assert_int_equal(endpoint_in_flight(picked), 0);
    assert_false(endpoint_is_refused(picked));
    proxy_close(proxy);
}

/* Without attributes the router's own header shows that an upstream responded. */
static void response_upstream_answer_clears_refused(void **state) {
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "10.0.0.1:8000");
    struct fake_proxy *proxy = proxy_open(spec);
    struct endpoint *endpoint = begin(proxy, PROXY_CONFIG(NONE, NONE));
    pool_report_refused(proxy->pool.pool, endpoint);
    proxy_answer(proxy, ":status=503", true); /* a local reply of the proxy */
    assert_true(endpoint_is_refused(endpoint));
    begin(proxy, PROXY_CONFIG(NONE, NONE));
    proxy_answer(proxy, ":status=503|x-envoy-upstream-service-time=1", true);
    assert_false(endpoint_is_refused(endpoint));
    proxy_close(proxy);
}

static void answer_headers(struct fake_proxy *proxy, const char *headers) {
    proxy_answer(proxy, headers, true);
}

static void answer_details(struct fake_proxy *proxy, const char *details) {
    answer_with(proxy, ATTRIBUTES, "response.code_details", details, true);
}

enum verdict { STAYS, EJECTED, SHEDDING };

/* The first of two endpoints answers its requests so, and the other one all of them well, unless
 * `everywhere`. Returns: what becomes of the first one, or of both. */
static enum verdict judge(void (*answer)(struct fake_proxy *proxy, const char *text),
                          const char *text, bool everywhere) {
    struct fake_proxy *proxy = proxy_open(two());
    struct pool_stats numbers;
    const struct endpoint *first = fixture_endpoint(&proxy->pool, "10.0.0.1:8000");
    for (int n = 0; n < 200; n++) {
        if (begin(proxy, PROXY_CONFIG(NONE, NONE)) == first || everywhere) {
            answer(proxy, text);
        } else {
            answer_headers(proxy, ":status=200|x-envoy-upstream-service-time=1");
        }
    }
    pool_get_stats(proxy->pool.pool, &numbers);
    proxy_close(proxy);
    return numbers.n_ejected > 0 ? EJECTED : numbers.n_shedding > 0 ? SHEDDING : STAYS;
}

/* What each response says of the endpoint, where the other one answers well. Where both answer so,
 * the requests or the whole pool is to blame, and neither is ejected. */
static void response_errors_eject_endpoint(void **state) {
    static const struct {
        const char *headers;
        enum verdict verdict;
    } cases[] = {
        {":status=500|x-envoy-upstream-service-time=1", EJECTED},
        {":status=502|x-envoy-upstream-service-time=1", EJECTED},
        {":status=503|x-envoy-upstream-service-time=1", SHEDDING},
        {":status=501|x-envoy-upstream-service-time=1", STAYS}, /* the client's error */
        {":status=429|x-envoy-upstream-service-time=1", SHEDDING},
        {":status=404|x-envoy-upstream-service-time=1", EJECTED},
        {":status=401|x-envoy-upstream-service-time=1", EJECTED},
        {":status=403|x-envoy-upstream-service-time=1", EJECTED},
        {":status=400|x-envoy-upstream-service-time=1", STAYS},
        {":status=503", STAYS}, /* a local reply of the proxy */
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=14", SHEDDING},
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=8", SHEDDING},
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=13", EJECTED},
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=5", EJECTED},
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=3", STAYS},
        {":status=200|x-envoy-upstream-service-time=1|grpc-status=12", STAYS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(judge(answer_headers, cases[i].headers, false), cases[i].verdict);
        assert_int_not_equal(judge(answer_headers, cases[i].headers, true), EJECTED);
    }
}

/* Without a response: by the proxy's details. */
static void response_resets_and_timeouts_eject_endpoint(void **state) {
    static const struct {
        const char *details;
        enum verdict verdict;
    } cases[] = {
        {"upstream_reset_before_response_started{connection_termination}", EJECTED},
        {"upstream_response_timeout", EJECTED},
        {"upstream_per_try_timeout", EJECTED},
        {"no_healthy_upstream", STAYS},
        {"direct_response", STAYS},
        {"via_upstream", STAYS}, /* with status 200 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(judge(answer_details, cases[i].details, false), cases[i].verdict);
        assert_int_not_equal(judge(answer_details, cases[i].details, true), EJECTED);
    }
}

/* ---- conformance ----------------------------------------------------------------------------- */

/* `tell` enables it, by one of its settings. */
static void assert_told(void (*tell)(struct protocol *protocol)) {
    static const struct {
        const char *key, *value, *expected;
    } cases[] = {
        {SERVED, "10.0.0.1:8000", "10.0.0.1:8000"},
        {"x", "y", "fail: missing destination endpoint served metadata"},
        {NULL, NULL, "fail: missing envoy lb metadata"},
    };
    struct pool_spec *spec = two();
    tell(&spec->protocol);
    struct fake_proxy *proxy = proxy_open(spec);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(proxy, PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
        if (cases[i].key) {
            answer_with(proxy, "envoy.lb", cases[i].key, cases[i].value, false);
        } else {
            proxy_answer(proxy, OK, false);
        }
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        proxy_assert_text(proxy_set(reply, "x-conformance-test-served-endpoint"),
                          cases[i].expected);
        assert_int_equal(proxy_n_set(reply), 1);
    }
    proxy_close(proxy);
}

static void by_conformance(struct protocol *protocol) {
    protocol->conformance = true;
}

static void by_the_verifier(struct protocol *protocol) {
    protocol->send_served_header = true;
}

static void response_conformance_header_names_served_endpoint(void **state) {
    (void)state;
    assert_told(by_conformance);
    assert_told(by_the_verifier);
}

/* ---- local replies --------------------------------------------------------------------------- */

/* While the request is held the proxy may reply itself, after a timeout for instance. */
static void response_local_reply_before_pick_ends_request(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, ":method=POST|:path=/v1/completions", false,
                  PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    proxy_body(proxy, "{\"prompt\":", false);
    proxy_answer(proxy, ":status=408", false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    assert_int_equal(proxy->n_messages, 0); /* nothing is buffered any more */
    assert_false(pick_session_is_response_pending(proxy->session));
    proxy_body(proxy, "1}", true); /* it is ignored */
    proxy_expect_no_message(proxy);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("late"), true);
    proxy_expect_chunk(proxy, EXT_PROC_RESPONSE_BODY, "late", true);
    proxy_close(proxy);
}

/* A response may start before the request has ended. */
static void response_before_request_end_is_accepted(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, ":method=POST|:path=/v2/models/m/infer", false,
                  PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    proxy_pick(proxy_next(proxy));
    proxy_answer(proxy, OK, false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_body(proxy, "{}", true);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{}", true);
    proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("{}"), true);
    proxy_expect_chunk(proxy, EXT_PROC_RESPONSE_BODY, "{}", true);
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_end_releases_ticket),
        cmocka_unit_test(stream_end_releases_ticket),
        cmocka_unit_test(response_is_charged_once_however_it_ends),
        cmocka_unit_test(response_of_queued_request_is_not_charged),
        cmocka_unit_test(response_without_headers_is_accepted),
        cmocka_unit_test(response_without_request_is_accepted),
        cmocka_unit_test(response_duplex_body_is_echoed),
        cmocka_unit_test(response_grpc_messages_are_echoed),
        cmocka_unit_test(response_endless_body_uses_bounded_memory),
        cmocka_unit_test(response_served_endpoint_takes_ticket),
        cmocka_unit_test(response_connection_failure_marks_endpoint_refused),
        cmocka_unit_test(response_from_fallback_marks_endpoints_before_it_refused),
        cmocka_unit_test(response_error_of_fallback_marks_no_endpoint),
        cmocka_unit_test(response_from_elsewhere_does_not_mark_endpoint_refused),
        cmocka_unit_test(response_upstream_answer_clears_refused),
        cmocka_unit_test(response_errors_eject_endpoint),
        cmocka_unit_test(response_resets_and_timeouts_eject_endpoint),
        cmocka_unit_test(response_conformance_header_names_served_endpoint),
        cmocka_unit_test(response_local_reply_before_pick_ends_request),
        cmocka_unit_test(response_before_request_end_is_accepted),
    };
    return cmocka_run_group_tests_name("pick/session/response", tests, NULL, NULL);
}
