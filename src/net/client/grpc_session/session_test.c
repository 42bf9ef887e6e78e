/* Calls of each kind between the client's session and our own server's, with every piece size:
 * requests and responses arrive, and each call ends once, whichever side ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc_session/session_fixture.h"

#include "codec/grpc/status.h"

/* A text of so many bytes that is not all the same. */
static void assert_answer(const struct call_record *record, struct str expected) {
    assert_int_equal(record->in_len, expected.len);
    if (expected.len > 0) {
        assert_memory_equal(record->in, expected.ptr, expected.len);
    }
}

/* Runs a test with each piece size, in both directions. */
static void at_each_pace(void (*test)(struct session_pair *pair)) {
    for (int pace = 0; pace < N_PACES; pace++) {
        struct session_pair *pair = session_pair_open();
        pair->pace = pair->fixture->pace = (enum pace)pace;
        test(pair);
        session_pair_free(pair);
    }
}

/* ---- kinds of calls -------------------------------------------------------------------------- */

static void unary(struct session_pair *pair) {
    static const size_t SIZES[] = {0, 1, 5, 1000, 1024, 1025, 16379, 16384, 70000};
    enum { N = sizeof(SIZES) / sizeof(SIZES[0]) };
    struct call_record *record[N];
    for (size_t i = 0; i < N; i++) {
        record[i] = session_pair_unary(pair, "/t.T/Echo", varied_text(SIZES[i]));
    }
    session_pair_run(pair);
    for (size_t i = 0; i < N; i++) {
        assert_call_ok(record[i]);
        assert_answer(record[i], varied_text(SIZES[i]));
        assert_int_equal(record[i]->n_heads, 1);
        assert_int_equal(record[i]->n_messages, 1);
        assert_int_equal(record[i]->n_released, 1);
    }
    assert_int_equal(pair->core.n_alive, 0);
    assert_int_equal(pair->session.n_open, 0);
}

static void unary_call_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(unary);
}

static void bidi(struct session_pair *pair) {
    struct call_record *record = session_pair_stream(pair, "/t.T/Bidi");
    size_t n_bytes = 0;
    for (size_t i = 0; i < 20; i++) {
        call_record_send(record, varied_text(i * i * i * 10));
        n_bytes += i * i * i * 10;
        if (i % 3 == 0) {
            session_pair_run(pair);
            assert_int_equal(record->n_messages, i + 1);
        }
    }
    assert_int_equal(record->n_ended, 0);
    grpc_client_half_close(record->call);
    grpc_client_half_close(record->call);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_int_equal(record->n_messages, 20);
    assert_int_equal(record->n_released, 20);
    assert_int_equal(record->in_len, n_bytes);
    assert_int_equal(pair->fixture->service.calls[0].n_half_closed, 1);
}

static void bidi_call_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(bidi);
}

static void client_streaming(struct session_pair *pair) {
    struct call_record *record = session_pair_stream(pair, "/t.T/Sum"),
                       *none = session_pair_stream(pair, "/t.T/Sum");
    for (size_t i = 0; i < 100; i++) {
        call_record_send(record, varied_text(i));
    }
    grpc_client_half_close(record->call);
    grpc_client_half_close(none->call);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_answer(record, STR("4950"));
    assert_call_ok(none);
    assert_answer(none, STR("0"));
}

static void client_streaming_at_every_pace_is_answered(void **state) {
    (void)state;
    at_each_pace(client_streaming);
}

/* More bytes than the windows: they are opened as the caller reads. */
static void server_streaming(struct session_pair *pair) {
    struct call_record *record = session_pair_stream(pair, "/t.T/Many");
    call_record_send(record, STR("\xc8"));
    grpc_client_half_close(record->call);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_int_equal(record->n_messages, 200);
    assert_int_equal(record->in_len, 200 * 200000);
}

static void server_streaming_delivers_all_messages(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    server_streaming(pair);
    pair->pace = PACE_RANDOM;
    server_streaming(pair);
    session_pair_free(pair);
}

