/* Requests whose body names the model, in the modes in which the proxy waits for an answer to the
 * body; and invalid bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions|content-type=application/json"
#define PLAIN "{\"model\":\"m\",\"prompt\":\"hi\"}"
#define OLD "{\"prompt\":\"hi\",\"model\" : \"o\\u006cd\",\"max_tokens\":8}"
#define NEW "{\"prompt\":\"hi\",\"model\" : \"new\",\"max_tokens\":8}"

/* ---- BUFFERED, BUFFERED_PARTIAL -------------------------------------------------------------- */

static void body_buffered_pick_is_in_body_response(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=27", false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    assert_false(pick_session_is_response_pending(proxy->session));
    proxy_body(proxy, PLAIN, true);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_UNCHANGED);
    assert_int_equal(proxy_n_set(reply), 1);
    proxy_expect_no_message(proxy);
    proxy_close(proxy);
}

static void body_buffered_renamed_model_replaces_body(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=52", false, PROXY_CONFIG(BUFFERED_PARTIAL, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, OLD, false); /* a part that is not sent to the picker */
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_pick(reply);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    proxy_assert_text(reply->body, NEW);
    proxy_assert_text(proxy_set(reply, "content-length"), "47");
    proxy_expect_no_message(proxy);
    proxy_close(proxy);
}

static void body_buffered_unneeded_picks_at_headers(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, ":method=POST|:path=/v2/models/m/infer", false,
                  PROXY_CONFIG(BUFFERED, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_body(proxy, "{}", true);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    proxy_close(proxy);
}

static void body_buffered_partial_without_model_is_413(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=100", false, PROXY_CONFIG(BUFFERED_PARTIAL, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, "{\"prompt\":\"", false);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 413);
    assert_non_null(
        strstr(reply->body.ptr, "the first 11 bytes of the body do not contain the model's name"));
    proxy_close(proxy);
}

/* bug-N8: a body that trailers follow is not cut off, which its length shows, or its size. */
static void body_buffered_partial_with_trailers_ends_too_early(void **state) {
    static const struct {
        const char *headers;
        size_t n_bytes;
        unsigned status;
    } cases[] = {
        {POST, 11, 400},
        {POST "|content-length=11", 11, 400},
        {POST "|content-length=20000", 20000, 400},
        {POST, 20000, 413},
        {POST "|content-length=20001", 20000, 413},
    };
    static char body[20000] = "{\"prompt\":\"";
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    memset(body + 11, 'a', sizeof(body) - 11);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        proxy_request(proxy, cases[i].headers, false, PROXY_CONFIG(BUFFERED_PARTIAL, NONE));
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
        proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(body, cases[i].n_bytes), false);
        proxy_expect_refusal(proxy, cases[i].status);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* A body followed by trailers has no end_of_stream; without a body no model is named. */
static void body_buffered_trailers_end_body(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_body(proxy, PLAIN, false);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_pick(proxy_next(proxy));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_refusal(proxy, 400);
    proxy_close(proxy);
}

/* ---- NONE, STREAMED -------------------------------------------------------------------------- */

/* The destination is sent at once, and the body requested. */
static void expect_raised(struct fake_proxy *proxy) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_true(reply->has_mode_override);
    assert_int_equal(reply->mode_override.request_body, EXT_PROC_BODY_BUFFERED);
    assert_int_equal(reply->mode_override.request_headers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->mode_override.response_headers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->mode_override.request_trailers, EXT_PROC_SEND_DEFAULT);
    assert_int_equal(reply->mode_override.response_trailers, EXT_PROC_SEND_DEFAULT);
    proxy_expect_no_message(proxy);
    assert_false(pick_session_is_response_pending(proxy->session));
}

