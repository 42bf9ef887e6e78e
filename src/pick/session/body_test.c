/* Requests whose body names the model, in the modes in which the proxy has the body and waits for
 * what is said of it; and what a body must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions|content-type=application/json"
#define PLAIN "{\"model\":\"m\",\"prompt\":\"hi\"}"
#define OLD "{\"prompt\":\"hi\",\"model\" : \"o\\u006cd\",\"max_tokens\":8}"
#define NEW "{\"prompt\":\"hi\",\"model\" : \"new\",\"max_tokens\":8}"

/* ---- BUFFERED, BUFFERED_PARTIAL -------------------------------------------------------------- */

static void buffered_the_pick_is_in_the_answer_to_the_body(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-length=27", false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    assert_false(pick_session_owes(stage->session));
    stage_body(stage, PLAIN, true);
    const struct ext_proc_reply *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    assert_int_equal(reply->body_change, EXT_PROC_BODY_KEPT);
    assert_int_equal(stage_n_set(reply), 1);
    stage_expect_silence(stage);
    stage_close(stage);
}

static void buffered_the_body_is_replaced(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-length=52", false, STAGE_CONFIG(BUFFERED_PARTIAL, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_body(stage, OLD, false); /* more of it comes, which is not shown */
    const struct ext_proc_reply *reply = stage_next(stage);
    stage_pick(reply);
    assert_int_equal(reply->body_change, EXT_PROC_BODY_REPLACED);
    stage_assert_text(reply->body, NEW);
    stage_assert_text(stage_set(reply, "content-length"), "47");
    stage_expect_silence(stage);
    stage_close(stage);
}

static void buffered_without_need_it_is_at_the_headers(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, ":method=POST|:path=/v2/models/m/infer", false,
                  STAGE_CONFIG(BUFFERED, NONE));
    stage_pick(stage_next(stage));
    stage_body(stage, "{}", true);
    stage_expect_nod(stage, EXT_PROC_REQUEST_BODY);
    stage_close(stage);
}

static void a_buffer_that_ends_too_early_is_413(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(BUFFERED_PARTIAL, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_body(stage, "{\"prompt\":\"", false);
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 413);
    assert_non_null(strstr(reply->body.ptr, "in its first 11 bytes it is not"));
    stage_close(stage);
}

/* A body with trailers behind it has no end of its own; without any body it names nothing. */
static void buffered_with_trailers(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(BUFFERED, NONE));
    stage_body(stage, PLAIN, false);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_pick(stage_next(stage));
    stage_expect_nod(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST, false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_refusal(stage, 400);
    stage_close(stage);
}

/* ---- NONE, STREAMED -------------------------------------------------------------------------- */

/* The destination is told at once, and the body asked for. */
static void expect_raised(struct stage *stage) {
    const struct ext_proc_reply *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    assert_true(reply->has_modes);
    assert_int_equal(reply->modes.request_body, EXT_PROC_BODY_BUFFERED);
    assert_int_equal(reply->modes.request_headers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->modes.response_headers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->modes.request_trailers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->modes.response_trailers, EXT_PROC_SEND_DEFAULT);
    stage_expect_silence(stage);
    assert_false(pick_session_owes(stage->session));
}

static void raised_the_body_is_asked_for(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        stage_request(stage, POST "|content-length=52", false,
                      streamed ? STAGE_CONFIG(STREAMED, STREAMED) : STAGE_CONFIG(NONE, NONE));
        expect_raised(stage);
        assert_int_equal(stage->said[0].reply.modes.response_body,
                         streamed ? EXT_PROC_BODY_STREAMED : EXT_PROC_BODY_NONE);
        stage_body(stage, OLD, true);
        const struct ext_proc_reply *reply = stage_next(stage);
        assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
        stage_assert_text(reply->body, NEW);
        stage_assert_text(stage_set(reply, "content-length"), "47");
        assert_int_equal(stage_n_set(reply), 1); /* the same endpoint */
        stage_expect_silence(stage);
        stage_end(stage);
        stage_stream(stage, &stage_limits);
    }
    stage_request(stage, POST, false, STAGE_CONFIG(NONE, NONE));
    expect_raised(stage);
    stage_body(stage, PLAIN, true);
    stage_expect_nod(stage, EXT_PROC_REQUEST_BODY);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST, false, STAGE_CONFIG(NONE, NONE));
    expect_raised(stage);
    stage_body(stage, "{\"model\":\"stranger\"}", true);
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 404);
    stage_assert_text(stage_set(reply, "x-llm-d-request-dropped-reason"), "rejected-unknown-model");
    stage_close(stage);
}

