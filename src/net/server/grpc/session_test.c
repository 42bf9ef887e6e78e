/* Calls of each kind over a session with every piece size; an invalid call gets an error and the
 * connection stays open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/grpc/session_fixture.h"

#include "codec/http1/content_coding.h"

static void assert_answer(const struct client_call *call, size_t n, struct str expected) {
    struct str got = client_answer(call, n, NULL);
    assert_int_equal(got.len, expected.len);
    assert_memory_equal(got.ptr, expected.ptr, expected.len);
}

static void assert_ok(const struct client_call *call) {
    assert_string_equal(call->status, "200");
    assert_string_equal(call->grpc_status, "0");
    assert_string_equal(call->message, "");
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_NO_ERROR);
}

static void assert_failed(const struct client_call *call, const char *status, const char *part) {
    assert_string_equal(call->status, "200");
    if (strcmp(call->grpc_status, status) != 0 || !strstr(call->message, part)) {
        fail_msg("expected %s, \"%s\" in %s, \"%s\"", status, part, call->grpc_status,
                 call->message);
    }
    assert_true(call->closed);
}

/* Runs a test with each piece size. */
static void at_each_pace(void (*test)(struct grpc_fixture *fixture)) {
    for (int pace = 0; pace < N_PACES; pace++) {
        struct grpc_fixture *fixture = grpc_fixture_open();
        fixture->pace = (enum pace)pace;
        test(fixture);
        grpc_fixture_free(fixture);
    }
}

/* ---- kinds of calls -------------------------------------------------------------------------- */

static void unary(struct grpc_fixture *fixture) {
    static const size_t SIZES[] = {0, 1, 5, 1000, 1024, 1025, 16379, 16384, 70000};
    enum { N = sizeof(SIZES) / sizeof(SIZES[0]) };
    struct client_call *calls[N];
    for (size_t i = 0; i < N; i++) {
        calls[i] = client_unary(&fixture->client, "/t.T/Echo", varied_text(SIZES[i]));
    }
    grpc_fixture_run(fixture);
    for (size_t i = 0; i < N; i++) {
        assert_ok(calls[i]);
        assert_answer(calls[i], 0, varied_text(SIZES[i]));
        assert_null(client_answer(calls[i], 1, NULL).ptr);
    }
    assert_int_equal(fixture->service.n_released, N);
    assert_int_equal(fixture->n_alive, 0);
    for (size_t i = 0; i < N; i++) {
        const struct recorded_call *recorded = &fixture->service.calls[i];
        assert_true(recorded->n_messages == 1 && recorded->n_ended == 1 &&
                    recorded->n_cancelled == 0);
    }
}

static void unary_call_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(unary);
}

/* All calls answered in one iteration leave in one write. */
static void responses_of_one_iteration_leave_in_one_write(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    grpc_fixture_run(fixture);
    for (int i = 0; i < 50; i++) {
        client_unary(&fixture->client, "/t.T/Echo", varied_text(100));
    }
    size_t before = fixture->n_writes;
    struct str all = {0};
    char bytes[50000];
    const uint8_t *data;
    for (ssize_t n; (n = nghttp2_session_mem_send(fixture->client.h2, &data)) > 0;) {
        memcpy(bytes + all.len, data, (size_t)n);
        all.len += (size_t)n;
    }
    grpc_fixture_feed(fixture, bytes, all.len);
    grpc_fixture_run(fixture);
    assert_int_equal(fixture->n_writes, before + 1);
    assert_ok(&fixture->client.calls[49]);
    grpc_fixture_free(fixture);
}

static void bidi(struct grpc_fixture *fixture) {
    struct client_call *call = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    grpc_fixture_run(fixture);
    for (size_t i = 0; i < 20; i++) {
        struct str text = varied_text(i * i * i * 10);
        client_message(&fixture->client, call, false, text.ptr, text.len);
        if (i % 3 == 0) {
            grpc_fixture_run(fixture);
            assert_answer(call, i, text);
        }
    }
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    for (size_t i = 0; i < 20; i++) {
        assert_answer(call, i, varied_text(i * i * i * 10));
    }
    assert_ok(call);
    assert_int_equal(fixture->service.calls[0].n_messages, 20);
    assert_int_equal(fixture->service.calls[0].n_half_closed, 1);
    assert_int_equal(fixture->service.calls[0].n_ended, 1);
}

static void bidi_call_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(bidi);
}