static void body_override_requests_buffered_body(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        proxy_request(proxy, POST "|content-length=52", false,
                      streamed ? PROXY_CONFIG(STREAMED, STREAMED) : PROXY_CONFIG(NONE, NONE));
        expect_raised(proxy);
        assert_int_equal(proxy->sent[0].reply.mode_override.response_body,
                         streamed ? EXT_PROC_BODY_STREAMED : EXT_PROC_BODY_NONE);
        proxy_body(proxy, OLD, true);
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
        proxy_assert_text(reply->body, NEW);
        proxy_assert_text(proxy_set(reply, "content-length"), "47");
        assert_int_equal(proxy_n_set(reply), 1); /* the same endpoint */
        proxy_expect_no_message(proxy);
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
    expect_raised(proxy);
    proxy_body(proxy, PLAIN, true);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
    expect_raised(proxy);
    proxy_body(proxy, "{\"model\":\"stranger\"}", true);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 404);
    proxy_assert_text(proxy_set(reply, "x-llm-d-request-dropped-reason"), "rejected-unknown-model");
    proxy_close(proxy);
}

/* A server's answer to a request whose body was not received, of a pool with a list of models. */
static void body_override_ignored_counts_unchecked_models(void **state) {
    static const char *const answers[] = {":status=200|x-envoy-upstream-service-time=3",
                                          ":status=503"}; /* the proxy's own */
    struct fake_proxy *proxy = proxy_open(proxy_models());
    int64_t before = metric_read(METRIC_PICK_MODELS_UNCHECKED_TOTAL);
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool with_body = i >= 2;
        proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
        expect_raised(proxy);
        if (with_body) {
            proxy_body(proxy, PLAIN, true);
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
        }
        proxy_answer(proxy, answers[i % 2], true);
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
        assert_int_equal(metric_read(METRIC_PICK_MODELS_UNCHECKED_TOTAL), before + 1);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* bug-N8: without the responses' headers only the end of the stream shows it, unless the proxy has
 * sent a body or a response before: then the client may have disconnected. */
static void body_override_ignored_counts_without_response_headers(void **state) {
    static const char answered[] = ":status=200|x-envoy-upstream-service-time=3";
    struct fake_proxy *proxy = proxy_open(proxy_models());
    int64_t before = metric_read(METRIC_PICK_MODELS_UNCHECKED_TOTAL);
    (void)state;
    for (int i = 0; i < 3; i++) {
        proxy_request(proxy, i == 1 ? ":method=POST|:path=/v2/models/m/infer" : POST, false,
                      PROXY_CONFIG(NONE, NONE));
        proxy_end(proxy);
        assert_int_equal(metric_read(METRIC_PICK_MODELS_UNCHECKED_TOTAL), before + 1 + i / 2);
        proxy_stream(proxy, &proxy_limits);
    }
    proxy_close(proxy);
    for (int with_body = 0; with_body < 2; with_body++) {
        proxy = proxy_open(proxy_models());
        proxy_request(proxy, with_body ? POST : ":method=POST|:path=/v2/models/m/infer", false,
                      PROXY_CONFIG(NONE, NONE));
        if (with_body) {
            proxy_body(proxy, PLAIN, true);
        } else {
            proxy_answer(proxy, answered, true);
        }
        proxy_next_stream(proxy);
        proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
        proxy_end(proxy);
        assert_int_equal(metric_read(METRIC_PICK_MODELS_UNCHECKED_TOTAL), before + 2);
        proxy_stream(proxy, &proxy_limits);
        proxy_close(proxy);
    }
}

/* bug-N8: a whole body that trailers follow has no end_of_stream, and looks like a first piece. */
static void body_override_first_piece_is_renamed(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (int trailers = 0; trailers < 2; trailers++) {
        proxy_request(proxy, POST, false, PROXY_CONFIG(STREAMED, NONE));
        expect_raised(proxy);
        proxy_body(proxy, OLD, false);
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
        assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
        proxy_assert_text(reply->body, NEW);
        if (trailers) {
            proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
        } else {
            proxy_body(proxy, "", true);
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
        }
        proxy_expect_no_message(proxy);
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, POST, false, PROXY_CONFIG(STREAMED, NONE));
    expect_raised(proxy);
    proxy_body(proxy, "{\"prompt\":", false);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_refusal(proxy, 400);
    proxy_close(proxy);
}

/* A proxy that does not allow the override: with NONE no body arrives. */
static void body_override_ignored_keeps_pick(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
    expect_raised(proxy);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_answer(proxy, ":status=200", true);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_close(proxy);
}

/* With STREAMED pieces arrive: the model is checked as soon as it is known. */
static void body_override_ignored_in_streamed_mode_checks_pieces(void **state) {
    static const struct {
        const char *parts[3];
        unsigned status; /* 0: forwarded */
    } cases[] = {
        {{"{\"mod", "el\":\"m\"", "}"}, 0},     {{"{\"mod", "el\":\"m\"}", ""}, 0},
        {{"{\"model\":\"m\"}", "", ""}, 0},     {{"{\"mod", "el\":\"stranger\"", "}"}, 404},
        {{"{\"mod", "el\":1", "}"}, 400},       {{"{\"prompt\":", "1", "}"}, 400},
        {{"{\"mod", "el\":\"old\"", "}"}, 500}, /* the model can no longer be replaced */
    };
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        proxy_request(proxy, POST, false, i % 2 ? PROXY_CONFIG(STREAMED, NONE) : NULL);
        expect_raised(proxy);
        for (size_t k = 0; k < 3; k++) {
            proxy_body(proxy, cases[i].parts[k], k == 2);
        }
        for (size_t k = 0; k < 3 && !proxy->sent[proxy->n_read].reply.is_immediate; k++) {
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
        }
        if (cases[i].status) {
            proxy_expect_refusal(proxy, cases[i].status);
        }
        proxy_expect_no_message(proxy);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* A proxy that sends the body without waiting ignores the override: it is not sent. */
static void body_override_not_sent_to_proxy_that_does_not_wait(void **state) {
    const struct ext_proc_config config = {EXT_PROC_BODY_STREAMED, EXT_PROC_BODY_NONE, true};
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, &config);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_pick(reply);
    assert_false(reply->has_mode_override);
    proxy_body(proxy, PLAIN, false);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    proxy_close(proxy);
}

/* ---- invalid bodies -------------------------------------------------------------------------- */

/* The answer to each body, in a mode that holds it and in one that waits. */
static void body_without_model_is_refused(void **state) {
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
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        proxy_request(proxy, POST, false,
                      i % 2 ? PROXY_CONFIG(FULL_DUPLEX, NONE) : PROXY_CONFIG(BUFFERED, NONE));
        proxy_body(proxy, cases[i / 2].body, true);
        if (i % 2 == 0) {
            proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
        }
        const struct ext_proc_client_response *reply =
            proxy_expect_refusal(proxy, cases[i / 2].status);
        assert_non_null(strstr(reply->body.ptr, cases[i / 2].text));
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* The headers have end_of_stream: no body will arrive. */
static void body_missing_is_400(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=0", true, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_expect_refusal(proxy, 400);
    proxy_close(proxy);
}

static void refusal_body_matches_client_api(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"model\":\"\\\"q\\\"\"}", true);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 404);
    proxy_assert_text(proxy_set(reply, "content-type"), "application/json");
    proxy_assert_text(
        reply->body,
        "{\"type\":\"error\",\"error\":{\"message\":\"no model is called \\\"\\\"q\\\"\\\" "
        "(models: in "
        "the picker's configuration lists those that are)\",\"type\":\"not_found_error\",\"code\":"
        "\"UNKNOWN_MODEL\"}}");
    proxy_assert_text(reply->details, "sluice{UNKNOWN_MODEL}");
    proxy_close(proxy);
}