/* GRPC_CLIENT_WRITABLE when all messages are sent. */
static void writable_event_follows_sent_messages(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_stream(pair, "/t.T/Bidi");
    call_record_send(record, varied_text(100000));
    assert_int_equal(grpc_client_queued_bytes(record->call), 100005);
    session_pair_run(pair);
    assert_int_equal(record->n_writable, 1);
    assert_int_equal(grpc_client_queued_bytes(record->call), 0);
    session_pair_free(pair);
}

static void message_field_is_aligned_to_64_bytes(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record[4];
    for (size_t i = 0; i < 4; i++) {
        char text[6000];
        size_t at = i * 977;
        memset(text, 'a', sizeof(text));
        text[at] = 'x';
        record[i] =
            session_pair_call(pair, &(struct grpc_client_call_options){.path = STR("/t.T/Echo"),
                                                                       .align_at = align_behind_x});
        call_record_send(record[i], str_make(text, sizeof(text)));
        session_pair_run(pair);
        assert_call_ok(record[i]);
        /* Only the first bytes are searched for it. */
        assert_true(record[i]->aligned || at >= 1024);
    }
    session_pair_free(pair);
}

/* ---- status ---------------------------------------------------------------------------------- */

static void failing(struct session_pair *pair) {
    struct call_record *record = session_pair_unary(pair, "/t.T/Fail", STR("a"));
    struct call_record *unknown = session_pair_unary(pair, "/t.T/None", STR("a"));
    session_pair_run(pair);
    assert_call_ended(record, ST_REFUSED, GRPC_CODE_NOT_FOUND, "no model \"\xc3\xa4\" (100% sure)");
    assert_int_equal(record->n_messages, 0);
    assert_memory_equal(record->trailer, "\0\1\2", 3);
    assert_call_ended(unknown, ST_REFUSED, GRPC_CODE_UNIMPLEMENTED, "/t.T/None");
    assert_false(unknown->not_processed);
}

static void failing_call_reports_server_status(void **state) {
    (void)state;
    at_each_pace(failing);
}

static void unary_ok_without_message_is_bad_answer(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", STR("a"));
    session_pair_run(pair);
    recorded_call_finish(&pair->fixture->service.calls[0], NULL);
    session_pair_run(pair);
    assert_call_ended(record, ST_BAD_ANSWER, -1, "without a message");
    session_pair_free(pair);
}