static void sum(struct grpc_fixture *fixture) {
    struct client_call *call = client_begin(&fixture->client, "/t.T/Sum", NULL);
    struct client_call *empty = client_begin(&fixture->client, "/t.T/Sum", NULL);
    for (size_t i = 0; i < 100; i++) {
        client_message(&fixture->client, call, false, varied_text(i).ptr, i);
    }
    client_end(&fixture->client, call);
    client_end(&fixture->client, empty);
    grpc_fixture_run(fixture);
    assert_ok(call);
    assert_answer(call, 0, STR("4950"));
    assert_ok(empty);
    assert_answer(empty, 0, STR("0"));
}

static void client_streaming_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(sum);
}

static void many(struct grpc_fixture *fixture) {
    struct client_call *call = client_unary(&fixture->client, "/t.T/Many", STR("\xc8"));
    struct client_call *few = client_unary(&fixture->client, "/t.T/Many", STR("\3"));
    grpc_fixture_run(fixture);
    assert_ok(call);
    assert_ok(few);
    assert_int_equal(call->in_len, 200 * (200000 + GRPC_PREFIX_BYTES));
    assert_int_equal(few->in_len, 3 * (3000 + GRPC_PREFIX_BYTES));
}

static void server_streaming_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(many);
}

static void later(struct grpc_fixture *fixture) {
    struct client_call *first = client_unary(&fixture->client, "/t.T/Later", STR("a"));
    struct client_call *second = client_unary(&fixture->client, "/t.T/Later", STR("b"));
    grpc_fixture_run(fixture);
    assert_false(first->closed || second->closed);
    struct piece piece = {"later", 5};
    grpc_send(fixture->service.calls[1].call, &piece, 1, NULL, NULL);
    recorded_call_finish(&fixture->service.calls[1], NULL);
    grpc_fixture_run(fixture);
    assert_ok(second);
    assert_answer(second, 0, STR("later"));
    assert_false(first->closed);
    recorded_call_finish(&fixture->service.calls[0], NULL); /* without a message */
    grpc_fixture_run(fixture);
    assert_ok(first);
    assert_int_equal(first->in_len, 0);
}

static void deferred_response_at_every_pace_is_sent(void **state) {
    (void)state;
    at_each_pace(later);
}

/* The last bytes of its messages have a frame already, for which the output had no capacity, when
 * the method finishes: the status follows them. */
static void status_after_reserved_bytes_is_sent(void **state) {
    (void)state;
    enum { MESSAGES = 65, BYTES = 1000 }; /* four frames; the output has capacity for three */
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    grpc_fixture_run(fixture);
    struct recorded_call *recorded = &fixture->service.calls[0];
    struct str text = varied_text(BYTES);
    for (int i = 0; i < MESSAGES; i++) {
        struct piece piece = {text.ptr, text.len};
        grpc_send(recorded->call, &piece, 1, NULL, NULL);
    }
    size_t n_bytes = grpc_queued_bytes(recorded->call);
    assert_true(grpc_session_collect_output(&fixture->session, fixture->output));
    const struct grpc_stream *stream = (const struct grpc_stream *)recorded->call;
    assert_true(stream->out.n_bytes < n_bytes && stream->out.n_bytes == stream->out.n_reserved &&
                stream->out.n_reserved > 0);
    recorded_call_finish(recorded, NULL);
    grpc_fixture_deliver(fixture);
    grpc_fixture_run(fixture);
    assert_int_equal(call->in_len, MESSAGES * (BYTES + GRPC_PREFIX_BYTES));
    assert_answer(call, MESSAGES - 1, text);
    assert_ok(call);
    grpc_fixture_free(fixture);
}

static void failing(struct grpc_fixture *fixture) {
    struct client_call *call = client_unary(&fixture->client, "/t.T/Fail", STR("a"));
    grpc_fixture_run(fixture);
    assert_failed(call, "5", "no model \"%C3%A4\" (100%25 sure)");
    assert_string_equal(call->trailer, "AAEC");
    assert_int_equal(call->in_len, 0);
}

static void failing_call_at_every_pace_reports_status(void **state) {
    (void)state;
    at_each_pace(failing);
}

/* The requested byte is aligned, wherever the message is split. */
static void aligned(struct grpc_fixture *fixture) {
    static const size_t AT[] = {0, 1, 63, 64, 500, 1000};
    for (size_t i = 0; i < sizeof(AT) / sizeof(AT[0]); i++) {
        char text[40000];
        memset(text, '.', sizeof(text));
        text[AT[i]] = 'x';
        size_t n = i % 2 ? sizeof(text) : AT[i] + 1;
        struct client_call *call =
            client_unary(&fixture->client, "/t.T/Aligned", str_make(text, n));
        grpc_fixture_run(fixture);
        assert_ok(call);
        assert_answer(call, 0, str_make(text, n));
        assert_true(fixture->service.calls[i].aligned);
    }
}

