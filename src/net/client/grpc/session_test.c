/* Calls of each kind between the client's session and our own server's, at every pace of the bytes:
 * what is asked arrives, what is answered comes back, and each call ends once, whoever ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc/session_fixture.h"

#include "codec/protobuf/grpc_status.h"

/* A text of so many bytes that is not all the same. */
static struct str text_of(size_t n) {
    static char text[1 << 20];
    assert_true(n <= sizeof(text));
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)('a' + i * 7 % 26 + i / 1000 % 3);
    }
    return str_make(text, n);
}

static void assert_answer(const struct asked *asked, struct str expected) {
    assert_int_equal(asked->in_len, expected.len);
    if (expected.len > 0) {
        assert_memory_equal(asked->in, expected.ptr, expected.len);
    }
}

static void assert_ok(const struct asked *asked) {
    if (asked->error.status != ST_OK) {
        fail_msg("%s", asked->error.text);
    }
    assert_int_equal(asked->n_ended, 1);
    assert_int_equal(asked->code, 0);
}

static void assert_failed(const struct asked *asked, enum status status, int code,
                          const char *part) {
    assert_int_equal(asked->n_ended, 1);
    if (asked->error.status != status || asked->code != code || !strstr(asked->error.text, part)) {
        fail_msg("expected %s, %d, \"%s\"; got %s, %d, \"%s\"", status_name(status), code, part,
                 status_name(asked->error.status), asked->code, asked->error.text);
    }
}

/* Runs a test at each pace, in both directions. */
static void at_each_pace(void (*test)(struct duo *duo)) {
    for (int pace = 0; pace < N_PACES; pace++) {
        struct duo *duo = duo_begin();
        duo->pace = duo->world->pace = (enum pace)pace;
        test(duo);
        duo_end(duo);
    }
}

/* ---- kinds of calls -------------------------------------------------------------------------- */

static void unary(struct duo *duo) {
    static const size_t SIZES[] = {0, 1, 5, 1000, 1024, 1025, 16379, 16384, 70000};
    enum { N = sizeof(SIZES) / sizeof(SIZES[0]) };
    struct asked *asked[N];
    for (size_t i = 0; i < N; i++) {
        asked[i] = duo_unary(duo, "/t.T/Echo", text_of(SIZES[i]));
    }
    duo_run(duo);
    for (size_t i = 0; i < N; i++) {
        assert_ok(asked[i]);
        assert_answer(asked[i], text_of(SIZES[i]));
        assert_int_equal(asked[i]->n_heads, 1);
        assert_int_equal(asked[i]->n_messages, 1);
        assert_int_equal(asked[i]->n_released, 1);
    }
    assert_int_equal(duo->core.n_alive, 0);
    assert_int_equal(duo->session.n_open, 0);
}

static void test_unary(void **state) {
    (void)state;
    at_each_pace(unary);
}

static void bidi(struct duo *duo) {
    struct asked *asked = duo_stream(duo, "/t.T/Bidi");
    size_t n_bytes = 0;
    for (size_t i = 0; i < 20; i++) {
        asked_send(asked, text_of(i * i * i * 10));
        n_bytes += i * i * i * 10;
        if (i % 3 == 0) {
            duo_run(duo);
            assert_int_equal(asked->n_messages, i + 1);
        }
    }
    assert_int_equal(asked->n_ended, 0);
    grpc_client_half_close(asked->call);
    grpc_client_half_close(asked->call);
    duo_run(duo);
    assert_ok(asked);
    assert_int_equal(asked->n_messages, 20);
    assert_int_equal(asked->n_released, 20);
    assert_int_equal(asked->in_len, n_bytes);
    assert_int_equal(duo->world->service.calls[0].n_half_closed, 1);
}

static void test_bidi(void **state) {
    (void)state;
    at_each_pace(bidi);
}

static void client_streaming(struct duo *duo) {
    struct asked *asked = duo_stream(duo, "/t.T/Sum"), *none = duo_stream(duo, "/t.T/Sum");
    for (size_t i = 0; i < 100; i++) {
        asked_send(asked, text_of(i));
    }
    grpc_client_half_close(asked->call);
    grpc_client_half_close(none->call);
    duo_run(duo);
    assert_ok(asked);
    assert_answer(asked, STR("4950"));
    assert_ok(none);
    assert_answer(none, STR("0"));
}

static void test_client_streaming(void **state) {
    (void)state;
    at_each_pace(client_streaming);
}

/* More than all windows hold: they are opened as the caller takes what came. */
static void server_streaming(struct duo *duo) {
    struct asked *asked = duo_stream(duo, "/t.T/Many");
    asked_send(asked, STR("\xc8"));
    grpc_client_half_close(asked->call);
    duo_run(duo);
    assert_ok(asked);
    assert_int_equal(asked->n_messages, 200);
    assert_int_equal(asked->in_len, 200 * 200000);
}

