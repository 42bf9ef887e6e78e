/* Sessions at the headers: the pick and its response. Bodies are in body_test.c and duplex_test.c,
 * responses in response_test.c. */
#include "pick/session/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/profile/profile.h"
#include "pick/session/pick_fixture.h"

#define GET ":method=GET|:path=/v1/models|:scheme=http|accept=*/*"
#define POST ":method=POST|:path=/v1/completions|content-type=application/json|content-length=42"
#define INFER ":method=POST|:path=/v2/models/digits/infer|content-type=application/json"

static struct pool_spec *one(void) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    return spec;
}

/* ---- picks ----------------------------------------------------------------------------------- */

static void session_get_is_picked_at_headers(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_request(proxy, GET, true, PROXY_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_int_equal(proxy_n_set(reply), 1); /* nothing else of the request is changed */
    assert_false(reply->has_mode_override);
    proxy_expect_no_message(proxy);
    assert_false(proxy->finished);
    proxy_close(proxy);
}

/* protocol_config is present and empty: no body is expected. */
static void session_headers_only_config_is_picked_at_headers(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
    proxy_assert_text(proxy_pick(proxy_next(proxy)), "10.0.0.1:8000");
    proxy_expect_no_message(proxy);
    assert_false(pick_session_is_response_pending(proxy->session));
    proxy_close(proxy);
}

static void session_ipv6_endpoint_has_brackets(void **state) {
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "[::1]:8000");
    struct fake_proxy *proxy = proxy_open(spec);
    proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
    proxy_assert_text(proxy_pick(proxy_next(proxy)), "[::1]:8000");
    proxy_close(proxy);
}

/* Only raw_value is set, and a client's own header is replaced, not appended to. */
static void session_client_destination_header_is_replaced(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_request(proxy, GET "|" PROXY_DESTINATION "=10.6.6.6:1", true, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000"); /* once: proxy_set asserts it */
    assert_int_equal(proxy_n_set(reply), 1);
    proxy_close(proxy);
}

/* The next best of the same candidates, each once; none where there is no other. */
static void session_fallback_endpoints_are_sent(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        for (int way = FALLBACK_NONE; way <= FALLBACK_LIST; way++) {
            struct pool_spec *spec = fixture_spec_of(n);
            spec->protocol.fallback = (enum protocol_fallback)way;
            spec->protocol.n_fallbacks = way == FALLBACK_LIST ? 2 : 1;
            struct fake_proxy *proxy = proxy_open(spec);
            proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
            const struct ext_proc_client_response *reply = proxy_next(proxy);
            struct str rest = proxy_pick(reply), first = str_cut(&rest, ',');
            struct ext_proc_value key = ext_proc_client_response_metadata_find(
                reply, STR("envoy.lb"), STR(PROXY_DESTINATION "-fallback"));
            assert_int_equal(key.kind,
                             way == FALLBACK_KEY && n > 1 ? EXT_PROC_STRING : EXT_PROC_ABSENT);
            assert_false(key.kind == EXT_PROC_STRING && str_eq(key.text, first));
            for (uint32_t i = 1; i < n && way == FALLBACK_LIST; i++) {
                assert_false(str_eq(str_cut(&rest, ','), first));
            }
            assert_null(rest.ptr);
            proxy_close(proxy);
        }
    }
}

static void reload(struct fake_proxy *proxy) {
    fixture_update(proxy->pool.pool, one());
}

/* The configuration is replaced, on discovery's thread, between the choice and the answer: texts of
 * the one that was chosen by are still used. */