static void message_field_is_aligned_to_64_bytes(void **state) {
    (void)state;
    at_each_pace(aligned);
}

/* ---- invalid calls --------------------------------------------------------------------------- */

static const struct bad_head {
    const char *path;
    const char *fields[8];
    const char *status, *part;
} BAD_HEADS[] = {
    {"/t.T/Nothing", {NULL}, "12", "there is no method /t.T/Nothing"},
    {"/", {NULL}, "12", "there is no method /"},
    {"/t.T/Echo", {"grpc-encoding", "snappy"}, "12", "gzip or deflate, got \"snappy\""},
    {"/t.T/Echo", {"grpc-timeout", "1"}, "3", "grpc-timeout"},
    {"/t.T/Echo", {"grpc-timeout", "123456789S"}, "3", "grpc-timeout"},
    {"/t.T/Echo", {"grpc-timeout", "-1S"}, "3", "grpc-timeout"},
    {"/t.T/Echo", {"a-bin", "????"}, "3", "a-bin: binary metadata is not base64"},
    {"/t.T/Echo", {"a-bin", "A"}, "3", "a-bin"},
};

static void bad_heads(struct grpc_fixture *fixture) {
    for (size_t i = 0; i < sizeof(BAD_HEADS) / sizeof(BAD_HEADS[0]); i++) {
        const struct bad_head *row = &BAD_HEADS[i];
        struct client_call *call = client_begin(&fixture->client, row->path, row->fields);
        client_message(&fixture->client, call, false, "abc", 3);
        client_end(&fixture->client, call);
        grpc_fixture_run(fixture);
        assert_failed(call, row->status, row->part);
        assert_int_equal(fixture->service.n, 0);
    }
    assert_false(fixture->client.goaway);
}

static void bad_heads_are_refused(void **state) {
    (void)state;
    at_each_pace(bad_heads);
}

/* A request that is not gRPC gets an HTTP response. */
static void plain_http_request_gets_http_response(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    static const struct {
        const char *method, *type, *status, *body;
    } ROWS[] = {
        {"GET", "application/grpc", "405", "expected POST, got GET"},
        {"POST", "application/json", "415", "expected the content type application/grpc"},
        {"POST", "application/grpc+json", "415", "--http"},
        {"POST", "application/grpc+proto", "200", NULL},
        {"POST", "application/grpc;charset=utf-8", "200", NULL},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const nghttp2_nv nv[] = {client_nv(":method", ROWS[i].method), client_nv(":scheme", "http"),
                                 client_nv(":path", "/t.T/Fail"), client_nv(":authority", "test"),
                                 client_nv("content-type", ROWS[i].type)};
        struct client_call *call = &fixture->client.calls[fixture->client.n++];
        call->id = nghttp2_submit_request(fixture->client.h2, NULL, nv, 5, NULL, NULL);
        grpc_fixture_run(fixture);
        assert_string_equal(call->status, ROWS[i].status);
        assert_true(call->closed);
        if (ROWS[i].body) {
            char body[200];
            snprintf(body, sizeof(body), "%.*s", (int)call->in_len, call->in);
            assert_non_null(strstr(body, ROWS[i].body));
        }
    }
    assert_int_equal(fixture->service.n, 0); /* a unary method does not start without a message */
    grpc_fixture_free(fixture);
}

/* Its response waits for the end of the request, up to the body timeout. */
static void plain_http_response_waits_for_request_end(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    const nghttp2_nv nv[] = {client_nv(":method", "PUT"), client_nv(":scheme", "http"),
                             client_nv(":path", "/"), client_nv(":authority", "test")};
    nghttp2_data_provider provider = {.read_callback = client_on_read};
    for (int i = 0; i < 2; i++) {
        struct client_call *call = &fixture->client.calls[fixture->client.n++];
        call->id = nghttp2_submit_request(fixture->client.h2, NULL, nv, 4, &provider, NULL);
        client_add(&fixture->client, call, varied_text(200000).ptr, 200000);
        grpc_fixture_run(fixture);
        assert_int_equal(call->out_at, 200000); /* dropped, and the window returned */
        assert_string_equal(call->status, "");
        if (i == 0) {
            client_end(&fixture->client, call);
        } else {
            grpc_fixture_advance_clock(fixture, 20 * (uint64_t)SECOND);
        }
        grpc_fixture_run(fixture);
        assert_string_equal(call->status, "405");
        assert_true(call->closed);
        assert_int_equal(call->code, NGHTTP2_NO_ERROR);
    }
    grpc_fixture_free(fixture);
}