/* A proxy that does not allow the override: with NONE the body never comes. */
static void raised_in_vain(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(NONE, NONE));
    expect_raised(stage);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_nod(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_answer(stage, ":status=200", true);
    stage_expect_nod(stage, EXT_PROC_RESPONSE_HEADERS);
    stage_close(stage);
}

/* With STREAMED its pieces come: what can be known by then is. */
static void raised_and_streamed_all_the_same(void **state) {
    static const struct {
        const char *parts[3];
        unsigned status; /* 0: it goes through */
    } cases[] = {
        {{"{\"mod", "el\":\"m\"", "}"}, 0},     {{"{\"mod", "el\":\"m\"}", ""}, 0},
        {{"{\"model\":\"m\"}", "", ""}, 0},     {{"{\"mod", "el\":\"stranger\"", "}"}, 404},
        {{"{\"mod", "el\":1", "}"}, 400},       {{"{\"prompt\":", "1", "}"}, 400},
        {{"{\"mod", "el\":\"old\"", "}"}, 500}, /* it can't be sent on as "new" any more */
    };
    struct stage *stage = stage_open(stage_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stage_request(stage, POST, false, i % 2 ? STAGE_CONFIG(STREAMED, NONE) : NULL);
        expect_raised(stage);
        for (size_t k = 0; k < 3; k++) {
            stage_body(stage, cases[i].parts[k], k == 2);
        }
        for (size_t k = 0; k < 3 && !stage->said[stage->n_read].reply.is_immediate; k++) {
            stage_expect_nod(stage, EXT_PROC_REQUEST_BODY);
        }
        if (cases[i].status) {
            stage_expect_refusal(stage, cases[i].status);
        }
        stage_expect_silence(stage);
        stage_end(stage);
        stage_stream(stage, &stage_limits);
    }
    stage_close(stage);
}

/* A proxy that sends the body without waiting ignores the override: it is not made. */
static void not_raised_where_nobody_waits(void **state) {
    const struct ext_proc_config config = {EXT_PROC_BODY_STREAMED, EXT_PROC_BODY_NONE, true};
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, &config);
    const struct ext_proc_reply *reply = stage_next(stage);
    stage_pick(reply);
    assert_false(reply->has_modes);
    stage_body(stage, PLAIN, false);
    stage_expect_nod(stage, EXT_PROC_REQUEST_BODY);
    stage_close(stage);
}

/* ---- what a body must be --------------------------------------------------------------------- */

/* What each body is answered with, in a mode that holds and in one that waits. */
static void bodies_that_name_no_model(void **state) {
    static const struct {
        const char *body;
        unsigned status;
        const char *text;
    } cases[] = {
        {"", 400, "expected a JSON object, got an empty body"},
        {"[1]", 400, "expected a JSON object, got something else"},
        {"{}", 400, "model: expected a member that names the model, got an object without it"},
        {"{\"model\":1}", 400, "model: expected a string, got another type"},
        {"{\"model\" \"m\"}", 400, "expected JSON, but"},
        {"{\"model\":\"m", 400, "it ends too early"},
        {"{\"model\":\"stranger\"}", 404, "no model is called"},
        {"{\"model\":\"\"}", 404, "no model is called"},
    };
    struct stage *stage = stage_open(stage_models());
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        stage_request(stage, POST, false,
                      i % 2 ? STAGE_CONFIG(FULL_DUPLEX, NONE) : STAGE_CONFIG(BUFFERED, NONE));
        stage_body(stage, cases[i / 2].body, true);
        if (i % 2 == 0) {
            stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
        }
        const struct ext_proc_reply *reply = stage_expect_refusal(stage, cases[i / 2].status);
        assert_non_null(strstr(reply->body.ptr, cases[i / 2].text));
        stage_end(stage);
        stage_stream(stage, &stage_limits);
    }
    stage_close(stage);
}

