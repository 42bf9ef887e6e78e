/* Requests whose body names the model, in the modes in which the body is sent without waiting: it
 * is held and then sent on, at every split, under its own model name and under another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions|content-type=application/json"
#define GRPC                                                                                       \
    ":method=POST|:path=/inference.GRPCInferenceService/ModelInfer|content-type=application/grpc"

#define PLAIN "{\"model\":\"m\",\"prompt\":\"hi\"}"
#define OLD "{\"prompt\":\"hi\",\"model\" : \"o\\u006cd\",\"max_tokens\":8}"
#define NEW "{\"prompt\":\"hi\",\"model\" : \"new\",\"max_tokens\":8}"

static const struct str plain = {PLAIN, sizeof(PLAIN) - 1};
static const struct str old = {OLD, sizeof(OLD) - 1};
static const struct str new = {NEW, sizeof(NEW) - 1};

/* A body in pieces of `step` bytes; end_of_stream is in the last one, or in a message of its
 * own. */
static void send_in_steps(struct fake_proxy *proxy, struct str body, size_t step, bool end_alone) {
    for (size_t at = 0; at < body.len; at += step) {
        size_t n = body.len - at < step ? body.len - at : step;
        proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(body.ptr + at, n),
                   !end_alone && at + n == body.len);
    }
    if (end_alone) {
        proxy_body(proxy, "", true);
    }
}

/* ---- FULL_DUPLEX ----------------------------------------------------------------------------- */

/* The answer to the headers is held; it is sent before the body. */
static void duplex_headers_are_held_until_model_known(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=27", false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_expect_no_message(proxy);
    assert_true(pick_session_is_response_pending(proxy->session));
    proxy_body(proxy, "{\"model\":", false);
    proxy_expect_no_message(proxy);
    proxy_body(proxy, "\"m\"", false);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_int_equal(proxy_n_set(reply), 1); /* the length is unchanged */
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"model\":", false);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "\"m\"", false);
    assert_false(pick_session_is_response_pending(proxy->session));
    proxy_body(proxy, ",\"prompt\":\"hi\"}", false);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, ",\"prompt\":\"hi\"}", false);
    proxy_body(proxy, "", true);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "", true);
    proxy_close(proxy);
}

static void duplex_body_split_anywhere_gives_same_result(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t step = 1; step <= old.len; step++) {
        for (int way = 0; way < 4; way++) {
            struct str body = way & 1 ? old : plain, expected = way & 1 ? new : plain;
            proxy_request(proxy, POST "|content-length=52", false, PROXY_CONFIG(FULL_DUPLEX, NONE));
            send_in_steps(proxy, body, step, way & 2);
            const struct ext_proc_client_response *reply = proxy_next(proxy);
            proxy_pick(reply);
            assert_int_equal(proxy_n_set(reply), way & 1 ? 2 : 1);
            if (way & 1) {
                proxy_assert_text(proxy_set(reply, "content-length"), "47");
            }
            proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, expected, true);
            proxy_expect_no_message(proxy);
            proxy_next_stream(proxy);
        }
    }
    proxy_close(proxy);
}

/* Where models make no difference the body is sent on at once. */
static void duplex_without_model_rules_is_not_held(void **state) {
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "10.0.0.1:8000");
    struct fake_proxy *proxy = proxy_open(spec);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_body(proxy, "{\"mod", false);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"mod", false);
    proxy_body(proxy, "", false); /* empty, without end_of_stream */
    proxy_expect_no_message(proxy);
    proxy_body(proxy, "el\":1}", true);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "el\":1}", true);
    proxy_close(proxy);
}

static void duplex_large_body_is_sent_in_chunks(void **state) {
    struct pick_limits limits = proxy_limits;
    struct fake_proxy *proxy = proxy_open(proxy_models());
    size_t n = 1000045;
    char *body = malloc(n);
    (void)state;
    memset(body, 'x', n);
    memcpy(body, "{\"model\":\"m\",\"", 14);
    limits.max_body_size = 100; /* the model is known before the limit is reached */
    proxy_end(proxy);
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(body, n), false);
    proxy_pick(proxy_next(proxy));
    proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, str_make(body, n), false);
    proxy_body(proxy, "", true);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "", true);
    assert_int_equal(proxy->n_sent,
                     1 + (n + EXT_PROC_MAX_CHUNK_BYTES - 1) / EXT_PROC_MAX_CHUNK_BYTES + 1);
    assert_int_equal(proxy->n_messages, 1); /* its bytes are not sent yet */
    proxy_flush(proxy);
    assert_int_equal(proxy->n_messages, 0);
    proxy_close(proxy);
    free(body);
}

static void duplex_trailers_end_body(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":1", false);
    proxy_body(proxy, ",\"model\":\"m\"", false);
    proxy_pick(proxy_next(proxy));
    proxy_body(proxy, "}", false);
    proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, STR("{\"prompt\":1,\"model\":\"m\"}"), false);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":1", false);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_refusal(proxy, 400);
    proxy_close(proxy);
}

/* ---- GRPC, and gRPC in another mode ---------------------------------------------------------- */

#define OLD_MESSAGE "\x0a\x03old\x1a\x01x"
#define NEW_MESSAGE "\x0a\x03new\x1a\x01x"
#define BYTES(text) str_make(text, sizeof(text) - 1)

/* The answer to the headers has the pick at once. */
static void expect_pick_at_headers(struct fake_proxy *proxy) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_true(reply->has_mode_override);
    assert_int_equal(reply->mode_override.request_body, EXT_PROC_BODY_BUFFERED);
    assert_false(pick_session_is_response_pending(proxy->session));
    proxy_expect_no_message(proxy);
}