static void session_reload_during_pick_keeps_target(void **state) {
    struct pool_spec *spec = one();
    struct pool_target target = {pool_spec_dup_text(spec, STR("a-new-name")), 1};
    (void)state;
    proxy_add_target(spec, "digits", &target);
    struct fake_proxy *proxy = proxy_open(spec);
    proxy_end(proxy);
    proxy->on_stage = reload;
    proxy_stream(proxy, &proxy_limits);
    proxy_request(proxy, INFER, true, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    proxy_assert_text(proxy_set(reply, ":path"), "/v2/models/a-new-name/infer");
    proxy_close(proxy);
}

/* The picker of a profile names as many as its parameter says, whatever the protocol's setting. */
static void session_picker_names_several_endpoints(void **state) {
    (void)state;
    for (uint32_t most = 0; most <= PICKER_MAX_ENDPOINTS; most++) {
        struct picker_parameters parameters = {most};
        struct profile profile = {.name = STR("default")};
        profile.picker =
            (struct profile_step){.plugin = &plugin_random_picker, .parameters = &parameters};
        struct pool_spec *spec = fixture_spec_of(4);
        spec->profile = &profile;
        struct fake_proxy *proxy = proxy_open(spec);
        proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
        struct str rest = proxy_pick(proxy_next(proxy));
        uint32_t n = 0;
        for (; rest.ptr; n++) {
            struct str name = str_cut(&rest, ',');
            assert_true(name.len > 0);
            assert_null(memmem(rest.ptr ? rest.ptr : "", rest.len, name.ptr, name.len));
        }
        assert_int_equal(n, most == 0 ? 1 : most < 4 ? most : 4);
        proxy_close(proxy);
    }
}

/* Header names are settings. */
static void session_configured_names_are_used(void **state) {
    struct pool_spec *spec = one();
    (void)state;
    spec->protocol.destination_header = STR("x-to");
    spec->protocol.destination_namespace = STR("our.lb");
    spec->protocol.destination_key = STR("to");
    struct fake_proxy *proxy = proxy_open(spec);
    proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_assert_text(proxy_set(reply, "x-to"), "10.0.0.1:8000");
    proxy_assert_text(ext_proc_client_response_metadata_find(reply, STR("our.lb"), STR("to")).text,
                      "10.0.0.1:8000");
    proxy_close(proxy);
}

/* ---- subsets --------------------------------------------------------------------------------- */

#define HINT "x-gateway-destination-endpoint-subset"

static void ask_with_hint(struct fake_proxy *proxy, enum ext_proc_kind kind, const char *headers,
                          struct str body, const struct ext_proc_entry *hint) {
    struct ext_proc_header list[32];
    struct ext_proc_namespace space = {STR("envoy.lb.subset_hint"), hint, 1};
    struct ext_proc_client_request question = {.kind = kind,
                                               .headers = list,
                                               .n_headers = proxy_headers(headers, list, 32),
                                               .body = body,
                                               .end_of_stream = true,
                                               .config = PROXY_CONFIG(FULL_DUPLEX, NONE),
                                               .has_metadata = true,
                                               .metadata = &space,
                                               .n_metadata = 1};
    question.end_of_stream = kind == EXT_PROC_REQUEST_BODY || str_is(str_of(headers), GET);
    proxy_send(proxy, &question);
}

static void session_pick_stays_within_subset(void **state) {
    static const struct str list[] = {{"10.0.0.1:8000", 13}, {"10.9.9.9:8000", 13}};
    static const struct str strangers[] = {{"10.9.9.9:8000", 13}, {"10.0.0.1:9", 10}};
    const struct {
        struct ext_proc_entry hint;
        const char *expected; /* NULL: 503 */
    } cases[] = {
        {{STR(HINT), {NULL, 0}, list, 2, NULL}, "10.0.0.1:8000"},
        {{STR(HINT), STR("10.9.9.9:8000, 10.0.0.2:8000"), NULL, 0, NULL}, "10.0.0.2:8000"},
        {{STR(HINT), {NULL, 0}, strangers, 2, NULL}, NULL}, /* the port counts */
        {{STR(HINT), {NULL, 0}, list, 0, NULL}, NULL},      /* set, and empty */
        {{STR(HINT), STR(""), NULL, 0, NULL}, NULL},
        {{STR(HINT), STR("10.0.0.1"), NULL, 0, NULL}, NULL},
    };
    (void)state;
    for (size_t i = 0; i < 20 * sizeof(cases) / sizeof(cases[0]); i++) { /* repeated, as picks are
                                                                            random */
        struct fake_proxy *proxy = proxy_open(fixture_spec_of(3));
        size_t k = i / 20;
        ask_with_hint(proxy, EXT_PROC_REQUEST_HEADERS, i % 2 ? GET : POST, STR(""), &cases[k].hint);
        if (cases[k].expected) {
            proxy_assert_text(proxy_pick(proxy_next(proxy)), cases[k].expected);
        } else {
            proxy_expect_refusal(proxy, 503);
        }
        proxy_close(proxy);
    }
}

/* The first message's subset holds when later ones have none; a late one counts until the pick. */
static void session_first_subset_hint_holds(void **state) {
    static const struct ext_proc_entry hint = {
        {HINT, sizeof(HINT) - 1}, {"10.0.0.1:8000", 13}, NULL, 0, NULL};
    static const struct ext_proc_entry other = {
        {HINT, sizeof(HINT) - 1}, {"10.0.0.2:8000", 13}, NULL, 0, NULL};
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct pool_spec *spec = fixture_spec_of(3);
        spec->strict_models = true;
        proxy_add_model(spec, "m", POOL_STANDARD);
        struct fake_proxy *proxy = proxy_open(spec);
        const char *body = "{\"model\":\"m\"}";
        if (i % 3 == 2) {
            proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        } else {
            ask_with_hint(proxy, EXT_PROC_REQUEST_HEADERS, POST, STR(""), &hint);
        }
        if (i % 3 == 0) {
            proxy_body(proxy, body, true);
        } else {
            ask_with_hint(proxy, EXT_PROC_REQUEST_BODY, "", str_of(body),
                          i % 3 == 2 ? &hint : &other);
        }
        proxy_assert_text(proxy_pick(proxy_next(proxy)), "10.0.0.1:8000");
        proxy_close(proxy);
    }
}

