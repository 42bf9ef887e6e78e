/* Responses written frame by frame: unusual but valid ones of servers and proxies, and invalid
 * ones. Wherever a response is split or truncated, each call ends once, with a reason, and nothing
 * leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc_session/session_fixture.h"

#include "codec/grpc/status.h"
#include "codec/http1/content_coding.h"

#define TRAILERS_OK "grpc-status: 0\n"

static const struct grpc_client_limits LIMITS = {.max_message_bytes = 100000,
                                                 .max_header_size = 4000};

/* After any response on stream 1 the connection still works. */
static void assert_serves(struct session_pair *pair) {
    struct frames frames = {0};
    struct call_record *record = session_pair_unary(pair, "/a.A/Next", STR("b"));
    session_pair_run_once(pair);
    int32_t id = 2 * (int32_t)pair->n - 1;
    frames_head(&frames, id, FRAMES_OK_HEAD, false);
    frames_message(&frames, id, false, STR("c"));
    frames_head(&frames, id, TRAILERS_OK, true);
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(record, ST_OK, 0, "");
    assert_int_equal(pair->session.n_open, 0);
    assert_false(grpc_client_session_is_done(&pair->session));
}

/* ---- one head -------------------------------------------------------------------------------- */

/* Responses of one HEADERS frame with END_STREAM. */
static const struct {
    const char *head;
    enum status status;
    int code;
    const char *part;
} HEADS[] = {
    {FRAMES_OK_HEAD "grpc-status: 5\ngrpc-message: no such model\n", ST_REFUSED, 5,
     "no such model"},
    {FRAMES_OK_HEAD "grpc-status: 3\ngrpc-message: caf%C3%A9 100%25 %zz\n", ST_REFUSED, 3,
     "caf\xc3\xa9 100% %zz"},
    {FRAMES_OK_HEAD "grpc-status: 8\n", ST_REFUSED, 8, "gave no reason"},
    {FRAMES_OK_HEAD "grpc-status: 99\ngrpc-message: what\n", ST_REFUSED, 2, "what"},
    {FRAMES_OK_HEAD "grpc-status: 0\n", ST_BAD_ANSWER, -1, "without a message"},
    {FRAMES_OK_HEAD, ST_BAD_ANSWER, -1, "without a status"},
    {FRAMES_OK_HEAD "grpc-status: 1\ngrpc-status: 2\n", ST_BAD_ANSWER, -1, "several statuses"},
    {FRAMES_OK_HEAD "grpc-status: OK\n", ST_BAD_ANSWER, -1, "\"OK\""},
    {FRAMES_OK_HEAD "grpc-status: -1\n", ST_BAD_ANSWER, -1, "\"-1\""},
    {FRAMES_OK_HEAD "grpc-status: 5\nx-bin: !!\n", ST_BAD_ANSWER, -1, "x-bin"},
    {":status: 200\ncontent-type: text/html\n", ST_BAD_ANSWER, -1, "\"text/html\""},
    {":status: 200\n", ST_BAD_ANSWER, -1, "content type is \"\""},
    {":status: 404\ncontent-type: text/html\n", ST_REFUSED, 12, "HTTP 404"},
    {":status: 503\n", ST_REFUSED, 14, "HTTP 503"},
    {":status: 401\n", ST_REFUSED, 16, "HTTP 401"},
    {":status: 302\nlocation: /elsewhere\n", ST_REFUSED, 2, "HTTP 302"},
    /* a proxy's own response to a gRPC call */
    {":status: 503\ncontent-type: application/grpc\ngrpc-status: 14\ngrpc-message: no upstream\n",
     ST_REFUSED, 14, "no upstream"},
    {FRAMES_OK_HEAD "grpc-encoding: zstd\n", ST_BAD_ANSWER, -1, "\"zstd\""},
};

static void response_trailers_only_heads_match_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(HEADS) / sizeof(*HEADS); i++) {
        for (int streams = 0; streams < 2; streams++) {
            struct session_pair *pair = session_pair_open_raw(&LIMITS);
            struct frames frames = {0};
            struct call_record *record = streams ? session_pair_stream(pair, "/a.A/B")
                                                 : session_pair_unary(pair, "/a.A/B", STR("a"));
            frames_head(&frames, 1, HEADS[i].head, true);
            session_pair_receive_frames(pair, &frames);
            if (streams && HEADS[i].code == -1 && strstr(HEADS[i].part, "without a message")) {
                assert_call_ended(record, ST_OK, 0, ""); /* a streaming response may be empty */
            } else {
                assert_call_ended(record, HEADS[i].status, HEADS[i].code, HEADS[i].part);
            }
            assert_false(record->not_processed);
            assert_int_equal(record->n_heads, 0);
            assert_serves(pair);
            session_pair_free(pair);
        }
    }
}