static void test_server_streaming(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    server_streaming(duo);
    duo->pace = PACE_RANDOM;
    server_streaming(duo);
    duo_end(duo);
}

/* What has left and may be followed by more. */
static void test_writable(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_stream(duo, "/t.T/Bidi");
    asked_send(asked, text_of(100000));
    assert_int_equal(grpc_client_queued_bytes(asked->call), 100005);
    duo_run(duo);
    assert_int_equal(asked->n_writable, 1);
    assert_int_equal(grpc_client_queued_bytes(asked->call), 0);
    duo_end(duo);
}

static void test_aligned(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked[4];
    for (size_t i = 0; i < 4; i++) {
        char text[6000];
        size_t at = i * 977;
        memset(text, 'a', sizeof(text));
        text[at] = 'x';
        asked[i] = duo_ask(
            duo, &(struct grpc_client_ask){.path = STR("/t.T/Echo"), .align_at = align_behind_x});
        asked_send(asked[i], str_make(text, sizeof(text)));
        duo_run(duo);
        assert_ok(asked[i]);
        assert_true(asked[i]->aligned || at >= 1024); /* it is looked for at the beginning */
    }
    duo_end(duo);
}

/* ---- status ---------------------------------------------------------------------------------- */

static void failing(struct duo *duo) {
    struct asked *asked = duo_unary(duo, "/t.T/Fail", STR("a"));
    struct asked *unknown = duo_unary(duo, "/t.T/None", STR("a"));
    duo_run(duo);
    assert_failed(asked, ST_REFUSED, GRPC_CODE_NOT_FOUND, "no model \"\xc3\xa4\" (100% sure)");
    assert_int_equal(asked->n_messages, 0);
    assert_memory_equal(asked->trailer, "\0\1\2", 3);
    assert_failed(unknown, ST_REFUSED, GRPC_CODE_UNIMPLEMENTED, "/t.T/None");
    assert_false(unknown->untouched);
}

static void test_failing(void **state) {
    (void)state;
    at_each_pace(failing);
}

static void test_ok_without_a_message(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_unary(duo, "/t.T/Later", STR("a"));
    duo_run(duo);
    seen_finish(&duo->world->service.calls[0], NULL);
    duo_run(duo);
    assert_failed(asked, ST_BAD_ANSWER, -1, "without a message");
    duo_end(duo);
}

/* The server answers before it has read all: the rest is not sent. */
static void test_an_answer_before_the_end(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_stream(duo, "/t.T/Bidi");
    asked_send(asked, text_of(3));
    duo_run(duo);
    struct error err;
    error_set(&err, ST_OVERLOADED, "enough");
    struct seen *seen = &duo->world->service.calls[0];
    seen_finish(seen, &err);
    duo_run(duo);
    assert_failed(asked, ST_REFUSED, GRPC_CODE_RESOURCE_EXHAUSTED, "enough");
    assert_int_equal(duo->session.n_open, 0);
    struct asked *large = duo_unary(duo, "/t.T/None", text_of(1 << 20));
    duo_run(duo);
    assert_failed(large, ST_REFUSED, GRPC_CODE_UNIMPLEMENTED, "/t.T/None");
    assert_int_equal(large->n_released, 1);
    duo_end(duo);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void test_metadata(void **state) {
    struct duo *duo = duo_begin();
    const struct grpc_field fields[] = {{STR("test"), STR("a value")},
                                        {STR("test-bin"), {"\0\xff", 2}}};
    (void)state;
    struct asked *asked = duo_ask(
        duo, &(struct grpc_client_ask){.path = STR("/t.T/Later"), .fields = fields, .n_fields = 2});
    asked_send(asked, STR("a"));
    duo_run(duo);
    struct seen *seen = &duo->world->service.calls[0];
    size_t n;
    struct str value = grpc_find(seen->call, "test", &n);
    assert_true(str_is(value, "a value") && n == 1);
    value = grpc_find(seen->call, "test-bin", NULL);
    assert_int_equal(value.len, 2);
    assert_memory_equal(value.ptr, "\0\xff", 2);
    assert_true(str_is(seen->call->authority, "test:1"));
    assert_true(str_starts(grpc_find(seen->call, "user-agent", NULL), STR("grpc-c-sluice/")));
    grpc_set_field(seen->call, STR("test"), STR("back"));
    struct piece piece = {"m", 1};
    grpc_send(seen->call, &piece, 1, NULL, NULL);
    seen_finish(seen, NULL);
    duo_run(duo);
    assert_ok(asked);
    assert_string_equal(asked->field, "back");
    duo_end(duo);
}

static void test_metadata_that_http_does_not_allow(void **state) {
    static const struct grpc_field FIELDS[] = {
        {STR("Upper"), STR("a")}, {STR(""), STR("a")},     {STR(":path"), STR("a")},
        {STR("a b"), STR("a")},   {STR("a"), STR("a\nb")}, {STR("a"), {"\0", 1}},
    };
    struct duo *duo = duo_begin();
    struct grpc_client_stream *stream;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++) {
        struct grpc_client_ask ask = {
            .path = STR("/a"), .fields = &FIELDS[i], .n_fields = 1, .timeout_ns = 1};
        assert_int_equal(grpc_client_stream_new(&duo->core, &ask, &stream, &err), ST_BAD_FIELD);
    }
    duo_end(duo);
}