/* Invalid messages of a unary call, as bytes. */
static const struct bad_message {
    struct str bytes;
    const char *coding, *status, *part;
} BAD_MESSAGES[] = {
    {{"", 0}, NULL, "3", "takes one message, got none"},
    {{"\0\0\0\0", 4}, NULL, "3", "within a message"},
    {{"\0\0\0\0\2a", 6}, NULL, "3", "within a message"},
    {{"\0\0\0\0\1ab", 7}, NULL, "3", "takes one message, got more"},
    {{"\0\0\0\0\0\0\0\0\0\0", 10}, NULL, "3", "takes one message, got more"},
    {{"\2\0\0\0\1a", 6}, NULL, "3", "flag of a message is 2"},
    {{"\1\0\0\0\1a", 6}, NULL, "3", "grpc-encoding names no coding"},
    {{"\1\0\0\0\1a", 6}, "identity", "3", "grpc-encoding names no coding"},
    {{"\1\0\0\0\1a", 6}, "gzip", "3", ""},
    {{"\1\0\0\0\0", 5}, "gzip", "3", ""},
    {{"\0\x80\0\0\0a", 6}, NULL, "8", "at most 1048576 bytes (--max-body-size), got one of"},
    {{"\0\xff\xff\xff\xff", 5}, NULL, "8", "--max-body-size"},
    {{"\0\0\x10\0\1", 5}, NULL, "8", "got one of 1048577"},
};

static void bad_messages(struct grpc_fixture *fixture) {
    for (size_t i = 0; i < sizeof(BAD_MESSAGES) / sizeof(BAD_MESSAGES[0]); i++) {
        const struct bad_message *row = &BAD_MESSAGES[i];
        const char *fields[] = {row->coding ? "grpc-encoding" : NULL, row->coding, NULL};
        struct client_call *call = client_begin(&fixture->client, "/t.T/Echo", fields);
        client_add(&fixture->client, call, row->bytes.ptr, row->bytes.len);
        client_end(&fixture->client, call);
        grpc_fixture_run(fixture);
        assert_failed(call, row->status, row->part);
        assert_int_equal(fixture->service.n, 0);
    }
    struct client_call *call = client_unary(&fixture->client, "/t.T/Echo", STR("still there"));
    grpc_fixture_run(fixture);
    assert_ok(call);
}

static void bad_messages_are_refused(void **state) {
    (void)state;
    at_each_pace(bad_messages);
}

/* The same in a streaming call: earlier messages are answered. */
static void bad_stream(struct grpc_fixture *fixture) {
    struct client_call *call = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_message(&fixture->client, call, false, "good", 4);
    client_add(&fixture->client, call, "\0\0\0\0\7half", 9);
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_answer(call, 0, STR("good"));
    assert_failed(call, "3", "within a message");
    assert_int_equal(fixture->service.calls[0].n_cancelled, 1);
    assert_int_equal(fixture->service.calls[0].why, ST_BAD_REQUEST);
    assert_int_equal(fixture->service.calls[0].n_ended, 1);
}

static void bad_streaming_messages_are_refused(void **state) {
    (void)state;
    at_each_pace(bad_stream);
}

/* ---- compression ----------------------------------------------------------------------------- */

static struct str compressed(enum http_coding coding, struct str text, char *out, size_t room) {
    struct deflate *codec = deflate_new(coding, 6);
    size_t n;
    assert_true(deflate_step(codec, &text, true, out, room, &n));
    deflate_free(codec);
    return str_make(out, n);
}

static void compression(struct grpc_fixture *fixture) {
    static const struct {
        const char *name;
        enum http_coding coding;
    } ROWS[] = {{"gzip", HTTP_GZIP}, {"deflate", HTTP_DEFLATE}};
    static char bytes[200000];
    for (size_t i = 0; i < 2; i++) {
        const char *const fields[] = {"grpc-encoding", ROWS[i].name, NULL};
        struct client_call *call = client_begin(&fixture->client, "/t.T/Echo", fields);
        struct str small = compressed(ROWS[i].coding, varied_text(100000), bytes, sizeof(bytes));
        client_message(&fixture->client, call, true, small.ptr, small.len);
        client_end(&fixture->client, call);
        struct client_call *plain = client_begin(&fixture->client, "/t.T/Echo", fields);
        client_message(&fixture->client, plain, false, "plain", 5);
        client_end(&fixture->client, plain);
        grpc_fixture_run(fixture);
        assert_ok(call);
        assert_answer(call, 0, varied_text(100000));
        assert_ok(plain);
        assert_answer(plain, 0, STR("plain"));
    }
}