/* The body of a response that is not gRPC is not waited for. */
static void response_html_page_fails_without_waiting_for_body(void **state) {
    struct session_pair *pair = session_pair_open_raw(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    frames_head(&frames, 1, ":status: 502\ncontent-type: text/html\n", false);
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(record, ST_REFUSED, GRPC_CODE_UNAVAILABLE, "HTTP 502");
    assert_non_null(session_pair_find_sent(pair, NGHTTP2_RST_STREAM, 1, 0).ptr);
    frames_frame(&frames, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, STR("<html>"));
    session_pair_receive_frames(pair, &frames);
    assert_serves(pair);
    session_pair_free(pair);
}

static void response_informational_heads_are_skipped(void **state) {
    struct session_pair *pair = session_pair_open_raw(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    frames_head(&frames, 1, ":status: 100\n", false);
    frames_head(&frames, 1, ":status: 103\nlink: x\n", false);
    frames_head(&frames, 1, FRAMES_OK_HEAD "test: final\n", false);
    frames_message(&frames, 1, false, STR("b"));
    frames_head(&frames, 1, TRAILERS_OK, true);
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(record, ST_OK, 0, "");
    assert_string_equal(record->field, "final");
    assert_int_equal(record->n_heads, 1);
    assert_serves(pair);
    session_pair_free(pair);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Bytes between a valid head and valid trailers. */
static const struct {
    struct str data;
    enum status status;
    const char *part;
} MESSAGES[] = {
    {{"\0\0\0\0\1a", 6}, ST_OK, ""},
    {{"\0\0\0\0\0", 5}, ST_OK, ""},
    {{"", 0}, ST_BAD_ANSWER, "without a message"},
    {{"\0\0\0", 3}, ST_BAD_ANSWER, "within a message"},
    {{"\0\0\0\0\2a", 6}, ST_BAD_ANSWER, "within a message"},
    {{"\0\0\0\0\1a\0", 7}, ST_BAD_ANSWER, "several messages"},
    {{"\0\0\0\0\1a\0\0\0\0\1b", 12}, ST_BAD_ANSWER, "several messages"},
    {{"\2\0\0\0\1a", 6}, ST_BAD_ANSWER, "flag"},
    {{"\xff\0\0\0\1a", 6}, ST_BAD_ANSWER, "flag"},
    {{"\1\0\0\0\1a", 6}, ST_BAD_ANSWER, "compressed"},
    {{"\0\x7f\xff\xff\xff", 5}, ST_BODY_TOO_LARGE, "100000"},
    {{"\0\xff\xff\xff\xff", 5}, ST_BODY_TOO_LARGE, "100000"},
    {{"\0\0\1\x86\xa1", 5}, ST_BODY_TOO_LARGE, "100000"}, /* one more than allowed */
};

static void response_messages_match_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(MESSAGES) / sizeof(*MESSAGES); i++) {
        for (int pace = 0; pace < N_PACES; pace++) {
            struct session_pair *pair = session_pair_open_raw(&LIMITS);
            struct frames frames = {0};
            pair->pace = (enum pace)pace;
            struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
            frames_head(&frames, 1, FRAMES_OK_HEAD, false);
            frames_frame(&frames, NGHTTP2_DATA, 0, 1, MESSAGES[i].data);
            frames_head(&frames, 1, TRAILERS_OK, true);
            session_pair_receive_frames(pair, &frames);
            assert_call_ended(record, MESSAGES[i].status, MESSAGES[i].status == ST_OK ? 0 : -1,
                              MESSAGES[i].part);
            assert_serves(pair);
            session_pair_free(pair);
        }
    }
}

static struct str compressed(enum http_coding coding, struct str text) {
    static char out[200000];
    size_t n_out = 0;
    struct deflate *codec = deflate_new(coding, 9);
    assert_true(deflate_step(codec, &text, true, out, sizeof(out), &n_out));
    deflate_free(codec);
    return str_make(out, n_out);
}

/* Compressed as the head says; truncated; inflating over the limit; and uncompressed, which is
 * allowed for each message. */
static void response_compressed_messages_are_inflated(void **state) {
    static char zeros[200000];
    static const char *const NAMES[] = {[HTTP_GZIP] = "gzip", [HTTP_DEFLATE] = "deflate"};
    (void)state;
    for (enum http_coding coding = HTTP_GZIP; coding <= HTTP_DEFLATE; coding++) {
        struct session_pair *pair = session_pair_open_raw(&LIMITS);
        struct frames frames = {0};
        char head[200];
        snprintf(head, sizeof(head), FRAMES_OK_HEAD "grpc-encoding: %s\n", NAMES[coding]);
        struct call_record *record = session_pair_stream(pair, "/a.A/B");
        struct call_record *cut = session_pair_unary(pair, "/a.A/B", STR("a"));
        struct call_record *bomb = session_pair_unary(pair, "/a.A/B", STR("a"));
        for (int32_t id = 1; id <= 5; id += 2) {
            frames_head(&frames, id, head, false);
        }
        frames_message(&frames, 1, true, compressed(coding, STR("compressed ")));
        frames_message(&frames, 1, false, STR("plain "));
        frames_message(&frames, 1, true, compressed(coding, str_make(zeros, 100000)));
        frames_head(&frames, 1, TRAILERS_OK, true);
        struct str half = compressed(coding, str_make(zeros, 1000));
        half.len /= 2;
        frames_message(&frames, 3, true, half);
        frames_message(&frames, 5, true, compressed(coding, str_make(zeros, 100001)));
        session_pair_receive_frames(pair, &frames);
        assert_call_ended(record, ST_OK, 0, "");
        assert_int_equal(record->n_messages, 3);
        assert_memory_equal(record->in, "compressed plain \0", 18);
        assert_int_equal(record->in_len, 17 + 100000);
        assert_call_ended(cut, ST_BAD_ANSWER, -1, "the server's message");
        assert_call_ended(bomb, ST_BODY_TOO_LARGE, -1, "100000");
        assert_serves(pair);
        session_pair_free(pair);
    }
}

/* ---- end of a stream ------------------------------------------------------------------------- */

static void response_end_without_trailers_is_bad_answer(void **state) {
    struct session_pair *pair = session_pair_open_raw(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    frames_head(&frames, 1, FRAMES_OK_HEAD, false);
    frames_message(&frames, 1, false, STR("b"));
    frames_frame(&frames, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, STR(""));
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(record, ST_BAD_ANSWER, -1, "without a status");
    assert_serves(pair);
    session_pair_free(pair);
}

/* A reset at each point of a response; after its end it has no effect. */
static void response_reset_maps_to_grpc_code(void **state) {
    static const struct {
        uint32_t reset;
        int code;
        bool not_processed;
    } CASES[] = {
        {NGHTTP2_NO_ERROR, 13, false},
        {NGHTTP2_PROTOCOL_ERROR, 13, false},
        {NGHTTP2_REFUSED_STREAM, 14, true},
        {NGHTTP2_CANCEL, 1, false},
        {NGHTTP2_ENHANCE_YOUR_CALM, 8, false},
        {NGHTTP2_INADEQUATE_SECURITY, 7, false},
        {0xdeadbeef, 13, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        for (int point = 0; point < 4; point++) {
            struct session_pair *pair = session_pair_open_raw(&LIMITS);
            struct frames frames = {0};
            struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
            if (point > 0) {
                frames_head(&frames, 1, FRAMES_OK_HEAD, false);
            }
            if (point > 1) {
                frames_message(&frames, 1, false, STR("b"));
            }
            if (point > 2) {
                frames_head(&frames, 1, TRAILERS_OK, true);
            }
            frames_u32(&frames, NGHTTP2_RST_STREAM, 1, CASES[i].reset);
            session_pair_receive_frames(pair, &frames);
            if (point > 2) {
                assert_call_ended(record, ST_OK, 0, "");
            } else {
                assert_call_ended(record, ST_REFUSED, CASES[i].code, "the server");
                assert_int_equal(record->not_processed, CASES[i].not_processed);
            }
            assert_serves(pair);
            session_pair_free(pair);
        }
    }
}

/* ---- GOAWAY ---------------------------------------------------------------------------------- */

static void goaway(struct frames *frames, int32_t last, uint32_t code, const char *text) {
    struct frames payload = {0};
    const char head[8] = {(char)(last >> 24), (char)(last >> 16), (char)(last >> 8), (char)last,
                          (char)(code >> 24), (char)(code >> 16), (char)(code >> 8), (char)code};
    frames_add(&payload, head, sizeof(head));
    frames_add(&payload, text, strlen(text));
    frames_frame(frames, NGHTTP2_GOAWAY, 0, 0, str_make(payload.data, payload.len));
    free(payload.data);
}

/* The server will answer the calls up to the last stream id; the others may be retried
 * elsewhere. */
static void goaway_fails_unprocessed_calls_as_retriable(void **state) {
    struct session_pair *pair = session_pair_open_raw(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *begun = session_pair_unary(pair, "/a.A/B", STR("a"));
    struct call_record *not_begun = session_pair_unary(pair, "/a.A/B", STR("a"));
    goaway(&frames, 1, NGHTTP2_NO_ERROR, "");
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(not_begun, ST_REFUSED, GRPC_CODE_UNAVAILABLE, "did not begin");
    assert_true(not_begun->not_processed);
    assert_int_equal(begun->n_ended, 0);
    struct call_record *waits = session_pair_unary(pair, "/a.A/B", STR("a"));
    session_pair_run_once(pair);
    assert_int_equal(waits->n_ended, 0);
    assert_false(grpc_client_session_is_done(&pair->session));
    frames_head(&frames, 1, FRAMES_OK_HEAD, false);
    frames_message(&frames, 1, false, STR("b"));
    frames_head(&frames, 1, TRAILERS_OK, true);
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(begun, ST_OK, 0, "");
    assert_true(grpc_client_session_is_done(&pair->session));
    session_pair_free(pair);
}

/* ... and the GOAWAY's error is the reason of the calls that it does not answer. */
static void goaway_with_error_is_reason_of_open_calls(void **state) {
    struct session_pair *pair = session_pair_open_raw(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    goaway(&frames, 1, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
    session_pair_receive_frames(pair, &frames);
    assert_int_equal(record->n_ended, 0);
    session_pair_close(pair, "the connection was closed");
    assert_call_ended(record, ST_IO, -1, "ENHANCE_YOUR_CALM: too_many_pings");
    session_pair_free(pair);
}

/* ---- connection errors ----------------------------------------------------------------------- */

/* First bytes of a server of another protocol, or a broken one. */
static const struct {
    struct str bytes;
    const char *part;
} CONNECTIONS[] = {
    {{"HTTP/1.1 400 Bad Request\r\n\r\n", 28}, "HTTP/1.1"},
    {{"HTTP/1.0 505 No\r\n\r\n", 19}, "HTTP/1.1"},
    {{"\x15\x03\x03\x00\x02\x02\x46 ", 8}, "TLS"},
    {{"220 mail.example ESMTP\r\n", 24}, "HTTP/2"},
    {{"\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0", 18}, "HTTP/2"}, /* DATA first */
    {{"\xff\xff\xff\4\0\0\0\0\0", 9}, "HTTP/2"},
    {{"\0\0\5\4\0\0\0\0\0aaaaa", 14}, "HTTP/2"},              /* SETTINGS of five bytes */
    {{"\0\0\0\4\0\0\0\0\1\0\0\0\0\0\0\0\0\0", 18}, "HTTP/2"}, /* SETTINGS on a stream */
};

static void connection_of_other_protocol_is_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(CONNECTIONS) / sizeof(*CONNECTIONS); i++) {
        for (int pace = 0; pace < N_PACES; pace++) {
            struct session_pair *pair = session_pair_new(&LIMITS);
            struct frames frames = {0};
            pair->pace = (enum pace)pace;
            struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
            frames_add(&frames, CONNECTIONS[i].bytes.ptr, CONNECTIONS[i].bytes.len);
            session_pair_receive_frames(pair, &frames);
            assert_true(grpc_client_session_is_done(&pair->session));
            session_pair_close(pair, "closed");
            assert_call_ended(record, ST_BAD_ANSWER, -1, CONNECTIONS[i].part);
            session_pair_free(pair);
        }
    }
}

/* Invalid frames after a valid SETTINGS. */
static void settings_ack_flood(struct frames *frames) {
    for (int i = 0; i < 20000; i++) {
        frames_frame(frames, NGHTTP2_PING, 0, 0, STR("abcdefgh"));
    }
}

static void header_bomb(struct frames *frames) {
    struct frames block = {0};
    static char value[100];
    memset(value, 'v', sizeof(value));
    frames_add(&block, "\x40\1a\x64", 4); /* RFC 7541, 6.2.1: added to the dynamic table … */
    frames_add(&block, value, sizeof(value));
    for (int i = 0; i < 5000; i++) {
        frames_add(&block, "\xbe", 1); /* … and indexed with one byte */
    }
    frames_frame(frames, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1,
                 str_make(block.data, block.len));
    free(block.data);
}

static void broken_hpack(struct frames *frames) {
    frames_frame(frames, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, STR("\xff\xff\xff\xff\x7f"));
}

static void window_overflow(struct frames *frames) {
    frames_u32(frames, NGHTTP2_WINDOW_UPDATE, 0, 0x7fffffff);
}

static void push_promise(struct frames *frames) {
    frames_frame(frames, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, STR("\0\0\0\2\x88"));
}

static void idle_stream(struct frames *frames) {
    frames_frame(frames, NGHTTP2_DATA, 0, 99, STR("abc"));
}

static void other_frame_in_head(struct frames *frames) {
    frames_frame(frames, NGHTTP2_HEADERS, 0, 1, STR("\x88"));
    frames_frame(frames, NGHTTP2_PING, 0, 0, STR("abcdefgh"));
}

static void connection_breaking_http2_fails_calls(void **state) {
    static void (*const BREAKS[])(struct frames * frames) = {
        settings_ack_flood, header_bomb, broken_hpack,        window_overflow,
        push_promise,       idle_stream, other_frame_in_head,
    };
    (void)state;
    for (size_t i = 0; i < sizeof(BREAKS) / sizeof(*BREAKS); i++) {
        struct session_pair *pair = session_pair_open_raw(&LIMITS);
        struct frames frames = {0};
        struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
        BREAKS[i](&frames);
        session_pair_receive_frames(pair, &frames);
        if (!grpc_client_session_is_done(&pair->session)) {
            fail_msg("the connection goes on after break %zu", i);
        }
        assert_non_null(session_pair_find_sent(pair, NGHTTP2_GOAWAY, 0, 0).ptr);
        session_pair_close(pair, "closed");
        assert_call_ended(record, ST_BAD_ANSWER, -1, "server");
        session_pair_free(pair);
    }
}

/* A push promise sent before the server has seen ENABLE_PUSH 0 is refused; the connection stays
 * open. */
static void push_promise_before_settings_ack_is_refused(void **state) {
    struct session_pair *pair = session_pair_new(&LIMITS);
    struct frames frames = {0};
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    frames_settings(&frames);
    frames_frame(&frames, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1,
                 STR("\0\0\0\2\x82\x84\x86\x41\1a"));
    frames_head(&frames, 2, ":status: 200\n", false);
    frames_frame(&frames, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 2, STR("pushed"));
    frames_head(&frames, 1, FRAMES_OK_HEAD, false);
    frames_message(&frames, 1, false, STR("b"));
    frames_head(&frames, 1, TRAILERS_OK, true);
    session_pair_receive_frames(pair, &frames);
    assert_call_ended(record, ST_OK, 0, "");
    assert_non_null(session_pair_find_sent(pair, NGHTTP2_RST_STREAM, 2, 0).ptr);
    assert_serves(pair);
    session_pair_free(pair);
}

/* ---- limits of a head ------------------------------------------------------------------------ */

static void response_head_over_limit_is_header_too_large(void **state) {
    (void)state;
    for (int in_trailers = 0; in_trailers < 2; in_trailers++) {
        struct session_pair *pair = session_pair_open_raw(&LIMITS);
        struct frames frames = {0};
        char text[8000] = FRAMES_OK_HEAD;
        size_t len = in_trailers ? 0 : strlen(text);
        for (size_t i = 0; i < 60; i++) {
            len += (size_t)snprintf(text + len, sizeof(text) - len, "name%zu: %060d\n", i, 0);
        }
        struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
        if (in_trailers) {
            frames_head(&frames, 1, FRAMES_OK_HEAD, false);
            frames_message(&frames, 1, false, STR("b"));
        }
        frames_head(&frames, 1, text, in_trailers);
        session_pair_receive_frames(pair, &frames);
        assert_call_ended(record, ST_HEADER_TOO_LARGE, -1, "4000 bytes");
        assert_serves(pair);
        session_pair_free(pair);
    }
}

/* ---- every split and every byte ------------------------------------------------------------ */

/* Interleaved responses to a unary and a streaming call. */
static void good_answers(struct frames *frames) {
    frames_settings(frames);
    frames_head(frames, 1, FRAMES_OK_HEAD "test: a\n", false);
    frames_head(frames, 3, FRAMES_OK_HEAD "grpc-encoding: gzip\n", false);
    frames_message(frames, 3, false, STR("first"));
    frames_message(frames, 1, false, STR("only"));
    frames_message(frames, 3, true, compressed(HTTP_GZIP, STR("second")));
    frames_frame(frames, NGHTTP2_PING, 0, 0, STR("12345678"));
    frames_head(frames, 3, "grpc-status: 9\ngrpc-message: no more\nreason-bin: AAEC\n", true);
    frames_head(frames, 1, TRAILERS_OK, true);
}

static struct call_record *ask_both(struct session_pair *pair) {
    struct call_record *record = session_pair_unary(pair, "/a.A/B", STR("a"));
    session_pair_stream(pair, "/a.A/C");
    session_pair_run_once(pair);
    return record;
}

static void response_split_at_every_byte_is_same(void **state) {
    struct frames all = {0};
    (void)state;
    good_answers(&all);
    for (size_t i = 0; i <= all.len; i++) {
        struct session_pair *pair = session_pair_new(&LIMITS);
        const struct call_record *record = ask_both(pair);
        session_pair_feed(pair, all.data, i);
        session_pair_feed(pair, all.data + i, all.len - i);
        assert_call_ended(&record[0], ST_OK, 0, "");
        assert_memory_equal(record[0].in, "only", 4);
        assert_call_ended(&record[1], ST_REFUSED, GRPC_CODE_FAILED_PRECONDITION, "no more");
        assert_memory_equal(record[1].in, "firstsecond", 11);
        assert_memory_equal(record[1].trailer, "\0\1\2", 3);
        session_pair_free(pair);
    }
    free(all.data);
}

/* The connection is lost after each byte. */
static void response_connection_lost_at_every_byte_is_io_error(void **state) {
    struct frames all = {0};
    (void)state;
    good_answers(&all);
    for (size_t i = 0; i < all.len; i++) {
        struct session_pair *pair = session_pair_new(&LIMITS);
        const struct call_record *record = ask_both(pair);
        session_pair_feed(pair, all.data, i);
        session_pair_close(pair, "the connection was lost");
        assert_call_ended(&record[0], ST_IO, -1, "lost"); /* its trailers are the last bytes */
        assert_int_equal(record[1].n_ended, 1);
        session_pair_free(pair);
    }
    free(all.data);
}

/* Each byte is changed, by flipping bits and by replacement. */
static void response_every_byte_corrupted_never_crashes(void **state) {
    static const char MASKS[] = {1, 4, 32, (char)0x80, (char)0xff};
    struct frames all = {0};
    (void)state;
    good_answers(&all);
    for (size_t i = 0; i < all.len; i++) {
        for (size_t k = 0; k < sizeof(MASKS); k++) {
            struct session_pair *pair = session_pair_new(&LIMITS);
            ask_both(pair);
            all.data[i] = (char)(all.data[i] ^ MASKS[k]);
            session_pair_feed(pair, all.data, all.len);
            all.data[i] = (char)(all.data[i] ^ MASKS[k]);
            while (session_pair_run_once(pair)) {
            }
            session_pair_free(pair);
        }
    }
    free(all.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_trailers_only_heads_match_table),
        cmocka_unit_test(response_html_page_fails_without_waiting_for_body),
        cmocka_unit_test(response_informational_heads_are_skipped),
        cmocka_unit_test(response_messages_match_table),
        cmocka_unit_test(response_compressed_messages_are_inflated),
        cmocka_unit_test(response_end_without_trailers_is_bad_answer),
        cmocka_unit_test(response_reset_maps_to_grpc_code),
        cmocka_unit_test(goaway_fails_unprocessed_calls_as_retriable),
        cmocka_unit_test(goaway_with_error_is_reason_of_open_calls),
        cmocka_unit_test(connection_of_other_protocol_is_rejected),
        cmocka_unit_test(connection_breaking_http2_fails_calls),
        cmocka_unit_test(push_promise_before_settings_ack_is_refused),
        cmocka_unit_test(response_head_over_limit_is_header_too_large),
        cmocka_unit_test(response_split_at_every_byte_is_same),
        cmocka_unit_test(response_connection_lost_at_every_byte_is_io_error),
        cmocka_unit_test(response_every_byte_corrupted_never_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
