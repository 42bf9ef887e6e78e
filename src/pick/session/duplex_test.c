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
static void send_in_steps(struct stage *stage, struct str body, size_t step, bool end_alone) {
    for (size_t at = 0; at < body.len; at += step) {
        size_t n = body.len - at < step ? body.len - at : step;
        stage_part(stage, EXT_PROC_REQUEST_BODY, str_make(body.ptr + at, n),
                   !end_alone && at + n == body.len);
    }
    if (end_alone) {
        stage_body(stage, "", true);
    }
}

/* ---- FULL_DUPLEX ----------------------------------------------------------------------------- */

/* The answer to the headers is held; it is sent before the body. */
static void duplex_headers_are_held_until_model_known(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-length=27", false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_expect_no_message(stage);
    assert_true(pick_session_is_response_pending(stage->session));
    stage_body(stage, "{\"model\":", false);
    stage_expect_no_message(stage);
    stage_body(stage, "\"m\"", false);
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    assert_int_equal(stage_n_set(reply), 1); /* the length is unchanged */
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "{\"model\":", false);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "\"m\"", false);
    assert_false(pick_session_is_response_pending(stage->session));
    stage_body(stage, ",\"prompt\":\"hi\"}", false);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, ",\"prompt\":\"hi\"}", false);
    stage_body(stage, "", true);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "", true);
    stage_close(stage);
}

static void duplex_body_split_anywhere_gives_same_result(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    for (size_t step = 1; step <= old.len; step++) {
        for (int way = 0; way < 4; way++) {
            struct str body = way & 1 ? old : plain, expected = way & 1 ? new : plain;
            stage_request(stage, POST "|content-length=52", false, STAGE_CONFIG(FULL_DUPLEX, NONE));
            send_in_steps(stage, body, step, way & 2);
            const struct ext_proc_client_response *reply = stage_next(stage);
            stage_pick(reply);
            assert_int_equal(stage_n_set(reply), way & 1 ? 2 : 1);
            if (way & 1) {
                stage_assert_text(stage_set(reply, "content-length"), "47");
            }
            stage_expect_body(stage, EXT_PROC_REQUEST_BODY, expected, true);
            stage_expect_no_message(stage);
            stage_end(stage);
            stage_stream(stage, &stage_limits);
        }
    }
    stage_close(stage);
}

/* Where models make no difference the body is sent on at once. */
static void duplex_without_model_rules_is_not_held(void **state) {
    struct pool_spec *spec = fixture_spec();
    (void)state;
    fixture_add(spec, "10.0.0.1:8000");
    struct stage *stage = stage_open(spec);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_pick(stage_next(stage));
    stage_body(stage, "{\"mod", false);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "{\"mod", false);
    stage_body(stage, "", false); /* empty, without end_of_stream */
    stage_expect_no_message(stage);
    stage_body(stage, "el\":1}", true);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "el\":1}", true);
    stage_close(stage);
}

static void duplex_large_body_is_sent_in_chunks(void **state) {
    struct pick_limits limits = stage_limits;
    struct stage *stage = stage_open(stage_models());
    size_t n = 1000045;
    char *body = malloc(n);
    (void)state;
    memset(body, 'x', n);
    memcpy(body, "{\"model\":\"m\",\"", 14);
    limits.max_body_size = 100; /* the model is known before the limit is reached */
    stage_end(stage);
    stage_stream(stage, &limits);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_part(stage, EXT_PROC_REQUEST_BODY, str_make(body, n), false);
    stage_pick(stage_next(stage));
    stage_expect_body(stage, EXT_PROC_REQUEST_BODY, str_make(body, n), false);
    stage_body(stage, "", true);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "", true);
    assert_int_equal(stage->n_sent,
                     1 + (n + EXT_PROC_MAX_CHUNK_BYTES - 1) / EXT_PROC_MAX_CHUNK_BYTES + 1);
    assert_int_equal(stage->n_messages, 1); /* its bytes are not sent yet */
    stage_flush(stage);
    assert_int_equal(stage->n_messages, 0);
    stage_close(stage);
    free(body);
}

static void duplex_trailers_end_body(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, "{\"prompt\":1", false);
    stage_body(stage, ",\"model\":\"m\"", false);
    stage_pick(stage_next(stage));
    stage_body(stage, "}", false);
    stage_expect_body(stage, EXT_PROC_REQUEST_BODY, STR("{\"prompt\":1,\"model\":\"m\"}"), false);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_continue(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, "{\"prompt\":1", false);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_refusal(stage, 400);
    stage_close(stage);
}

/* ---- GRPC, and gRPC in another mode ---------------------------------------------------------- */

#define OLD_MESSAGE "\x0a\x03old\x1a\x01x"
#define NEW_MESSAGE "\x0a\x03new\x1a\x01x"
#define BYTES(text) str_make(text, sizeof(text) - 1)

/* The answer to the headers has the pick at once. */
static void expect_pick_at_headers(struct stage *stage) {
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_HEADERS);
    stage_assert_text(stage_pick(reply), "10.0.0.1:8000");
    assert_true(reply->has_mode_override);
    assert_int_equal(reply->mode_override.request_body, EXT_PROC_BODY_BUFFERED);
    assert_false(pick_session_is_response_pending(stage->session));
    stage_expect_no_message(stage);
}