/* The header of the gateways' conformance tests, when enabled. */
static void session_selection_header_limits_pick(void **state) {
    static const struct {
        const char *header;
        bool on;
        const char *expected; /* "": any, NULL: 503 */
    } cases[] = {
        {"|test-epp-endpoint-selection=10.0.0.1", true, "10.0.0.1:8000"},
        {"|test-epp-endpoint-selection=10.9.9.9, 10.0.0.2:8000", true, "10.0.0.2:8000"},
        {"|test-epp-endpoint-selection=10.0.0.1:1", true, NULL},
        {"|test-epp-endpoint-selection=", true, NULL},
        {"", true, ""},
        {"|test-epp-endpoint-selection=10.9.9.9", false, ""},
    };
    (void)state;
    for (size_t i = 0; i < 20 * sizeof(cases) / sizeof(cases[0]); i++) {
        struct pool_spec *spec = fixture_spec_of(3);
        char headers[200];
        spec->protocol.conformance = cases[i / 20].on;
        snprintf(headers, sizeof(headers), "%s%s", GET, cases[i / 20].header);
        struct fake_proxy *proxy = proxy_open(spec);
        proxy_request(proxy, headers, true, PROXY_CONFIG(NONE, NONE));
        if (!cases[i / 20].expected) {
            proxy_expect_refusal(proxy, 503);
        } else if (*cases[i / 20].expected) {
            proxy_assert_text(proxy_pick(proxy_next(proxy)), cases[i / 20].expected);
        } else {
            proxy_pick(proxy_next(proxy));
        }
        proxy_close(proxy);
    }
}

/* ---- models at the headers ------------------------------------------------------------------- */

