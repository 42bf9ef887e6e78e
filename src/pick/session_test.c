/* Sessions at the headers: where a request goes, and how it is told. What bodies change is in
 * session_body_test.c, the answer's way in session_response_test.c. */
#include "pick/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pick_fixture.h"

#define GET ":method=GET|:path=/v1/models|:scheme=http|accept=*/*"
#define POST ":method=POST|:path=/v1/completions|content-type=application/json|content-length=42"
#define INFER ":method=POST|:path=/v2/models/digits/infer|content-type=application/json"

static struct pool_spec *one(void) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    return spec;
}

/* ---- a pick ---------------------------------------------------------------------------------- */

static void a_get_is_picked_for_at_the_headers(void **state) {
    struct stage *stage = stage_open(one());
    (void)state;
    stage_request(stage, GET, true, STAGE_CONFIG(FULL_DUPLEX, FULL_DUPLEX));
    const struct ext_proc_reply *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    assert_int_equal(stage_n_set(reply), 1); /* nothing else of the request is touched */
    assert_false(reply->has_modes);
    stage_expect_silence(stage);
    assert_false(stage->finished);
    stage_close(stage);
}

/* protocol_config is there and empty: nobody waits for a body. */
static void headers_only(void **state) {
    struct stage *stage = stage_open(one());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(NONE, NONE));
    stage_assert_text(stage_pick(stage_next(stage)), "10.0.0.1:8000");
    stage_expect_silence(stage);
    assert_false(pick_session_owes(stage->session));
    stage_close(stage);
}

static void an_ipv6_endpoint_has_brackets(void **state) {
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "[::1]:8000");
    struct stage *stage = stage_open(spec);
    stage_request(stage, GET, true, STAGE_CONFIG(NONE, NONE));
    stage_assert_text(stage_pick(stage_next(stage)), "[::1]:8000");
    stage_close(stage);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void without_endpoints_it_is_503(void **state) {
    struct stage *stage = stage_open(fixture_spec());
    (void)state;
    stage_request(stage, GET, true, STAGE_CONFIG(NONE, NONE));
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 503);
    stage_assert_text(stage_set(reply, "content-type"), "application/json");
    stage_assert_text(stage_set(reply, "x-llm-d-request-dropped-reason"), "rejected-no-endpoints");
    stage_assert_text(reply->details, "sluice{NO_ENDPOINT}");
    stage_assert_text(reply->body, "{\"error\":\"none of the pool's 0 endpoints is ready\"}");
    stage_close(stage);
}

static void an_unknown_model_in_the_path_is_404(void **state) {
    struct pool_spec *spec = one();
    (void)state;
    spec->strict_models = true;
    stage_add_model(spec, "digits", POOL_STANDARD);
    struct stage *stage = stage_open(spec);
    stage_request(stage, INFER, false, STAGE_CONFIG(NONE, NONE));
    stage_pick(stage_next(stage));
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, ":method=POST|:path=/v2/models/cats/infer", false,
                  STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_expect_refusal(stage, 404);
    stage_close(stage);
}

static void a_sheddable_request_is_429_where_all_are_busy(void **state) {
    struct pool_spec *spec = one();
    (void)state;
    spec->max_in_flight = 1;
    spec->retry_after_s = 7;
    stage_add_model(spec, "digits", POOL_SHEDDABLE);
    struct stage *stage = stage_open(spec);
    struct pool_pick other = fixture_pick(&stage->pool);
    stage_request(stage, INFER, false, STAGE_CONFIG(NONE, NONE));
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 429);
    stage_assert_text(stage_set(reply, "retry-after"), "7");
    stage_assert_text(stage_set(reply, "x-llm-d-request-dropped-reason"), "rejected-saturated");
    pool_give_back(stage->pool.pool, &other.ticket);
    stage_close(stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_is_picked_for_at_the_headers),
        cmocka_unit_test(headers_only),
        cmocka_unit_test(an_ipv6_endpoint_has_brackets),
        cmocka_unit_test(without_endpoints_it_is_503),
        cmocka_unit_test(an_unknown_model_in_the_path_is_404),
        cmocka_unit_test(a_sheddable_request_is_429_where_all_are_busy),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