/* ---- compression ----------------------------------------------------------------------------- */

static void test_compressed_answers(void **state) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {0};
    limits.compression_level = 6;
    struct duo *duo = duo_begin_with(&limits, &client);
    (void)state;
    for (int pace = 0; pace < N_PACES; pace++) {
        duo->pace = (enum pace)pace;
        size_t before = duo->n_heard;
        struct asked *asked = duo_unary(duo, "/t.T/Echo", text_of(100000));
        duo_run(duo);
        assert_ok(asked);
        assert_answer(asked, text_of(100000));
        assert_true(duo->n_heard - before < 20000);
    }
    duo_end(duo);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static struct asked *with_timeout(struct duo *duo, const char *path, uint64_t timeout_ns) {
    struct asked *asked =
        duo_ask(duo, &(struct grpc_client_ask){.path = str_of(path), .timeout_ns = timeout_ns});
    asked_send(asked, STR("a"));
    return asked;
}

/* The server is told how long it may take, and both keep it. */
static void test_deadline(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = with_timeout(duo, "/t.T/Later", 5 * (uint64_t)SECOND);
    duo_run(duo);
    const struct grpc_call *call = duo->world->service.calls[0].call;
    assert_int_equal(call->deadline_ns, duo->now_ns + 5 * (uint64_t)SECOND);
    assert_int_equal(grpc_client_core_next_ns(&duo->core), call->deadline_ns);
    duo->world->no_reading = true; /* the server's own refusal does not arrive */
    duo_pass(duo, 5 * (uint64_t)SECOND - 1);
    assert_int_equal(asked->n_ended, 0);
    duo_pass(duo, 1);
    assert_failed(asked, ST_DEADLINE_EXCEEDED, -1, "no answer came in time");
    assert_int_equal(duo->world->service.calls[0].why, ST_DEADLINE_EXCEEDED);
    duo->world->no_reading = false;
    duo_run(duo);
    assert_true(grpc_client_core_next_ns(&duo->core) == UINT64_MAX);
    duo_end(duo);
}

/* Waiting for a connection is part of it, and what is left is what the server is told. */
static void test_deadline_while_waiting(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = with_timeout(duo, "/t.T/Later", 2 * (uint64_t)SECOND);
    struct asked *late = with_timeout(duo, "/t.T/Later", 3 * (uint64_t)SECOND);
    duo_pass(duo, 2 * (uint64_t)SECOND);
    assert_failed(asked, ST_DEADLINE_EXCEEDED, -1, "no connection in time");
    assert_true(asked->untouched);
    duo_run(duo);
    assert_int_equal(duo->world->service.calls[0].call->deadline_ns, duo->now_ns + SECOND);
    assert_int_equal(late->n_ended, 0);
    duo_end(duo);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void test_as_many_as_the_server_takes(void **state) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {0};
    limits.max_streams = 3;
    struct duo *duo = duo_begin_with(&limits, &client);
    (void)state;
    duo_run(duo);
    struct asked *asked[10];
    for (size_t i = 0; i < 10; i++) {
        asked[i] = duo_unary(duo, "/t.T/Later", STR("a"));
    }
    for (size_t i = 0; i < 10; i++) {
        duo_run(duo);
        size_t open = 10 - i < 3 ? 10 - i : 3;
        assert_int_equal(duo->session.n_open, open);
        struct piece piece = {"b", 1};
        grpc_send(duo->world->service.calls[i].call, &piece, 1, NULL, NULL);
        seen_finish(&duo->world->service.calls[i], NULL);
        duo_run(duo);
        assert_ok(asked[i]);
    }
    duo_end(duo);
}