static void compressed_messages_are_inflated(void **state) {
    (void)state;
    at_each_pace(compression);
}

/* Bytes that arrive while earlier ones of their stream wait for a slice, which decompression for
 * another stream has used up, come after those. */
static void input_behind_pending_input_keeps_its_order(void **state) {
    (void)state;
    enum { FIRST = 30, NEXT = 500, CUT = 200 };
    static char zeros[1 << 20], bytes[10000];
    const char *const fields[] = {"grpc-encoding", "gzip", NULL};
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *plain = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    struct client_call *packed = client_begin(&fixture->client, "/t.T/Sum", fields);
    char prefix[GRPC_PREFIX_BYTES];
    struct str text = varied_text(NEXT);
    client_message(&fixture->client, plain, false, text.ptr, FIRST);
    grpc_prefix_encode((struct grpc_prefix){false, NEXT}, prefix);
    client_add(&fixture->client, plain, prefix, sizeof(prefix));
    client_add(&fixture->client, plain, text.ptr, CUT);
    grpc_fixture_run(fixture);
    struct recorded_call *recorded = &fixture->service.calls[0];
    assert_string_equal(recorded->method, "/t.T/Deaf");
    struct str large = compressed(HTTP_GZIP, str_make(zeros, sizeof(zeros)), bytes, sizeof(bytes));
    client_message(&fixture->client, packed, true, large.ptr, large.len);
    const uint8_t *data;
    ssize_t n = nghttp2_session_mem_send(fixture->client.h2, &data);
    grpc_session_receive(&fixture->session, str_make((const char *)data, (size_t)n));
    assert_int_equal(fixture->core.inflate_left, 0);
    grpc_read(recorded->call);
    grpc_read(recorded->call);
    assert_int_equal(recorded->n_messages, 0);
    client_add(&fixture->client, plain, text.ptr + CUT, NEXT - CUT);
    n = nghttp2_session_mem_send(fixture->client.h2, &data);
    grpc_session_receive(&fixture->session, str_make((const char *)data, (size_t)n));
    client_end(&fixture->client, packed);
    grpc_fixture_run(fixture);
    assert_int_equal(recorded->n_cancelled, 0);
    assert_int_equal(recorded->n_messages, 2);
    assert_int_equal(recorded->n_bytes, FIRST + NEXT);
    assert_ok(packed);
    assert_answer(packed, 0, STR("1048576"));
    recorded_call_finish(recorded, NULL);
    grpc_fixture_run(fixture);
    assert_ok(plain);
    grpc_fixture_free(fixture);
}

/* Several gzip members in a row are one message; a megabyte of zeros over the limit is refused. */
static void inflated_message_over_limit_is_refused(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    const char *const fields[] = {"grpc-encoding", "gzip", NULL};
    static char bytes[10000], zeros[(1 << 20) + 1];
    struct str one = compressed(HTTP_GZIP, STR("one"), bytes, 100);
    struct str two = compressed(HTTP_GZIP, STR("two"), bytes + one.len, 100);
    struct client_call *call = client_begin(&fixture->client, "/t.T/Echo", fields);
    client_message(&fixture->client, call, true, bytes, one.len + two.len);
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_ok(call);
    assert_answer(call, 0, STR("onetwo"));

    struct str just = compressed(HTTP_GZIP, str_make(zeros, 1 << 20), bytes, sizeof(bytes));
    call = client_begin(&fixture->client, "/t.T/Sum", fields);
    client_message(&fixture->client, call, true, just.ptr, just.len);
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_answer(call, 0, STR("1048576"));

    struct str bomb = compressed(HTTP_GZIP, str_make(zeros, sizeof(zeros)), bytes, sizeof(bytes));
    call = client_begin(&fixture->client, "/t.T/Echo", fields);
    client_message(&fixture->client, call, true, bomb.ptr, bomb.len);
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_failed(call, "8", "after decompression (--max-body-size)");

    just = compressed(HTTP_GZIP, str_make(zeros, 1 << 20), bytes, sizeof(bytes));
    call = client_begin(&fixture->client, "/t.T/Echo", fields);
    client_message(&fixture->client, call, true, just.ptr, just.len - 1);
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_failed(call, "3", "");
    grpc_fixture_free(fixture);
}