/* Its headers have the end: there is nothing to wait for. */
static void a_request_without_its_body(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-length=0", true, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_expect_refusal(stage, 400);
    stage_close(stage);
}

static void errors_are_as_their_readers_expect(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, "{\"model\":\"\\\"q\\\"\"}", true);
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 404);
    stage_assert_text(stage_set(reply, "content-type"), "application/json");
    stage_assert_text(
        reply->body,
        "{\"type\":\"error\",\"error\":{\"message\":\"no model is called \\\"\\\"q\\\"\\\" "
        "(models: in "
        "the picker's configuration lists those that are)\",\"type\":\"not_found_error\",\"code\":"
        "\"UNKNOWN_MODEL\"}}");
    stage_assert_text(reply->details, "sluice{UNKNOWN_MODEL}");
    stage_close(stage);
}

static void an_encoded_body_is_415_where_it_matters(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-encoding=identity", false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST "|content-encoding=gzip", false, STAGE_CONFIG(NONE, NONE));
    const struct ext_proc_reply *reply = stage_expect_refusal(stage, 415);
    stage_assert_text(stage_set(reply, "accept-encoding"), "identity");
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, ":method=POST|:path=/v2/models/m/infer|content-encoding=gzip", false,
                  STAGE_CONFIG(NONE, NONE));
    stage_pick(stage_next(stage));
    stage_close(stage);
}

static void a_body_over_the_limit_is_413(void **state) {
    struct pick_limits limits = {.max_body_bytes = 20, .answer_timeout_ns = 1000000};
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_end(stage);
    stage_stream(stage, &limits);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, "{\"prompt\":\"123456789", false); /* 20 */
    stage_expect_silence(stage);
    stage_body(stage, "0", false);
    stage_expect_refusal(stage, 413);
    stage_end(stage);
    stage_stream(stage, &limits);
    stage_request(stage, POST, false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_nod(stage, EXT_PROC_REQUEST_HEADERS);
    stage_body(stage, "{\"model\":\"m\",\"p\":123}", true); /* 21 */
    stage_expect_refusal(stage, 413);
    stage_close(stage);
}

/* What is to come whole is refused before it comes, if its length is known. */
static void a_length_over_the_limit_is_413(void **state) {
    const struct {
        struct ext_proc_config config;
        const char *length;
        bool refused;
    } cases[] = {
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, "21", true},
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, true}, "21", true},
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, "20", false},
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, "no number", false},
        {{EXT_PROC_BODY_NONE, EXT_PROC_BODY_NONE, false}, "18446744073709551615", true},
        {{EXT_PROC_BODY_NONE, EXT_PROC_BODY_NONE, true}, "21", false},
        {{EXT_PROC_BODY_STREAMED, EXT_PROC_BODY_NONE, false}, "21", true},
        {{EXT_PROC_BODY_BUFFERED_PARTIAL, EXT_PROC_BODY_NONE, false}, "21", false},
        {{EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_NONE, false}, "21", false},
    };
    struct pick_limits limits = {.max_body_bytes = 20, .answer_timeout_ns = 1000000};
    struct stage *stage = stage_open(stage_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char headers[256];
        stage_end(stage);
        stage_stream(stage, &limits);
        snprintf(headers, sizeof(headers), POST "|content-length=%s", cases[i].length);
        stage_request(stage, headers, false, &cases[i].config);
        assert_int_equal(stage->finished, cases[i].refused);
        if (cases[i].refused) {
            stage_expect_refusal(stage, 413);
        }
    }
    stage_end(stage);
    stage_stream(stage,
                 &limits); /* where nobody has to look into it, it may be as large as it is */
    stage_request(stage, ":method=POST|:path=/v2/models/m/infer|content-length=21", false,
                  STAGE_CONFIG(BUFFERED, NONE));
    stage_pick(stage_next(stage));
    stage_close(stage);
}