/* The request, its answer, and the path that is sent on. */
static void session_model_in_path_is_resolved(void **state) {
    static const struct {
        const char *headers;
        unsigned status; /* 0: a pick */
        const char *path;
    } cases[] = {
        {":method=POST|:path=/v2/models/m/infer", 0, NULL},
        {":method=POST|:path=/v2/models/old/infer", 0, "/v2/models/new/infer"},
        {":method=POST|:path=/p/v2/models/old/versions/3/generate?a=b", 0,
         "/p/v2/models/new/versions/3/generate?a=b"},
        {":method=POST|:path=/v2/models/o%6cd/infer", 0, "/v2/models/new/infer"},
        {":method=POST|:path=/v2/models/stranger/infer", 404, NULL},
        {":method=POST|:path=/v2/models/%/infer", 400, NULL},
        {":method=GET|:path=/v2/models/stranger", 0, NULL}, /* not an inference */
        {":method=GET|:path=/anything", 0, NULL},           /* no model is named: never a 404 */
        {":method=POST|:path=/inference.GRPCInferenceService/ModelStreamInfer", 0, NULL},
        /* the model header, where the path names none */
        {":method=POST|:path=/v1/completions|x-gateway-model-name=m", 0, NULL},
        {":method=POST|:path=/v1/completions|x-gateway-model-name=stranger", 404, NULL},
        {":method=POST|:path=/anything|x-gateway-model-name=stranger", 404, NULL},
        {":method=POST|:path=/v2/models/m/infer|x-gateway-model-name=stranger", 0, NULL},
        {":method=POST|:path=/anything|x-gateway-model-name=", 0, NULL},
        /* the rewrite header, of which the first name counts */
        {":method=POST|:path=/v2/models/x/infer|x-gateway-model-name-rewrite=m", 0,
         "/v2/models/m/infer"},
        {":method=POST|:path=/v2/models/x/infer|x-llm-d-model-name-rewrite=stranger|"
         "x-gateway-model-name-rewrite=old",
         0, "/v2/models/new/infer"},
        {":method=POST|:path=/v2/models/m/infer|x-gateway-model-name-rewrite=stranger", 404, NULL},
        {":method=POST|:path=/anything|x-gateway-model-name-rewrite=stranger", 0, NULL},
    };
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        proxy_request(proxy, cases[i].headers, false, PROXY_CONFIG(NONE, NONE));
        if (cases[i].status) {
            proxy_expect_refusal(proxy, cases[i].status);
        } else {
            const struct ext_proc_client_response *reply = proxy_next(proxy);
            proxy_pick(reply);
            assert_int_equal(proxy_n_set(reply), cases[i].path ? 2 : 1);
            if (cases[i].path) {
                proxy_assert_text(proxy_set(reply, ":path"), cases[i].path);
            }
            assert_false(reply->has_mode_override); /* the body is not sent to the picker */
        }
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* Named by a header, but replaced: the body is needed for that alone. */
static void session_model_header_with_rewrite_needs_body(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (int way = 0; way < 2; way++) {
        const char *headers =
            way ? POST "|x-gateway-model-name-rewrite=old" : POST "|x-gateway-model-name=old";
        proxy_request(proxy, headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_expect_no_message(proxy);
        proxy_body(proxy, "{\"model\":\"whatever\"}", true);
        proxy_assert_text(proxy_set(proxy_next(proxy), "content-length"), "37");
        proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"model\":\"new\"}", true);
        proxy_next_stream(proxy);
        proxy_request(proxy, headers, false, PROXY_CONFIG(NONE, NONE));
        assert_true(proxy_next(proxy)->has_mode_override);
        proxy_body(proxy, "{\"model\":\"whatever\"}", true);
        proxy_assert_text(proxy_next(proxy)->body, "{\"model\":\"new\"}");
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* Rewriting needs no configured models. */
static void session_rewrite_header_works_without_models(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_request(proxy, POST "|x-llm-d-model-name-rewrite=a", false,
                  PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"model\":\"b\"}", true);
    proxy_pick(proxy_next(proxy));
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"model\":\"a\"}", true);
    proxy_close(proxy);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void session_without_endpoints_is_503(void **state) {
    struct fake_proxy *proxy = proxy_open(fixture_spec());
    (void)state;
    proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 503);
    proxy_assert_text(proxy_set(reply, "content-type"), "application/json");
    proxy_assert_text(proxy_set(reply, "x-llm-d-request-dropped-reason"), "rejected-no-endpoints");
    proxy_assert_text(reply->details, "sluice{NO_ENDPOINT}");
    proxy_assert_text(reply->body, "{\"error\":\"none of the pool's 0 endpoints is ready\"}");
    proxy_close(proxy);
}

static void session_unknown_model_in_path_is_404(void **state) {
    struct pool_spec *spec = one();
    (void)state;
    spec->strict_models = true;
    proxy_add_model(spec, "digits", POOL_STANDARD);
    struct fake_proxy *proxy = proxy_open(spec);
    proxy_request(proxy, INFER, false, PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_next_stream(proxy);
    proxy_request(proxy, ":method=POST|:path=/v2/models/cats/infer", false,
                  PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_expect_refusal(proxy, 404);
    proxy_close(proxy);
}

static void session_sheddable_on_saturated_pool_is_429(void **state) {
    struct pool_spec *spec = one();
    (void)state;
    spec->max_in_flight = 1;
    spec->retry_after_s = 7;
    proxy_add_model(spec, "digits", POOL_SHEDDABLE);
    struct fake_proxy *proxy = proxy_open(spec);
    struct pool_pick other = fixture_pick(&proxy->pool);
    proxy_request(proxy, INFER, false, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 429);
    proxy_assert_text(proxy_set(reply, "retry-after"), "7");
    proxy_assert_text(proxy_set(reply, "x-llm-d-request-dropped-reason"), "rejected-saturated");
    pool_release_ticket(proxy->pool.pool, &other.ticket);
    proxy_close(proxy);
}

/* The objective header takes precedence over the model's criticality. */
static void session_objective_overrides_criticality(void **state) {
    static const struct {
        const char *header;
        bool shed;
    } cases[] = {
        {"", false},
        {"|x-gateway-inference-objective=batch", true},
        {"|x-llm-d-inference-objective=batch", true},
        {"|x-llm-d-inference-objective=batch|x-gateway-inference-objective=chat", false},
        {"|x-gateway-inference-objective=unknown", false},
    };
    struct pool_spec *spec = one();
    const struct pool_objective batch = {STR("batch"), -1}, chat = {STR("chat"), 1};
    (void)state;
    spec->max_in_flight = 1;
    pool_spec_add_objective(spec, &batch);
    pool_spec_add_objective(spec, &chat);
    struct fake_proxy *proxy = proxy_open(spec);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pool_pick other = fixture_pick(&proxy->pool);
        char headers[200];
        snprintf(headers, sizeof(headers), "%s%s", GET, cases[i].header);
        proxy_request(proxy, headers, true, PROXY_CONFIG(NONE, NONE));
        if (cases[i].shed) {
            proxy_expect_refusal(proxy, 429);
        } else {
            proxy_pick(proxy_next(proxy));
        }
        pool_release_ticket(proxy->pool.pool, &other.ticket);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* Each session keeps its endpoint, and sessions are spread. */
static void session_affinity_keeps_endpoint(void **state) {
    static const struct profile_step filter = {.plugin = &plugin_session_hash_filter};
    static const struct profile profile = {
        .filters = &filter, .n_filters = 1, .picker = {.plugin = &plugin_max_score_picker}};
    struct pool_spec *spec = fixture_spec_of(8);
    char first[20][ENDPOINT_TEXT_BYTES];
    unsigned n_other = 0;
    (void)state;
    spec->profile = &profile;
    struct fake_proxy *proxy = proxy_open(spec);
    spec->protocol.session_cookie = STR("sid");
    for (int i = 0; i < 80; i++) {
        static const char *const ways[] = {"x-session-token=user-%d", "x-session-token=user-%d",
                                           "cookie=a=1; sid=user-%d",
                                           "cookie=sid=no|x-session-token=user-%d"};
        char headers[200], way[100];
        snprintf(way, sizeof(way), ways[i / 20], i % 20);
        snprintf(headers, sizeof(headers), "%s|%s", GET, way);
        proxy_request(proxy, headers, true, PROXY_CONFIG(NONE, NONE));
        struct str picked = proxy_pick(proxy_next(proxy));
        if (i < 20) {
            snprintf(first[i], sizeof(first[i]), "%.*s", STR_ARG(picked));
            n_other += i > 0 && strcmp(first[i], first[i - 1]) != 0;
        } else {
            proxy_assert_text(picked, first[i % 20]);
        }
        proxy_next_stream(proxy);
    }
    assert_true(n_other > 10);
    proxy_close(proxy);
}

/* Found in the body after the pick: other requests at the endpoint count, this one does not. */
static void session_sheddable_model_in_body_is_429(void **state) {
    (void)state;
    for (uint64_t most = 1; most <= 2; most++) {
        struct pool_spec *spec = proxy_models();
        spec->max_in_flight = most;
        struct fake_proxy *proxy = proxy_open(spec);
        struct pool_pick other = fixture_pick(&proxy->pool);
        proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
        proxy_pick(proxy_next(proxy));
        proxy_body(proxy, "{\"model\":\"cheap\"}", true);
        if (most == 1) {
            proxy_expect_refusal(proxy, 429);
        } else {
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
        }
        pool_release_ticket(proxy->pool.pool, &other.ticket);
        proxy_close(proxy);
    }
}

/* A gRPC client gets a status and the text. */
static void session_grpc_refusal_uses_grpc_status(void **state) {
    struct fake_proxy *proxy = proxy_open(fixture_spec());
    (void)state;
    proxy_request(proxy,
                  ":method=POST|:path=/inference.GRPCInferenceService/ServerLive|"
                  "content-type=application/grpc+proto",
                  false, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 503);
    assert_int_equal(reply->grpc_status, 14);
    proxy_assert_text(reply->body, "none of the pool's 0 endpoints is ready");
    assert_null(proxy_set(reply, "content-type").ptr);
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_get_is_picked_at_headers),
        cmocka_unit_test(session_headers_only_config_is_picked_at_headers),
        cmocka_unit_test(session_ipv6_endpoint_has_brackets),
        cmocka_unit_test(session_client_destination_header_is_replaced),
        cmocka_unit_test(session_fallback_endpoints_are_sent),
        cmocka_unit_test(session_reload_during_pick_keeps_target),
        cmocka_unit_test(session_picker_names_several_endpoints),
        cmocka_unit_test(session_configured_names_are_used),
        cmocka_unit_test(session_pick_stays_within_subset),
        cmocka_unit_test(session_first_subset_hint_holds),
        cmocka_unit_test(session_selection_header_limits_pick),
        cmocka_unit_test(session_model_in_path_is_resolved),
        cmocka_unit_test(session_model_header_with_rewrite_needs_body),
        cmocka_unit_test(session_rewrite_header_works_without_models),
        cmocka_unit_test(session_without_endpoints_is_503),
        cmocka_unit_test(session_unknown_model_in_path_is_404),
        cmocka_unit_test(session_sheddable_on_saturated_pool_is_429),
        cmocka_unit_test(session_objective_overrides_criticality),
        cmocka_unit_test(session_affinity_keeps_endpoint),
        cmocka_unit_test(session_sheddable_model_in_body_is_429),
        cmocka_unit_test(session_grpc_refusal_uses_grpc_status),
    };
    return cmocka_run_group_tests_name("pick/session/session", tests, NULL, NULL);
}