/* The server responds before it has read the request: the rest is not sent. */
static void early_response_stops_sending(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_stream(pair, "/t.T/Bidi");
    call_record_send(record, varied_text(3));
    session_pair_run(pair);
    struct error err;
    error_set(&err, ST_OVERLOADED, "enough");
    struct recorded_call *recorded = &pair->fixture->service.calls[0];
    recorded_call_finish(recorded, &err);
    session_pair_run(pair);
    assert_call_ended(record, ST_REFUSED, GRPC_CODE_RESOURCE_EXHAUSTED, "enough");
    assert_int_equal(pair->session.n_open, 0);
    struct call_record *large = session_pair_unary(pair, "/t.T/None", varied_text(1 << 20));
    session_pair_run(pair);
    assert_call_ended(large, ST_REFUSED, GRPC_CODE_UNIMPLEMENTED, "/t.T/None");
    assert_int_equal(large->n_released, 1);
    session_pair_free(pair);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void metadata_is_encoded_and_decoded(void **state) {
    struct session_pair *pair = session_pair_open();
    const struct grpc_field fields[] = {{STR("test"), STR("a value")},
                                        {STR("test-bin"), {"\0\xff", 2}}};
    (void)state;
    struct call_record *record =
        session_pair_call(pair, &(struct grpc_client_call_options){
                                    .path = STR("/t.T/Later"), .fields = fields, .n_fields = 2});
    call_record_send(record, STR("a"));
    session_pair_run(pair);
    struct recorded_call *recorded = &pair->fixture->service.calls[0];
    size_t n;
    struct str value = grpc_find_field(recorded->call, "test", &n);
    assert_true(str_is(value, "a value") && n == 1);
    value = grpc_find_field(recorded->call, "test-bin", NULL);
    assert_int_equal(value.len, 2);
    assert_memory_equal(value.ptr, "\0\xff", 2);
    assert_true(str_is(recorded->call->authority, "test:1"));
    assert_true(str_starts_with(grpc_find_field(recorded->call, "user-agent", NULL),
                                STR("grpc-c-sluice/")));
    grpc_set_field(recorded->call, STR("test"), STR("back"));
    struct piece piece = {"m", 1};
    grpc_send(recorded->call, &piece, 1, NULL, NULL);
    recorded_call_finish(recorded, NULL);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_string_equal(record->field, "back");
    session_pair_free(pair);
}

static void metadata_user_agent_takes_place_of_ours(void **state) {
    struct session_pair *pair = session_pair_open();
    const struct grpc_field fields[] = {{STR("user-agent"), STR("mine/1")}};
    (void)state;
    struct call_record *record =
        session_pair_call(pair, &(struct grpc_client_call_options){
                                    .path = STR("/t.T/Later"), .fields = fields, .n_fields = 1});
    call_record_send(record, STR("a"));
    session_pair_run(pair);
    size_t n;
    struct recorded_call *recorded = &pair->fixture->service.calls[0];
    assert_true(str_is(grpc_find_field(recorded->call, "user-agent", &n), "mine/1"));
    assert_int_equal(n, 1);
    session_pair_free(pair);
}

static void metadata_invalid_is_bad_field(void **state) {
    static const struct grpc_field FIELDS[] = {
        {STR("Upper"), STR("a")}, {STR(""), STR("a")},     {STR(":path"), STR("a")},
        {STR("a b"), STR("a")},   {STR("a"), STR("a\nb")}, {STR("a"), {"\0", 1}},
    };
    struct session_pair *pair = session_pair_open();
    struct grpc_client_stream *stream;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++) {
        struct grpc_client_call_options ask = {
            .path = STR("/a"), .fields = &FIELDS[i], .n_fields = 1, .timeout_ns = 1};
        assert_int_equal(grpc_client_stream_new(&pair->core, &ask, &stream, &err), ST_BAD_FIELD);
    }
    session_pair_free(pair);
}

/* ---- compression ----------------------------------------------------------------------------- */

static void compressed_responses_are_inflated(void **state) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {0};
    limits.compression_level = 6;
    struct session_pair *pair = session_pair_open_with(&limits, &client);
    (void)state;
    for (int pace = 0; pace < N_PACES; pace++) {
        pair->pace = (enum pace)pace;
        size_t before = pair->n_heard;
        struct call_record *record = session_pair_unary(pair, "/t.T/Echo", varied_text(100000));
        session_pair_run(pair);
        assert_call_ok(record);
        assert_answer(record, varied_text(100000));
        assert_true(pair->n_heard - before < 20000);
    }
    session_pair_free(pair);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static struct call_record *with_timeout(struct session_pair *pair, const char *path,
                                        uint64_t timeout_ns) {
    struct call_record *record = session_pair_call(
        pair, &(struct grpc_client_call_options){.path = str_of(path), .timeout_ns = timeout_ns});
    call_record_send(record, STR("a"));
    return record;
}

/* The deadline is sent to the server, and both sides enforce it. */
static void deadline_is_sent_and_enforced(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = with_timeout(pair, "/t.T/Later", 5 * (uint64_t)SECOND);
    session_pair_run(pair);
    const struct grpc_call *call = pair->fixture->service.calls[0].call;
    assert_int_equal(call->deadline_ns, pair->now_ns + 5 * (uint64_t)SECOND);
    assert_int_equal(grpc_client_core_next_timer_ns(&pair->core), call->deadline_ns);
    pair->fixture->no_reading = true; /* the server's own status does not arrive */
    session_pair_advance_clock(pair, 5 * (uint64_t)SECOND - 1);
    assert_int_equal(record->n_ended, 0);
    session_pair_advance_clock(pair, 1);
    assert_call_ended(record, ST_DEADLINE_EXCEEDED, -1, "no response before the deadline");
    assert_int_equal(pair->fixture->service.calls[0].why, ST_DEADLINE_EXCEEDED);
    pair->fixture->no_reading = false;
    session_pair_run(pair);
    assert_true(grpc_client_core_next_timer_ns(&pair->core) == UINT64_MAX);
    session_pair_free(pair);
}