/* Responses are compressed for clients that accept it. */
static void responses_are_compressed_if_accepted(void **state) {
    (void)state;
    struct grpc_limits limits = grpc_fixture_limits();
    limits.compression_level = 1;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    static const struct {
        const char *accept, *coding;
        bool compressed;
    } ROWS[] = {{"identity,deflate,gzip", "gzip", true},
                {"deflate", "deflate", true},
                {"br, identity", "", false}};
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const char *const fields[] = {"grpc-accept-encoding", ROWS[i].accept, NULL};
        struct client_call *call = client_begin(&fixture->client, "/t.T/Bidi", fields);
        client_message(&fixture->client, call, false, varied_text(50000).ptr, 50000);
        client_message(&fixture->client, call, false, "small", 5);
        client_end(&fixture->client, call);
        grpc_fixture_run(fixture);
        assert_ok(call);
        assert_string_equal(call->coding, ROWS[i].coding);
        bool is_compressed;
        struct str answer = client_answer(call, 0, &is_compressed);
        assert_int_equal(is_compressed, ROWS[i].compressed);
        assert_true(is_compressed ? answer.len < 20000 : answer.len == 50000);
        assert_answer(call, 1, STR("small"));
    }
    grpc_fixture_free(fixture);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void metadata_is_decoded_and_encoded(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    const char *const fields[] = {
        "user",  "one", "user",         "two", "key-bin",    "AAEC",           "padded-bin", "AAE=",
        "empty", "",    "grpc-timeout", "1H",  "joined-bin", "YQ==,YmI, ,YWE", NULL};
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", fields);
    grpc_fixture_run(fixture);
    const struct grpc_call *recorded = fixture->service.calls[0].call;
    size_t n;
    assert_true(str_is(grpc_find_field(recorded, "user", &n), "one"));
    assert_int_equal(n, 2);
    assert_true(str_eq(grpc_find_field(recorded, "key-bin", NULL), str_make("\0\1\2", 3)));
    assert_true(str_eq(grpc_find_field(recorded, "padded-bin", NULL), str_make("\0\1", 2)));
    assert_true(str_is(grpc_find_field(recorded, "joined-bin", &n), "a") && n == 4);
    assert_true(str_is(recorded->fields[recorded->n_fields - 1].value, "aa"));
    assert_true(str_is(grpc_find_field(recorded, "empty", &n), "") && n == 1);
    assert_true(str_is(grpc_find_field(recorded, "none", &n), "") && n == 0);
    assert_true(str_is(grpc_find_field(recorded, "te", &n), "trailers") && n == 1);
    assert_true(str_is(recorded->authority, "test"));
    assert_true(recorded->deadline_ns == fixture->now_ns + 3600 * (uint64_t)SECOND);
    grpc_set_field(fixture->service.calls[0].call, STR("answer-bin"), str_make("\0\1", 2));
    recorded_call_finish(&fixture->service.calls[0], NULL);
    grpc_fixture_run(fixture);
    assert_string_equal(call->trailer, "AAE");
    assert_ok(call);
    grpc_fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_call_at_every_pace_is_answered),
        cmocka_unit_test(responses_of_one_iteration_leave_in_one_write),
        cmocka_unit_test(bidi_call_at_every_pace_is_answered),
        cmocka_unit_test(client_streaming_at_every_pace_is_answered),
        cmocka_unit_test(server_streaming_at_every_pace_is_answered),
        cmocka_unit_test(deferred_response_at_every_pace_is_sent),
        cmocka_unit_test(status_after_reserved_bytes_is_sent),
        cmocka_unit_test(failing_call_at_every_pace_reports_status),
        cmocka_unit_test(message_field_is_aligned_to_64_bytes),
        cmocka_unit_test(bad_heads_are_refused),
        cmocka_unit_test(plain_http_request_gets_http_response),
        cmocka_unit_test(plain_http_response_waits_for_request_end),
        cmocka_unit_test(bad_messages_are_refused),
        cmocka_unit_test(bad_streaming_messages_are_refused),
        cmocka_unit_test(compressed_messages_are_inflated),
        cmocka_unit_test(input_behind_pending_input_keeps_its_order),
        cmocka_unit_test(inflated_message_over_limit_is_refused),
        cmocka_unit_test(responses_are_compressed_if_accepted),
        cmocka_unit_test(metadata_is_decoded_and_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