/* A gRPC message is sent on as one, whatever its size, with its flags. */
static void duplex_grpc_message_stays_whole(void **state) {
    struct stage *stage = stage_open(stage_models());
    size_t n = 150000;
    char *message = calloc(1, n);
    (void)state;
    memcpy(message, "\x0a\x03old", 5);
    memcpy(message + 5, "\x3a\xeb\x93\x09", 4); /* raw_input_contents: the remaining bytes */
    stage_request(stage, GRPC, false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_part(stage, EXT_PROC_REQUEST_BODY, str_make(message, n), false);
    memcpy(message, "\x0a\x03new", 5);
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_int_equal(reply->body.len, n);
    assert_memory_equal(reply->body.ptr, message, n);
    assert_false(reply->end_of_stream || reply->is_compressed);
    struct ext_proc_client_request end = {.kind = EXT_PROC_REQUEST_BODY,
                                          .end_of_stream = true,
                                          .end_without_message = true,
                                          .is_compressed = true};
    stage_send(stage, &end);
    reply = stage_next(stage);
    assert_true(reply->end_of_stream && reply->end_without_message && reply->is_compressed);
    assert_int_equal(reply->body.len, 0);
    stage_expect_no_message(stage);
    stage_close(stage);
    free(message);
}

static void duplex_empty_grpc_message_is_sent(void **state) {
    struct stage *stage = stage_open(stage_models());
    struct ext_proc_client_request part = {.kind = EXT_PROC_REQUEST_BODY};
    (void)state;
    stage_request(stage, ":method=POST|:path=/p.S/Method|content-type=application/grpc", false,
                  STAGE_CONFIG(GRPC, GRPC));
    stage_pick(stage_next(stage));
    stage_send(stage, &part);
    stage_expect_chunk(stage, EXT_PROC_REQUEST_BODY, "", false);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, GRPC, false, STAGE_CONFIG(GRPC, GRPC));
    expect_pick_at_headers(stage);
    stage_send(stage, &part);
    const struct ext_proc_client_response *reply = stage_expect_refusal(stage, 400);
    assert_int_equal(reply->grpc_status, 3);
    assert_null(stage_set(reply, "content-type").ptr);
    stage_assert_text(reply->body, "model_name: expected a name, got a message without it");
    stage_close(stage);
}

static void duplex_compressed_grpc_message_is_415(void **state) {
    struct stage *stage = stage_open(stage_models());
    struct ext_proc_client_request part = {
        .kind = EXT_PROC_REQUEST_BODY, .body = BYTES(OLD_MESSAGE), .is_compressed = true};
    (void)state;
    stage_request(stage, GRPC, false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_send(stage, &part);
    assert_int_equal(stage_expect_refusal(stage, 415)->grpc_status, 12);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, GRPC, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_part(stage, EXT_PROC_REQUEST_BODY, BYTES("\x01\0\0\0\x08" OLD_MESSAGE), true);
    assert_int_equal(stage_expect_refusal(stage, 415)->grpc_status, 12);
    stage_close(stage);
}

/* A proxy that accepts the mode and sends the body as a whole, with prefixes. */
static void duplex_grpc_mode_prefixed_body_is_replaced(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, GRPC, false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_part(stage, EXT_PROC_REQUEST_BODY, BYTES("\0\0\0\0\x08" OLD_MESSAGE), true);
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_int_equal(reply->kind, EXT_PROC_REQUEST_BODY);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, BYTES("\0\0\0\0\x08" NEW_MESSAGE)));
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, GRPC, false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_part(stage, EXT_PROC_REQUEST_BODY, BYTES("\0\0\0\0\x03\x0a\x01x"), true);
    stage_expect_refusal(stage, 404); /* there is no such model */
    stage_close(stage);
}

/* JSON is not a gRPC message either: it is answered as with BUFFERED. */
static void duplex_grpc_mode_json_body_is_replaced(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST "|content-length=52", false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_part(stage, EXT_PROC_REQUEST_BODY, old, true);
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, new));
    stage_assert_text(stage_set(reply, "content-length"), "47");
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST, false, STAGE_CONFIG(GRPC, NONE));
    expect_pick_at_headers(stage);
    stage_part(stage, EXT_PROC_REQUEST_BODY, plain, false); /* trailers follow */
    stage_expect_continue(stage, EXT_PROC_REQUEST_BODY);
    stage_trailers(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_expect_continue(stage, EXT_PROC_REQUEST_TRAILERS);
    stage_close(stage);
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
    stage_add_target(spec, "old", &target);
    struct stage *stage = stage_open(spec);
    for (size_t step = 1; step <= body.len; step++) {
        stage_request(stage, GRPC, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
        send_in_steps(stage, body, step, false);
        stage_pick(stage_next(stage));
        stage_expect_body(stage, EXT_PROC_REQUEST_BODY, expected, true);
        stage_end(stage);
        stage_stream(stage, &stage_limits);
    }
    stage_request(stage, GRPC, false, STAGE_CONFIG(BUFFERED, NONE));
    stage_expect_continue(stage, EXT_PROC_REQUEST_HEADERS);
    stage_part(stage, EXT_PROC_REQUEST_BODY, body, true);
    const struct ext_proc_client_response *reply = stage_next(stage);
    stage_pick(reply);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_REPLACED);
    assert_true(str_eq(reply->body, expected));
    stage_close(stage);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void duplex_body_timeout_is_408(void **state) {
    struct stage *stage = stage_open(stage_models());
    (void)state;
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, "{\"prompt\":", false);
    pick_session_on_timeout(stage->session);
    stage_expect_refusal(stage, 408);
    stage_end(stage);
    stage_stream(stage, &stage_limits);
    stage_request(stage, POST, false, STAGE_CONFIG(FULL_DUPLEX, NONE));
    stage_body(stage, PLAIN, false);
    stage_pick(stage_next(stage));
    stage_expect_body(stage, EXT_PROC_REQUEST_BODY, plain, false);
    pick_session_on_timeout(stage->session); /* no response is pending */
    stage_expect_no_message(stage);
    assert_false(stage->finished);
    stage_close(stage);
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