static void body_encoded_with_model_needed_is_415(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-encoding=identity", false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST "|content-encoding=gzip", false, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 415);
    proxy_assert_text(proxy_set(reply, "accept-encoding"), "identity");
    proxy_next_stream(proxy);
    proxy_request(proxy, ":method=POST|:path=/v2/models/m/infer|content-encoding=gzip", false,
                  PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_close(proxy);
}

static void body_over_limit_is_413(void **state) {
    struct pick_limits limits = {.max_body_size = 20, .answer_timeout_ns = 1000000};
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_end(proxy);
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":\"123456789", false); /* 20 */
    proxy_expect_no_message(proxy);
    proxy_body(proxy, "0", false);
    proxy_expect_refusal(proxy, 413);
    proxy_end(proxy);
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, "{\"model\":\"m\",\"p\":123}", true); /* 21 */
    proxy_expect_refusal(proxy, 413);
    proxy_close(proxy);
}

/* A body that is to be buffered is refused at the headers, if its length is known. */
static void body_content_length_over_limit_is_413(void **state) {
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
    struct pick_limits limits = {.max_body_size = 20, .answer_timeout_ns = 1000000};
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char headers[256];
        proxy_end(proxy);
        proxy_stream(proxy, &limits);
        snprintf(headers, sizeof(headers), POST "|content-length=%s", cases[i].length);
        proxy_request(proxy, headers, false, &cases[i].config);
        assert_int_equal(proxy->finished, cases[i].refused);
        if (cases[i].refused) {
            proxy_expect_refusal(proxy, 413);
        }
    }
    proxy_end(proxy);
    proxy_stream(proxy, &limits); /* a body that is not scanned may have any size */
    proxy_request(proxy, ":method=POST|:path=/v2/models/m/infer|content-length=21", false,
                  PROXY_CONFIG(BUFFERED, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_close(proxy);
}

/* A message that exceeds the size limit is refused while headers or body are awaited; otherwise it
 * ends the stream. */
static void message_rejected_answers_client_or_ends_stream(void **state) {
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
        {{EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false}, NULL, NULL, true}, /* the headers */
    };
    struct fake_proxy *proxy = proxy_open(proxy_models());
    struct error why;
    (void)state;
    error_set(&why, ST_BODY_TOO_LARGE, "too much");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].headers) {
            proxy_request(proxy, cases[i].headers, false, &cases[i].config);
        }
        if (cases[i].body) {
            proxy_body(proxy, cases[i].body, false);
        }
        proxy->n_read = proxy->n_sent;
        pick_session_on_message_rejected(proxy->session, &why);
        assert_true(proxy->finished);
        if (cases[i].refused) {
            proxy_expect_refusal(proxy, 413);
        } else {
            proxy_expect_no_message(proxy);
            assert_int_equal(proxy->why.status, ST_BODY_TOO_LARGE);
        }
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, POST, false, PROXY_CONFIG(NONE, NONE));
    proxy_answer(proxy, ":status=200", false);
    proxy->n_read = proxy->n_sent;
    pick_session_on_message_rejected(proxy->session,
                                     &why); /* the response has started: no other can be sent */
    proxy_expect_no_message(proxy);
    assert_int_equal(proxy->why.status, ST_BODY_TOO_LARGE);
    proxy_close(proxy);
}