/* A message that was too large for gRPC is answered while the body is awaited, else it is the
 * stream's end. */
static void what_cannot_be_taken(void **state) {
    const struct {
        struct ext_proc_config config;
        const char *headers, *body;
        bool refused;
    } cases[] = {
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, POST, NULL, true},
        {{EXT_PROC_BODY_NONE, EXT_PROC_BODY_NONE, false}, POST, NULL, true},
        {{EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_NONE, false}, POST, "{", true},
        {{EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_NONE, false}, POST, PLAIN, false},
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, ":method=POST|:path=/", NULL, false},
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, NULL, NULL, false},
    };
    struct stage *stage = stage_open(stage_models());
    struct error why;
    (void)state;
    error_set(&why, ST_BODY_TOO_LARGE, "too much");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].headers) {
            stage_request(stage, cases[i].headers, false, &cases[i].config);
        }
        if (cases[i].body) {
            stage_body(stage, cases[i].body, false);
        }
        stage->n_read = stage->n_said;
        pick_session_untaken(stage->session, &why);
        assert_true(stage->finished);
        if (cases[i].refused) {
            stage_expect_refusal(stage, 413);
        } else {
            stage_expect_silence(stage);
            assert_int_equal(stage->why.status, ST_BODY_TOO_LARGE);
        }
        stage_end(stage);
        stage_stream(stage, &stage_limits);
    }
    stage_request(stage, POST, false, STAGE_CONFIG(NONE, NONE));
    stage_answer(stage, ":status=200", false);
    stage->n_read = stage->n_said;
    pick_session_untaken(stage->session,
                         &why); /* the answer is under way: nothing can be put before it */
    stage_expect_silence(stage);
    assert_int_equal(stage->why.status, ST_BODY_TOO_LARGE);
    stage_close(stage);
}

/* A body that never ends, of which each part is as good as nothing. */
static void endless_parts_are_413(void **state) {
    struct pick_limits limits = {.max_body_bytes = 6400, .answer_timeout_ns = 1000000};
    struct stage *stage = stage_open(stage_models());
    size_t n = 0;
    (void)state;
    stage_end(stage);
    stage_stream(stage, &limits);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    for (; n < 100; n++) {
        stage_body(stage, "", false); /* these are not even kept */
    }
    assert_int_equal(stage->n_messages, 1);
    for (n = 0; n < 6400 && !stage->finished; n++) {
        stage_body(stage, " ", false);
        assert_in_range(stage->n_messages, 0, 16); /* few are held as they came */
    }
    assert_in_range(n, 1024, 2048);
    stage_expect_refusal(stage, 413);
    stage_close(stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffered_the_pick_is_in_the_answer_to_the_body),
        cmocka_unit_test(buffered_the_body_is_replaced),
        cmocka_unit_test(buffered_without_need_it_is_at_the_headers),
        cmocka_unit_test(a_buffer_that_ends_too_early_is_413),
        cmocka_unit_test(buffered_with_trailers),
        cmocka_unit_test(raised_the_body_is_asked_for),
        cmocka_unit_test(raised_in_vain),
        cmocka_unit_test(raised_and_streamed_all_the_same),
        cmocka_unit_test(not_raised_where_nobody_waits),
        cmocka_unit_test(bodies_that_name_no_model),
        cmocka_unit_test(a_request_without_its_body),
        cmocka_unit_test(errors_are_as_their_readers_expect),
        cmocka_unit_test(an_encoded_body_is_415_where_it_matters),
        cmocka_unit_test(a_body_over_the_limit_is_413),
        cmocka_unit_test(a_length_over_the_limit_is_413),
        cmocka_unit_test(what_cannot_be_taken),
        cmocka_unit_test(endless_parts_are_413),
    };
    return cmocka_run_group_tests_name("session_body", tests, NULL, NULL);
}