/* The wait for a connection counts; the server gets the remaining time. */
static void deadline_includes_wait_for_connection(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = with_timeout(pair, "/t.T/Later", 2 * (uint64_t)SECOND);
    struct call_record *late = with_timeout(pair, "/t.T/Later", 3 * (uint64_t)SECOND);
    session_pair_advance_clock(pair, 2 * (uint64_t)SECOND);
    assert_call_ended(record, ST_DEADLINE_EXCEEDED, -1, "no connection before the deadline");
    assert_true(record->not_processed);
    session_pair_run(pair);
    assert_int_equal(pair->fixture->service.calls[0].call->deadline_ns, pair->now_ns + SECOND);
    assert_int_equal(late->n_ended, 0);
    session_pair_free(pair);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void calls_over_max_streams_wait(void **state) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {0};
    limits.max_streams = 3;
    struct session_pair *pair = session_pair_open_with(&limits, &client);
    (void)state;
    session_pair_run(pair);
    struct call_record *record[10];
    for (size_t i = 0; i < 10; i++) {
        record[i] = session_pair_unary(pair, "/t.T/Later", STR("a"));
    }
    for (size_t i = 0; i < 10; i++) {
        session_pair_run(pair);
        size_t open = 10 - i < 3 ? 10 - i : 3;
        assert_int_equal(pair->session.n_open, open);
        struct piece piece = {"b", 1};
        grpc_send(pair->fixture->service.calls[i].call, &piece, 1, NULL, NULL);
        recorded_call_finish(&pair->fixture->service.calls[i], NULL);
        session_pair_run(pair);
        assert_call_ok(record[i]);
    }
    session_pair_free(pair);
}

/* Before the server's SETTINGS more calls than it takes may have started. */
static void calls_over_max_streams_before_settings_may_be_refused(void **state) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {0};
    limits.max_streams = 3;
    struct session_pair *pair = session_pair_open_with(&limits, &client);
    (void)state;
    for (size_t i = 0; i < 50; i++) {
        session_pair_unary(pair, "/t.T/Echo", STR("a"));
    }
    session_pair_run(pair);
    size_t n_ok = 0, n_refused = 0;
    for (size_t i = 0; i < 50; i++) {
        n_ok += pair->record[i].error.status == ST_OK;
        n_refused += pair->record[i].not_processed && pair->record[i].code == GRPC_CODE_UNAVAILABLE;
        assert_int_equal(pair->record[i].n_ended, 1);
    }
    assert_true(n_ok >= 3);
    assert_int_equal(n_ok + n_refused, 50);
    session_pair_free(pair);
}

/* The server drains: open calls are answered, none starts any more, then the connection closes. */
static void server_drain_finishes_open_calls(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", STR("a"));
    session_pair_run(pair);
    grpc_session_drain(&pair->fixture->session);
    session_pair_run(pair);
    assert_false(grpc_client_session_can_start_call(&pair->session));
    struct call_record *waits = session_pair_unary(pair, "/t.T/Echo", STR("a"));
    session_pair_run(pair);
    assert_int_equal(waits->n_ended, 0);
    assert_false(grpc_client_session_is_done(&pair->session));
    struct piece piece = {"b", 1};
    grpc_send(pair->fixture->service.calls[0].call, &piece, 1, NULL, NULL);
    recorded_call_finish(&pair->fixture->service.calls[0], NULL);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_true(grpc_client_session_is_done(&pair->session));
    session_pair_free(pair);
}