/* An endless body of pieces that are nearly empty. */
static void body_of_endless_small_parts_is_413(void **state) {
    struct pick_limits limits = {.max_body_size = 6400, .answer_timeout_ns = 1000000};
    struct fake_proxy *proxy = proxy_open(proxy_models());
    size_t n = 0;
    (void)state;
    proxy_end(proxy);
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    for (; n < 100; n++) {
        proxy_body(proxy, "", false); /* empty pieces are not buffered */
    }
    assert_int_equal(proxy->n_messages, 1);
    for (n = 0; n < 6400 && !proxy->finished; n++) {
        proxy_body(proxy, " ", false);
        assert_in_range(proxy->n_messages, 0, 16); /* small pieces are copied, except for the first
                                                      few */
    }
    assert_in_range(n, 1024, 2048);
    proxy_expect_refusal(proxy, 413);
    proxy_close(proxy);
}

/* bug-N9: the list replaces the default one. */
static void body_of_listed_path_must_name_model(void **state) {
    static const struct str paths[] = {STR("/generate")};
    static const struct {
        const char *path, *body;
        unsigned status; /* 0: picked */
    } cases[] = {
        {"/x/generate", PLAIN, 0},
        {"/generate", "{\"model\":\"x\"}", 404},
        {"/generate", "{}", 400},
        {"/%67enerate", PLAIN, 400},
        {"/v1/completions", "{\"model\":\"x\"}", 0},
        {"/v1/models/x:predict", "{}", 404},
    };
    struct pool_spec *spec = proxy_models();
    (void)state;
    spec->model_paths = paths;
    spec->n_model_paths = 1;
    struct fake_proxy *proxy = proxy_open(spec);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char headers[128];
        (void)snprintf(headers, sizeof(headers), ":method=POST|:path=%s", cases[i].path);
        proxy_request(proxy, headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        if (!proxy->finished) {
            proxy_body(proxy, cases[i].body, true);
        }
        if (cases[i].status > 0) {
            proxy_expect_refusal(proxy, cases[i].status);
        } else {
            proxy_pick(proxy_next(proxy));
        }
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* ---- large bodies, in slices ----------------------------------------------------------------- */

enum { LARGE_BYTES = 1 << 20, SLICE_BYTES = 8 << 10, N_SLICES = LARGE_BYTES / SLICE_BYTES };

/* `begin`, then `filling` as often as it fits, blanks, and `end`. */
static struct str large_body(char *out, const char *begin, const char *filling, const char *end) {
    size_t at = strlen(begin), n_end = strlen(end), n = strlen(filling);
    memset(out, ' ', LARGE_BYTES);
    memcpy(out, begin, at);
    for (; at + n <= LARGE_BYTES - n_end; at += n) {
        memcpy(out + at, filling, n);
    }
    memcpy(out + LARGE_BYTES - n_end, end, n_end);
    return str_make(out, LARGE_BYTES);
}

/* Returns: how many slices were left after the first one. */
static int scan_rest(struct fake_proxy *proxy) {
    size_t n_sent = proxy->n_sent;
    int n = 0;
    for (; pick_session_has_more(proxy->session); n++) {
        assert_int_equal(proxy->n_sent, n_sent); /* nothing is said before the end */
        pick_session_go_on(proxy->session);
    }
    return n;
}

/* bug-N12: however it is filled. Text that can name no model any more is not scanned. */
static void body_large_is_scanned_in_slices(void **state) {
    static const struct {
        const char *begin, *filling, *end;
        int n_slices;
        unsigned status; /* 0: picked */
    } cases[] = {
        {"{\"a\":", "[", "", N_SLICES, 400},
        {"{", "\"a\":1,", "\"model\":\"m\"}", N_SLICES, 0},
        {"{\"model\":\"m\",", "\"a\":1,", "\"a\":1}", N_SLICES, 0},
        {"{\"model\":\"m\",", "\"a\":1,", "\"model\":\"x\"}", N_SLICES, 400},
        {"{", " ", "", N_SLICES, 400},
        {"{\"a\":\"", "\\\"", "\",\"model\":\"m\"}", N_SLICES, 0},
        {"{\"model\":\"m\"}", "[", "", 1 + 1, 0},
        {"", "[", "", 1 + 1, 400},
    };
    static const struct ext_proc_config configs[] = {
        {EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_NONE, false},
        {EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_NONE, false},
        {EXT_PROC_BODY_NONE, EXT_PROC_BODY_NONE, false}};
    char *bytes = malloc(LARGE_BYTES);
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    assert_non_null(bytes);
    proxy->by_slice = true;
    for (size_t i = 0; i < 3 * sizeof(cases) / sizeof(cases[0]); i++) {
        size_t k = i / 3;
        struct str body = large_body(bytes, cases[k].begin, cases[k].filling, cases[k].end);
        proxy_request(proxy, POST, false, &configs[i % 3]);
        proxy->n_read = proxy->n_sent;
        proxy_part(proxy, EXT_PROC_REQUEST_BODY, body, true);
        proxy_expect_no_message(proxy);
        if (1 + scan_rest(proxy) != cases[k].n_slices) {
            fail_msg("%s%s: another number of slices", cases[k].begin, cases[k].filling);
        }
        if (cases[k].status > 0) {
            proxy_expect_refusal(proxy, cases[k].status);
        } else {
            assert_false(proxy_next(proxy)->is_immediate);
        }
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
    free(bytes);
}

/* Its end is in the middle of a large body: of the stream, of the time, or by a bad message. */
static void body_large_is_released_wherever_it_ends(void **state) {
    char *bytes = malloc(LARGE_BYTES);
    struct fake_proxy *proxy = proxy_open(proxy_models());
    struct error why;
    (void)state;
    assert_non_null(bytes);
    struct str body = large_body(bytes, "{\"a\":", "[", "");
    error_set(&why, ST_BODY_TOO_LARGE, "too much");
    proxy->by_slice = true;
    for (int i = 0; i < 4; i++) {
        proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_part(proxy, EXT_PROC_REQUEST_BODY, body, false);
        assert_true(pick_session_has_more(proxy->session));
        assert_int_equal(proxy->n_messages, 2);
        if (i == 1) {
            pick_session_on_message_rejected(proxy->session, &why);
            proxy_expect_refusal(proxy, 413);
        } else if (i == 2) { /* the slices that are left may name the model */
            pick_session_on_timeout(proxy->session);
            proxy_expect_no_message(proxy);
            scan_rest(proxy);
            proxy_expect_refusal(proxy, 408);
        } else if (i == 3) {
            pick_session_half_close(proxy->session);
            assert_true(proxy->finished);
        }
        assert_int_equal(pick_session_has_more(proxy->session), i == 0);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_buffered_pick_is_in_body_response),
        cmocka_unit_test(body_buffered_renamed_model_replaces_body),
        cmocka_unit_test(body_buffered_unneeded_picks_at_headers),
        cmocka_unit_test(body_buffered_partial_without_model_is_413),
        cmocka_unit_test(body_buffered_partial_with_trailers_ends_too_early),
        cmocka_unit_test(body_buffered_trailers_end_body),
        cmocka_unit_test(body_override_requests_buffered_body),
        cmocka_unit_test(body_override_ignored_counts_unchecked_models),
        cmocka_unit_test(body_override_ignored_counts_without_response_headers),
        cmocka_unit_test(body_override_first_piece_is_renamed),
        cmocka_unit_test(body_override_ignored_keeps_pick),
        cmocka_unit_test(body_override_ignored_in_streamed_mode_checks_pieces),
        cmocka_unit_test(body_override_not_sent_to_proxy_that_does_not_wait),
        cmocka_unit_test(body_without_model_is_refused),
        cmocka_unit_test(body_missing_is_400),
        cmocka_unit_test(refusal_body_matches_client_api),
        cmocka_unit_test(body_encoded_with_model_needed_is_415),
        cmocka_unit_test(body_over_limit_is_413),
        cmocka_unit_test(body_content_length_over_limit_is_413),
        cmocka_unit_test(message_rejected_answers_client_or_ends_stream),
        cmocka_unit_test(body_of_endless_small_parts_is_413),
        cmocka_unit_test(body_of_listed_path_must_name_model),
        cmocka_unit_test(body_large_is_scanned_in_slices),
        cmocka_unit_test(body_large_is_released_wherever_it_ends),
    };
    return cmocka_run_group_tests_name("pick/session/body", tests, NULL, NULL);
}