/* Before the server has said how many it takes, more may have been begun: they wait inside. */
static void test_more_than_the_server_takes(void **state) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {0};
    limits.max_streams = 3;
    struct duo *duo = duo_begin_with(&limits, &client);
    (void)state;
    for (size_t i = 0; i < 50; i++) {
        duo_unary(duo, "/t.T/Echo", STR("a"));
    }
    duo_run(duo);
    size_t n_ok = 0, n_refused = 0;
    for (size_t i = 0; i < 50; i++) {
        n_ok += duo->asked[i].error.status == ST_OK;
        n_refused += duo->asked[i].untouched && duo->asked[i].code == GRPC_CODE_UNAVAILABLE;
        assert_int_equal(duo->asked[i].n_ended, 1);
    }
    assert_true(n_ok >= 3);
    assert_int_equal(n_ok + n_refused, 50);
    duo_end(duo);
}

/* The server drains: what is under way is answered, nothing begins any more, then it is over. */
static void test_drain(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_unary(duo, "/t.T/Later", STR("a"));
    duo_run(duo);
    grpc_session_drain(&duo->world->session);
    duo_run(duo);
    assert_false(grpc_client_session_has_room(&duo->session));
    struct asked *waits = duo_unary(duo, "/t.T/Echo", STR("a"));
    duo_run(duo);
    assert_int_equal(waits->n_ended, 0);
    assert_false(grpc_client_session_is_over(&duo->session));
    struct piece piece = {"b", 1};
    grpc_send(duo->world->service.calls[0].call, &piece, 1, NULL, NULL);
    seen_finish(&duo->world->service.calls[0], NULL);
    duo_run(duo);
    assert_ok(asked);
    assert_true(grpc_client_session_is_over(&duo->session));
    duo_end(duo);
}

static void test_a_lost_connection(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_unary(duo, "/t.T/Later", STR("a"));
    struct asked *large = duo_unary(duo, "/t.T/Later", text_of(300000));
    duo_run(duo);
    struct asked *waits = duo_unary(duo, "/t.T/Later", STR("a"));
    duo_close(duo, "the connection was lost");
    assert_failed(asked, ST_IO, -1, "the connection was lost");
    assert_failed(large, ST_IO, -1, "the connection was lost");
    assert_int_equal(large->n_released, 1);
    assert_int_equal(waits->n_ended, 0);
    duo_end(duo);
}

/* A caller who takes nothing holds up his own call, at most a window of it. */
static void test_a_caller_who_does_not_read(void **state) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {.stream_window_bytes = 100000};
    struct duo *duo = duo_begin_with(&limits, &client);
    (void)state;
    struct asked *asked =
        duo_ask(duo, &(struct grpc_client_ask){.path = STR("/t.T/Many"), .streams = true});
    asked_send(asked, STR("\x64"));
    duo_run(duo);
    assert_int_equal(asked->n_messages, 0);
    assert_true(duo->core.budget.n_body_bytes <= 2 * 100000);
    struct asked *other = duo_unary(duo, "/t.T/Echo", text_of(70000));
    duo_run(duo);
    assert_ok(other);
    grpc_client_read(asked->call);
    duo_run(duo);
    assert_ok(asked);
    assert_int_equal(asked->in_len, 100 * 100000);
    duo_end(duo);
}

static void test_a_message_over_the_limit(void **state) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {.max_message_bytes = 1000, .setting = "--max-answer-size"};
    (void)state;
    for (int level = 0; level < 2; level++) {
        limits.compression_level = level * 6;
        struct duo *duo = duo_begin_with(&limits, &client);
        struct asked *fits = duo_unary(duo, "/t.T/Echo", text_of(1000));
        struct asked *asked = duo_unary(duo, "/t.T/Echo", text_of(100000));
        duo_run(duo);
        assert_ok(fits);
        assert_failed(asked, ST_BODY_TOO_LARGE, -1, "1000 bytes (--max-answer-size)");
        struct asked *next = duo_unary(duo, "/t.T/Echo", text_of(7));
        duo_run(duo);
        assert_ok(next);
        assert_int_equal(duo->session.n_open, 0);
        duo_end(duo);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_bidi),
        cmocka_unit_test(test_client_streaming),
        cmocka_unit_test(test_server_streaming),
        cmocka_unit_test(test_writable),
        cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_ok_without_a_message),
        cmocka_unit_test(test_an_answer_before_the_end),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_metadata_that_http_does_not_allow),
        cmocka_unit_test(test_compressed_answers),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_while_waiting),
        cmocka_unit_test(test_as_many_as_the_server_takes),
        cmocka_unit_test(test_more_than_the_server_takes),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_a_lost_connection),
        cmocka_unit_test(test_a_caller_who_does_not_read),
        cmocka_unit_test(test_a_message_over_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