/* A gRPC message is sent on as one, whatever its size, with its flags. */
static void duplex_grpc_message_stays_whole(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    size_t n = 150000;
    char *message = calloc(1, n);
    (void)state;
    memcpy(message, "\x0a\x03old", 5);
    memcpy(message + 5, "\x3a\xeb\x93\x09", 4); /* raw_input_contents: the remaining bytes */
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(message, n), false);
    memcpy(message, "\x0a\x03new", 5);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->body.len, n);
    assert_memory_equal(reply->body.ptr, message, n);
    assert_false(reply->end_of_stream || reply->is_compressed);
    struct ext_proc_client_request end = {.kind = EXT_PROC_REQUEST_BODY,
                                          .end_of_stream = true,
                                          .end_without_message = true,
                                          .is_compressed = true};
    proxy_send(proxy, &end);
    reply = proxy_next(proxy);
    assert_true(reply->end_of_stream && reply->end_without_message && reply->is_compressed);
    assert_int_equal(reply->body.len, 0);
    proxy_expect_no_message(proxy);
    proxy_close(proxy);
    free(message);
}

static void duplex_empty_grpc_message_is_sent(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    struct ext_proc_client_request part = {.kind = EXT_PROC_REQUEST_BODY};
    (void)state;
    proxy_request(proxy, ":method=POST|:path=/p.S/Method|content-type=application/grpc", false,
                  PROXY_CONFIG(GRPC, GRPC));
    proxy_pick(proxy_next(proxy));
    proxy_send(proxy, &part);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "", false);
    proxy_next_stream(proxy);
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(GRPC, GRPC));
    expect_pick_at_headers(proxy);
    proxy_send(proxy, &part);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(proxy, 400);
    assert_int_equal(reply->grpc_status, 3);
    assert_null(proxy_set(reply, "content-type").ptr);
    proxy_assert_text(reply->body, "model_name: expected a name, got a message without it");
    proxy_close(proxy);
}

static void duplex_compressed_grpc_message_is_415(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    struct ext_proc_client_request part = {
        .kind = EXT_PROC_REQUEST_BODY, .body = BYTES(OLD_MESSAGE), .is_compressed = true};
    (void)state;
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_send(proxy, &part);
    assert_int_equal(proxy_expect_refusal(proxy, 415)->grpc_status, 12);
    proxy_next_stream(proxy);
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, BYTES("\x01\0\0\0\x08" OLD_MESSAGE), true);
    assert_int_equal(proxy_expect_refusal(proxy, 415)->grpc_status, 12);
    proxy_close(proxy);
}

/* A proxy that accepts the mode and sends the body as a whole, with prefixes. */
static void duplex_grpc_mode_prefixed_body_is_replaced(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, BYTES("\0\0\0\0\x08" OLD_MESSAGE), true);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, BYTES("\0\0\0\0\x08" NEW_MESSAGE)));
    proxy_next_stream(proxy);
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, BYTES("\0\0\0\0\x03\x0a\x01x"), true);
    proxy_expect_refusal(proxy, 404); /* there is no such model */
    proxy_close(proxy);
}

/* JSON is not a gRPC message either: it is answered as with BUFFERED. */
static void duplex_grpc_mode_json_body_is_replaced(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST "|content-length=52", false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, old, true);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, new));
    proxy_assert_text(proxy_set(reply, "content-length"), "47");
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(GRPC, NONE));
    expect_pick_at_headers(proxy);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, plain, false); /* trailers follow */
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
    proxy_close(proxy);
}

/* The length prefix matches the message with the new model name. */
static void duplex_grpc_length_prefix_follows_renamed_model(void **state) {
    static const struct pool_target target = {{"a-longer-name", 13}, 1};
    const struct str body = BYTES("\0\0\0\0\x08" OLD_MESSAGE);
    const struct str expected = BYTES("\0\0\0\0\x12\x0a\x0d"
                                      "a-longer-name\x1a\x01x");
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "10.0.0.1:8000");
    proxy_add_target(spec, "old", &target);
    struct fake_proxy *proxy = proxy_open(spec);
    for (size_t step = 1; step <= body.len; step++) {
        proxy_request(proxy, GRPC, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        send_in_steps(proxy, body, step, false);
        proxy_pick(proxy_next(proxy));
        proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, expected, true);
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, GRPC, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, body, true);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_pick(reply);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, expected));
    proxy_close(proxy);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void duplex_body_timeout_is_408(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":", false);
    pick_session_on_timeout(proxy->session);
    proxy_expect_refusal(proxy, 408);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, PLAIN, false);
    proxy_pick(proxy_next(proxy));
    proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, plain, false);
    pick_session_on_timeout(proxy->session); /* no response is pending */
    proxy_expect_no_message(proxy);
    assert_false(proxy->finished);
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplex_headers_are_held_until_model_known),
        cmocka_unit_test(duplex_body_split_anywhere_gives_same_result),
        cmocka_unit_test(duplex_without_model_rules_is_not_held),
        cmocka_unit_test(duplex_large_body_is_sent_in_chunks),
        cmocka_unit_test(duplex_trailers_end_body),
        cmocka_unit_test(duplex_grpc_message_stays_whole),
        cmocka_unit_test(duplex_empty_grpc_message_is_sent),
        cmocka_unit_test(duplex_compressed_grpc_message_is_415),
        cmocka_unit_test(duplex_grpc_mode_prefixed_body_is_replaced),
        cmocka_unit_test(duplex_grpc_mode_json_body_is_replaced),
        cmocka_unit_test(duplex_grpc_length_prefix_follows_renamed_model),
        cmocka_unit_test(duplex_body_timeout_is_408),
    };
    return cmocka_run_group_tests_name("pick/session/duplex", tests, NULL, NULL);
}