static void lost_connection_fails_open_calls(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", STR("a"));
    struct call_record *large = session_pair_unary(pair, "/t.T/Later", varied_text(300000));
    session_pair_run(pair);
    struct call_record *waits = session_pair_unary(pair, "/t.T/Later", STR("a"));
    session_pair_close(pair, "the connection was lost");
    assert_call_ended(record, ST_IO, -1, "the connection was lost");
    assert_call_ended(large, ST_IO, -1, "the connection was lost");
    assert_int_equal(large->n_released, 1);
    assert_int_equal(waits->n_ended, 0);
    session_pair_free(pair);
}

/* A caller that does not read blocks its own call only, which buffers at most one window. */
static void unread_stream_holds_at_most_one_window(void **state) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {.stream_window_bytes = 100000};
    struct session_pair *pair = session_pair_open_with(&limits, &client);
    (void)state;
    struct call_record *record = session_pair_call(
        pair, &(struct grpc_client_call_options){.path = STR("/t.T/Many"), .streams = true});
    call_record_send(record, STR("\x64"));
    session_pair_run(pair);
    assert_int_equal(record->n_messages, 0);
    assert_true(pair->core.budget.n_body_bytes <= 2 * 100000);
    struct call_record *other = session_pair_unary(pair, "/t.T/Echo", varied_text(70000));
    session_pair_run(pair);
    assert_call_ok(other);
    grpc_client_read(record->call);
    session_pair_run(pair);
    assert_call_ok(record);
    assert_int_equal(record->in_len, 100 * 100000);
    session_pair_free(pair);
}

static void message_over_limit_is_body_too_large(void **state) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {.max_message_bytes = 1000, .setting = "--max-answer-size"};
    (void)state;
    for (int level = 0; level < 2; level++) {
        limits.compression_level = level * 6;
        struct session_pair *pair = session_pair_open_with(&limits, &client);
        struct call_record *fits = session_pair_unary(pair, "/t.T/Echo", varied_text(1000));
        struct call_record *record = session_pair_unary(pair, "/t.T/Echo", varied_text(100000));
        session_pair_run(pair);
        assert_call_ok(fits);
        assert_call_ended(record, ST_BODY_TOO_LARGE, -1, "1000 bytes (--max-answer-size)");
        struct call_record *next = session_pair_unary(pair, "/t.T/Echo", varied_text(7));
        session_pair_run(pair);
        assert_call_ok(next);
        assert_int_equal(pair->session.n_open, 0);
        session_pair_free(pair);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_call_at_every_pace_is_answered),
        cmocka_unit_test(bidi_call_at_every_pace_is_answered),
        cmocka_unit_test(client_streaming_at_every_pace_is_answered),
        cmocka_unit_test(server_streaming_delivers_all_messages),
        cmocka_unit_test(writable_event_follows_sent_messages),
        cmocka_unit_test(message_field_is_aligned_to_64_bytes),
        cmocka_unit_test(failing_call_reports_server_status),
        cmocka_unit_test(unary_ok_without_message_is_bad_answer),
        cmocka_unit_test(early_response_stops_sending),
        cmocka_unit_test(metadata_is_encoded_and_decoded),
        cmocka_unit_test(metadata_user_agent_takes_place_of_ours),
        cmocka_unit_test(metadata_invalid_is_bad_field),
        cmocka_unit_test(compressed_responses_are_inflated),
        cmocka_unit_test(deadline_is_sent_and_enforced),
        cmocka_unit_test(deadline_includes_wait_for_connection),
        cmocka_unit_test(calls_over_max_streams_wait),
        cmocka_unit_test(calls_over_max_streams_before_settings_may_be_refused),
        cmocka_unit_test(server_drain_finishes_open_calls),
        cmocka_unit_test(lost_connection_fails_open_calls),
        cmocka_unit_test(unread_stream_holds_at_most_one_window),
        cmocka_unit_test(message_over_limit_is_body_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
