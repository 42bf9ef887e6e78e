/* Limits of a session for clients that are slow, disconnect, or send too much: each test shows the
 * bound, and that a correct client is not affected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/grpc/raw_fixture.h"

static struct str text_of(size_t n) {
    static char text[1 << 20];
    memset(text, 'm', sizeof(text));
    return str_make(text, n);
}

static void assert_grpc(const struct client_call *call, const char *status) {
    assert_string_equal(call->status, "200");
    assert_string_equal(call->grpc_status, status);
    assert_true(call->closed);
}

/* The connection still serves. */
static void assert_serves(struct grpc_fixture *fixture) {
    struct client_call *call = client_unary(&fixture->client, "/t.T/Echo", STR("still"));
    grpc_fixture_run(fixture);
    assert_grpc(call, "0");
}

static struct recorded_call *recorded_call_first(struct grpc_fixture *fixture, const char *path) {
    for (size_t i = 0; i < fixture->service.n; i++) {
        if (strcmp(fixture->service.calls[i].method, path) == 0) {
            return &fixture->service.calls[i];
        }
    }
    fail_msg("%s was not called", path);
    return NULL;
}

/* A client with windows of this size, which it does not open. */
static struct grpc_fixture *grpc_fixture_small_window(uint32_t window) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
    fixture->client.stingy = true;
    grpc_fixture_open_client(fixture, settings, 1);
    grpc_fixture_run(fixture);
    return fixture;
}

/* ---- methods that do not read ---------------------------------------------------------------- */

/* A method that does not read holds at most the stream's window; other calls continue. */
static void unread_call_holds_at_most_one_window(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 10; i++) {
        client_message(&fixture->client, call, false, text_of(100000).ptr, 100000);
    }
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    uint64_t window = fixture->options.limits.stream_window_bytes;
    assert_true(call->out_at <= window && call->out_at > window / 2);
    assert_true(fixture->budget.n_body_bytes <= 2 * window);
    assert_serves(fixture);
    const struct recorded_call *recorded = &fixture->service.calls[0];
    for (int i = 0; i < 10; i++) {
        assert_int_equal(recorded->n_messages, i);
        grpc_read(recorded->call);
        grpc_fixture_run(fixture);
    }
    assert_int_equal(recorded->n_messages, 10);
    assert_int_equal(recorded->n_bytes, 1000000);
    assert_int_equal(recorded->n_half_closed, 0);
    grpc_read(recorded->call);
    assert_int_equal(recorded->n_half_closed, 1);
    recorded_call_finish(&fixture->service.calls[0], NULL);
    grpc_fixture_run(fixture);
    assert_grpc(call, "0");
    grpc_fixture_free(fixture);
}

/* A method that reads a message now and then: the buffered bytes do not grow. */
static void slow_method_bounds_buffered_messages(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 2000; i++) {
        client_message(&fixture->client, call, false, text_of(700).ptr, 700);
    }
    grpc_fixture_run(fixture);
    for (int i = 0; i < 1900; i++) {
        assert_int_equal(fixture->service.calls[0].n_messages, i);
        grpc_read(fixture->service.calls[0].call);
        grpc_fixture_run(fixture);
        assert_true(fixture->budget.n_body_bytes <=
                    2 * fixture->options.limits.stream_window_bytes);
    }
    grpc_fixture_free(fixture);
}

/* A method that requests many messages at once gets each once, as they arrive. */
static void read_many_at_once_delivers_each_message_once(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    grpc_fixture_run(fixture);
    struct recorded_call *recorded = &fixture->service.calls[0];
    for (int i = 0; i < 5; i++) {
        grpc_read(recorded->call);
    }
    for (int i = 0; i < 7; i++) {
        client_message(&fixture->client, call, false, "abc", 3);
    }
    client_end(&fixture->client, call);
    grpc_fixture_run(fixture);
    assert_int_equal(recorded->n_messages, 5);
    grpc_read(recorded->call);
    grpc_read(recorded->call);
    assert_int_equal(recorded->n_messages, 7);
    assert_int_equal(recorded->n_half_closed, 0);
    grpc_read(recorded->call);
    assert_int_equal(recorded->n_half_closed, 1);
    recorded_call_finish(recorded, NULL);
    grpc_fixture_free(fixture);
}

/* The budget bounds all streams together. */
static void budget_bounds_all_streams_together(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    fixture->budget.body_memory = 200000;
    struct client_call *calls[20];
    for (int i = 0; i < 20; i++) {
        calls[i] = client_begin(&fixture->client, "/t.T/Deaf", NULL);
        client_message(&fixture->client, calls[i], false, text_of(30000).ptr, 30000);
        client_message(&fixture->client, calls[i], false, text_of(30000).ptr, 30000);
        grpc_fixture_run(fixture);
        assert_true(fixture->budget.n_body_bytes <= 200000);
    }
    assert_false(calls[0]->closed);
    for (int i = 0; i < 20; i++) { /* a failed call holds nothing */
        if (fixture->service.calls[i].n_cancelled > 0) {
            assert_int_equal(fixture->service.calls[i].why, ST_OVERLOADED);
            recorded_call_finish(&fixture->service.calls[i], NULL);
        }
    }
    client_end(&fixture->client, calls[19]);
    grpc_fixture_run(fixture);
    assert_string_equal(calls[19]->grpc_status, "8");
    assert_non_null(strstr(calls[19]->message, "--body-memory"));
    assert_serves(fixture);
    grpc_fixture_free(fixture);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static struct client_call *begin_with_deadline(struct grpc_fixture *fixture, const char *path) {
    const char *const fields[] = {"grpc-timeout", "5S", NULL};
    struct client_call *call = client_begin(&fixture->client, path, fields);
    client_message(&fixture->client, call, false, "\xc8", 1);
    client_end(&fixture->client, call);
    return call;
}

static void deadline_cancels_call(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = begin_with_deadline(fixture, "/t.T/Later");
    grpc_fixture_run(fixture);
    struct recorded_call *recorded = &fixture->service.calls[0];
    assert_true(grpc_core_next_timer_ns(&fixture->core) == fixture->now_ns + 5 * (uint64_t)SECOND);
    grpc_fixture_advance_clock(fixture, 5 * (uint64_t)SECOND - 1);
    assert_int_equal(recorded->n_cancelled, 0);
    grpc_fixture_advance_clock(fixture, 1);
    assert_int_equal(recorded->n_cancelled, 1);
    assert_int_equal(recorded->why, ST_DEADLINE_EXCEEDED);
    grpc_fixture_run(fixture);
    assert_grpc(call, "4");
    assert_int_equal(fixture->n_alive, 1); /* the method has not finished it */
    struct piece piece = {"late", 4};
    grpc_send(recorded->call, &piece, 1, NULL, NULL);
    recorded_call_finish(recorded, NULL);
    grpc_fixture_run(fixture);
    assert_int_equal(recorded->n_ended, 1);
    assert_int_equal(call->in_len, 0);
    assert_int_equal(fixture->n_alive, 0);
    grpc_fixture_free(fixture);
}

/* Before the message arrived: the method never starts. */
static void deadline_before_message_never_starts_method(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    const char *const fields[] = {"grpc-timeout", "1S", NULL};
    struct client_call *call = client_begin(&fixture->client, "/t.T/Echo", fields);
    grpc_fixture_run(fixture);
    grpc_fixture_advance_clock(fixture, SECOND);
    grpc_fixture_run(fixture);
    assert_grpc(call, "4");
    assert_int_equal(fixture->service.n, 0);
    grpc_fixture_free(fixture);
}

/* In the middle of a response message, part of which was sent: only a reset is possible. */
static void deadline_mid_message_resets_stream(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(50000);
    struct client_call *call = begin_with_deadline(fixture, "/t.T/Many");
    grpc_fixture_run(fixture);
    assert_int_equal(call->in_len, 50000);
    grpc_fixture_advance_clock(fixture, 5 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_CANCEL);
    assert_string_equal(call->grpc_status, "");
    assert_int_equal(fixture->service.calls[0].why, ST_DEADLINE_EXCEEDED);
    assert_int_equal(fixture->service.calls[0].n_ended, 1);
    grpc_fixture_free(fixture);
}

/* The same, where nghttp2 has made the frame header and the output had no capacity for the data. */
static void deadline_with_frame_already_made_ends_call(void **state) {
    (void)state;
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30}};
    grpc_fixture_open_client(fixture, settings, 1);
    nghttp2_session_set_local_window_size(fixture->client.h2, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    grpc_fixture_run(fixture);
    fixture->no_reading = true;
    struct client_call *calls[60];
    for (int i = 0; i < 60; i++) {
        calls[i] = begin_with_deadline(fixture, "/t.T/Many");
    }
    grpc_fixture_run(fixture);
    fixture->no_reading = false;
    grpc_fixture_run_once(fixture); /* one output, which is full */
    size_t n_promised = 0;
    const struct grpc_stream *at;
    TAILQ_FOREACH(at, &fixture->session.streams, link) {
        n_promised += at->out.n_reserved > 0;
    }
    assert_int_equal(n_promised, 1);
    grpc_fixture_advance_clock(fixture, 5 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    for (int i = 0; i < 60; i++) {
        assert_true(calls[i]->closed);
        assert_true(strcmp(calls[i]->grpc_status, "4") == 0 || calls[i]->code == NGHTTP2_CANCEL);
    }
    grpc_fixture_free(fixture);
}

/* The client's window is closed: the status needs none. */
static void deadline_without_window_still_sends_status(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(0);
    struct client_call *call = begin_with_deadline(fixture, "/t.T/Many");
    grpc_fixture_run(fixture);
    assert_string_equal(call->status, "200");
    assert_false(call->closed);
    grpc_fixture_advance_clock(fixture, 5 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    assert_grpc(call, "4");
    assert_int_equal(call->in_len, 0);
    grpc_fixture_free(fixture);
}

/* A message without progress ends its call; a slow one and a stream between messages continue. */
static void body_timeout_ends_paused_message(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Bidi"};
    struct client_call *quiet = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_message(&fixture->client, quiet, false, "whole", 5);
    for (size_t i = 0; i < 2; i++) {
        struct client_call *call = client_begin(&fixture->client, PATHS[i], NULL);
        client_add(&fixture->client, call, "\0\0\0\0\x64", 5);
        for (int j = 0; j < 10; j++) {
            client_add(&fixture->client, call, "a", 1);
            grpc_fixture_run(fixture);
            grpc_fixture_advance_clock(fixture, 19 * (uint64_t)SECOND);
        }
        assert_false(call->closed);
        grpc_fixture_advance_clock(fixture, 1 * (uint64_t)SECOND);
        client_end(&fixture->client, call);
        grpc_fixture_run(fixture);
        assert_grpc(call, "4");
        assert_non_null(strstr(call->message, "--body-timeout"));
    }
    assert_false(quiet->closed);
    assert_int_equal(quiet->in_len, 10);
    grpc_fixture_free(fixture);
}

/* Sends 5,000 bytes of a message at once, then `n_bytes` every ten seconds. Returns: whether the
 * call was ended within two minutes. */
static bool is_ended_when_sending(const char *path, size_t n_bytes) {
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.min_body_rate = 10;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    struct client_call *call = client_begin(&fixture->client, path, NULL);
    client_add(&fixture->client, call, "\0\0\0\x40\0", 5); /* 16,384 bytes */
    client_add(&fixture->client, call, text_of(5000).ptr, 5000);
    for (int i = 0; i < 12 && !call->closed; i++) {
        grpc_fixture_run(fixture);
        grpc_fixture_advance_clock(fixture, 10 * (uint64_t)SECOND);
        client_add(&fixture->client, call, text_of(n_bytes).ptr, n_bytes);
        grpc_fixture_run(fixture);
    }
    bool ended = call->closed;
    if (ended) {
        assert_grpc(call, "4");
        assert_non_null(strstr(call->message, "--min-body-rate"));
    }
    grpc_fixture_free(fixture);
    return ended;
}

static void body_rate_too_low_ends_message(void **state) {
    (void)state;
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Bidi"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(is_ended_when_sending(PATHS[i], 1));
        assert_false(is_ended_when_sending(PATHS[i], 200));
    }
}

/* A streaming call that never sends a message ends as a unary one does. */
static void body_timeout_ends_stream_without_message(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *quiet = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    struct client_call *none = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_message(&fixture->client, quiet, false, "whole", 5);
    grpc_fixture_run(fixture);
    grpc_fixture_advance_clock(fixture, 19 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    assert_false(none->closed);
    grpc_fixture_advance_clock(fixture, 1 * (uint64_t)SECOND);
    client_end(&fixture->client, none);
    grpc_fixture_run(fixture);
    assert_grpc(none, "4");
    assert_non_null(strstr(none->message, "--body-timeout"));
    grpc_fixture_advance_clock(fixture, 1000 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    assert_false(quiet->closed);
    grpc_fixture_free(fixture);
}

/* A drain waits for streaming calls that have begun to work, and for those that just came. */
static void drain_cancels_stream_without_message(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *quiet = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    struct client_call *none = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_message(&fixture->client, quiet, false, "whole", 5);
    grpc_fixture_run(fixture);
    grpc_fixture_advance_clock(fixture, 1 * (uint64_t)SECOND);
    struct client_call *late = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    grpc_fixture_run(fixture);
    grpc_session_drain(&fixture->session);
    client_end(&fixture->client, none);
    grpc_fixture_run(fixture);
    assert_grpc(none, "14");
    assert_false(quiet->closed || late->closed);
    client_message(&fixture->client, late, false, "a", 1);
    client_end(&fixture->client, late);
    client_end(&fixture->client, quiet);
    grpc_fixture_run(fixture);
    assert_grpc(quiet, "0");
    assert_grpc(late, "0");
    assert_true(grpc_session_is_done(&fixture->session));
    grpc_fixture_free(fixture);
}

/* A client that reads nothing of a response. */
static void write_timeout_ends_unread_response(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(1000);
    struct client_call *calls[] = {client_unary(&fixture->client, "/t.T/Echo", text_of(5000)),
                                   client_unary(&fixture->client, "/t.T/Many", STR("\x09"))};
    grpc_fixture_run(fixture);
    assert_int_equal(calls[0]->in_len, 1000);
    grpc_fixture_advance_clock(fixture, 29 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    assert_false(calls[0]->closed || calls[1]->closed);
    grpc_fixture_advance_clock(fixture, 1 * (uint64_t)SECOND);
    grpc_fixture_run(fixture);
    for (int i = 0; i < 2; i++) {
        assert_true(calls[i]->closed);
        assert_int_equal(calls[i]->code, NGHTTP2_CANCEL);
    }
    assert_int_equal(fixture->service.n_released, 1);
    const struct recorded_call *many = recorded_call_first(fixture, "/t.T/Many");
    assert_int_equal(many->n_cancelled, 1);
    assert_int_equal(many->why, ST_CANCELLED);
    grpc_fixture_free(fixture);
}

/* A call of the same connection that waits for its model, or has nothing to send, goes on. */
static void stalled_calls_are_ended_alone(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(1000);
    struct client_call *unread = client_unary(&fixture->client, "/t.T/Echo", text_of(5000));
    struct client_call *read = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_message(&fixture->client, read, false, "abc", 3);
    grpc_fixture_run(fixture);
    uint64_t start_ns = grpc_core_now(&fixture->core);
    grpc_fixture_advance_clock(fixture, SECOND);
    assert_int_equal(grpc_session_end_stalled_calls(&fixture->session, start_ns - 1), 0);
    assert_int_equal(grpc_session_end_stalled_calls(&fixture->session, start_ns), 1);
    assert_int_equal(grpc_session_end_stalled_calls(&fixture->session, start_ns), 0);
    grpc_fixture_run(fixture);
    assert_true(unread->closed);
    assert_int_equal(unread->code, NGHTTP2_CANCEL);
    assert_int_equal(fixture->service.n_released, 2);
    assert_false(read->closed);
    grpc_fixture_free(fixture);
}

/* Further messages that wait after the first do not give the client more time. */
static void write_timeout_is_not_moved_by_queued_messages(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(1000);
    struct client_call *call = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    for (int i = 0; i < 3; i++) {
        assert_false(call->closed);
        client_message(&fixture->client, call, false, text_of(5000).ptr, 5000);
        grpc_fixture_run(fixture);
        grpc_fixture_advance_clock(fixture, 10 * (uint64_t)SECOND);
        grpc_fixture_run(fixture);
    }
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_CANCEL);
    grpc_fixture_free(fixture);
}

/* Takes `n_bytes` every ten seconds. Returns: whether the call was ended within two minutes. */
static bool is_ended_when_reading(int32_t n_bytes) {
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.min_write_rate = 100;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 10}};
    fixture->client.stingy = true;
    grpc_fixture_open_client(fixture, settings, 1);
    struct client_call *call = client_unary(&fixture->client, "/t.T/Echo", text_of(60000));
    grpc_fixture_run(fixture);
    for (int i = 0; i < 12 && !call->closed; i++) {
        nghttp2_submit_window_update(fixture->client.h2, NGHTTP2_FLAG_NONE, call->id, n_bytes);
        grpc_fixture_run(fixture);
        grpc_fixture_advance_clock(fixture, 10 * (uint64_t)SECOND);
        grpc_fixture_run(fixture);
    }
    bool ended = call->closed;
    if (ended) {
        assert_int_equal(call->code, NGHTTP2_CANCEL);
    }
    grpc_fixture_free(fixture);
    return ended;
}

static void write_rate_too_low_ends_response(void **state) {
    (void)state;
    assert_true(is_ended_when_reading(10));
    assert_false(is_ended_when_reading(2000));
}

/* ---- clients that disconnect ----------------------------------------------------------------- */

static void reset(struct grpc_fixture *fixture, const struct client_call *call) {
    nghttp2_submit_rst_stream(fixture->client.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
}

/* A reset in each state of a call leaks nothing. */
static void reset_in_every_state_leaks_nothing(void **state) {
    (void)state;
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Later", "/t.T/Bidi",   "/t.T/Deaf",
                                        "/t.T/Many", "/t.T/Sum",   "/t.T/Nothing"};
    static const char BYTES[] = "\0\0\0\0\11abcdefghi\0\0\0\0\3abc\0\0\0";
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        for (size_t n = 0; n < sizeof(BYTES); n++) {
            struct grpc_fixture *fixture = grpc_fixture_small_window(20);
            struct client_call *call = client_begin(&fixture->client, PATHS[i], NULL);
            client_add(&fixture->client, call, BYTES, n);
            grpc_fixture_run(fixture);
            reset(fixture, call);
            grpc_fixture_run(fixture);
            assert_int_equal(fixture->session.n_open, 0);
            struct recorded_call *recorded = &fixture->service.calls[0];
            if (recorded->call && !recorded->finished) {
                assert_int_equal(recorded->n_cancelled, 1);
                assert_int_equal(recorded->why, ST_CANCELLED);
                recorded_call_finish(recorded, NULL);
            }
            grpc_fixture_run(fixture);
            assert_int_equal(fixture->n_alive, 0);
            grpc_fixture_free(fixture);
        }
    }
}

/* The same while a write is in progress: the bytes stay valid until it ends. */
static void reset_during_write_releases_after_write(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct grpc_fixture *fixture = grpc_fixture_open();
        struct client_call *calls[] = {client_unary(&fixture->client, "/t.T/Echo", text_of(30000)),
                                       client_begin(&fixture->client, "/t.T/Bidi", NULL)};
        client_message(&fixture->client, calls[1], false, text_of(30000).ptr, 30000);
        fixture->no_reading = true;
        grpc_fixture_run(fixture);
        assert_int_equal(fixture->service.n_released, 0);
        assert_true(grpc_session_collect_output(&fixture->session, fixture->output));
        if (lost) {
            grpc_session_close(&fixture->session);
        } else {
            reset(fixture, calls[0]);
            reset(fixture, calls[1]);
            grpc_fixture_run(fixture);
        }
        grpc_core_sweep(&fixture->core);
        size_t sum = 0; /* the sanitizer checks that they are valid */
        for (size_t i = 0; i < fixture->output->n; i++) {
            const unsigned char *bytes = fixture->output->pieces[i].data;
            for (size_t j = 0; j < fixture->output->pieces[i].n_bytes; j++) {
                sum += bytes[j];
            }
        }
        assert_true(sum > 0);
        assert_int_equal(fixture->service.n_released, 0);
        grpc_session_on_written(&fixture->session);
        grpc_core_sweep(&fixture->core);
        assert_int_equal(fixture->service.n_released, 2);
        grpc_fixture_free(fixture);
    }
}

/* The connection is lost with calls in each state. */
static void lost_connection_cancels_all_calls(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_small_window(100);
    client_unary(&fixture->client, "/t.T/Later", STR("a"));
    client_unary(&fixture->client, "/t.T/Echo", text_of(1000));
    client_unary(&fixture->client, "/t.T/Many", STR("\x09"));
    client_begin(&fixture->client, "/t.T/Bidi", NULL);
    struct client_call *half = client_begin(&fixture->client, "/t.T/Bidi", NULL);
    client_add(&fixture->client, half, "\0\0\0\0\5ab", 7);
    grpc_fixture_run(fixture);
    grpc_session_close(&fixture->session);
    grpc_core_sweep(&fixture->core);
    assert_int_equal(recorded_call_first(fixture, "/t.T/Later")->n_cancelled, 1);
    assert_int_equal(fixture->n_alive, 1);
    grpc_fixture_free(fixture);
}

/* A connection with many calls. */
static struct grpc_fixture *open_crowd(size_t n) {
    struct grpc_limits limits = grpc_fixture_limits();
    limits.max_streams = 1000;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    grpc_fixture_run(fixture);
    for (size_t i = 0; i < n; i++) {
        client_begin(&fixture->client, "/t.T/Bidi", NULL);
    }
    grpc_fixture_run(fixture);
    assert_int_equal(fixture->service.n, n);
    return fixture;
}

static size_t count_cancelled(const struct grpc_fixture *fixture) {
    size_t n = 0;
    for (size_t i = 0; i < fixture->service.n; i++) {
        n += (size_t)fixture->service.calls[i].n_cancelled;
    }
    return n;
}

/* Closing thousands of calls of a lost connection would hold the event loop: some with each sweep,
 * the oldest first. A method may send on its call, and finish it, before it is cancelled. */
static void lost_connection_cancels_calls_in_parts(void **state) {
    enum { CALLS = 250, AT_ONCE = 128 };
    (void)state;
    struct grpc_fixture *fixture = open_crowd(CALLS);
    struct recorded_call *calls = fixture->service.calls;
    struct piece piece = {"abc", 3};
    grpc_session_close(&fixture->session);
    assert_int_equal(count_cancelled(fixture), AT_ONCE);
    assert_int_equal(calls[AT_ONCE - 1].n_cancelled, 1);
    grpc_send(calls[CALLS - 1].call, &piece, 1, NULL, NULL);
    grpc_send(calls[CALLS - 2].call, &piece, 1, NULL, NULL);
    recorded_call_finish(&calls[CALLS - 1], NULL);
    assert_false(grpc_core_sweep(&fixture->core));
    assert_int_equal(count_cancelled(fixture), CALLS - 1);
    assert_int_equal(calls[CALLS - 1].n_ended, 1);
    assert_int_equal(fixture->n_alive, 0);
    grpc_fixture_free(fixture);
}

/* The next call to be looked at may end in between. */
static void drain_cancels_calls_in_parts(void **state) {
    enum { CALLS = 250, AT_ONCE = 128 };
    (void)state;
    struct grpc_fixture *fixture = open_crowd(CALLS);
    grpc_fixture_advance_clock(fixture, 1 * (uint64_t)SECOND);
    grpc_session_drain(&fixture->session);
    assert_int_equal(count_cancelled(fixture), AT_ONCE);
    struct grpc_stream *next = fixture->session.drain_next;
    assert_int_equal(next->id, 2 * AT_ONCE + 1);
    nghttp2_submit_rst_stream(fixture->client.h2, NGHTTP2_FLAG_NONE, next->id, NGHTTP2_CANCEL);
    const uint8_t *data;
    ssize_t n = nghttp2_session_mem_send(fixture->client.h2, &data);
    assert_true(n > 0);
    grpc_fixture_feed(fixture, data, (size_t)n);
    assert_int_equal(fixture->session.drain_next->id, 2 * AT_ONCE + 3);
    assert_false(grpc_session_drain_some(&fixture->session));
    assert_int_equal(count_cancelled(fixture), CALLS);
    grpc_fixture_run(fixture);
    grpc_fixture_free(fixture);
}

/* A response sent before the request was read: the stream is reset with NO_ERROR. */
static void early_response_resets_with_no_error(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_begin(&fixture->client, "/t.T/Deaf", NULL);
    client_message(&fixture->client, call, false, text_of(500000).ptr, 500000);
    grpc_fixture_run(fixture);
    recorded_call_finish(&fixture->service.calls[0], NULL);
    grpc_fixture_run(fixture);
    assert_grpc(call, "0");
    assert_int_equal(call->code, NGHTTP2_NO_ERROR);
    assert_serves(fixture);
    grpc_fixture_free(fixture);
}

/* nghttp2 refuses to send the trailers: the call still ends. */
static void trailers_too_large_reset_stream(void **state) {
    (void)state;
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.request_memory = 8 << 20;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    struct client_call *call = client_unary(&fixture->client, "/t.T/Later", STR("a"));
    grpc_fixture_run(fixture);
    for (int i = 0; i < 3; i++) {
        grpc_set_trailer(fixture->service.calls[0].call, STR("large"), text_of(500000));
    }
    recorded_call_finish(&fixture->service.calls[0], NULL);
    grpc_fixture_run(fixture);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_INTERNAL_ERROR);
    assert_serves(fixture);
    grpc_fixture_free(fixture);
}

/* A head over the limit is refused and the connection stays open; far over it, the connection
 * ends. */
static void head_over_limit_is_refused(void **state) {
    (void)state;
    static char value[4001];
    memset(value, 'v', 4000);
    const char *const two[] = {"a", value, "b", value, NULL};
    const char *const many[] = {"a", value, "b", value, "c", value, NULL};
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *ok = client_begin(&fixture->client, "/t.T/Deaf", two + 2);
    struct client_call *over = client_begin(&fixture->client, "/t.T/Echo", many);
    client_message(&fixture->client, over, false, "a", 1);
    client_end(&fixture->client, over);
    grpc_fixture_run(fixture);
    assert_grpc(over, "8");
    assert_non_null(strstr(over->message, "--max-header-size"));
    assert_false(ok->closed);
    assert_serves(fixture);
    grpc_fixture_free(fixture);
}

/* ---- end of a connection --------------------------------------------------------------------- */

static void drain_sends_two_goaways_and_finishes_calls(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct client_call *call = client_unary(&fixture->client, "/t.T/Later", STR("a"));
    grpc_fixture_run(fixture);
    grpc_session_drain(&fixture->session);
    grpc_session_drain(&fixture->session);
    assert_true(grpc_fixture_run_once(fixture));
    assert_true(fixture->client.goaway);
    assert_int_equal(fixture->client.goaway_last, INT32_MAX);
    assert_false(grpc_session_is_done(&fixture->session));
    /* Started before the client read the notice: the call is served. */
    struct raw raw = {.id = call->id};
    raw_call(&raw, "/t.T/Later", 0);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    grpc_fixture_feed(fixture, raw.bytes, raw.n);
    assert_int_equal(fixture->service.n, 2);
    grpc_fixture_run(fixture); /* PING ACK */
    assert_int_equal(fixture->client.goaway_last, raw.id);
    /* Started afterwards: ignored. */
    raw.n = 0;
    raw_call(&raw, "/t.T/Later", NGHTTP2_FLAG_END_STREAM);
    grpc_fixture_feed(fixture, raw.bytes, raw.n);
    assert_int_equal(fixture->session.n_alive, 2);
    recorded_call_finish(&fixture->service.calls[0], NULL);
    grpc_fixture_run(fixture);
    assert_grpc(call, "0");
    assert_false(grpc_session_is_done(&fixture->session));
    fixture->keep_raw = true; /* the client does not know that call */
    recorded_call_finish(&fixture->service.calls[1], NULL);
    while (grpc_fixture_run_once(fixture)) {
    }
    assert_true(grpc_session_is_done(&fixture->session));
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static void first_bytes_of_other_protocols_are_answered(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *answer;
    } ROWS[] = {{"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 505 "}, {"\x16\x03\x01", ""}};
    for (size_t i = 0; i < 2; i++) {
        struct grpc_fixture *fixture = grpc_fixture_open();
        fixture->keep_raw = true;
        assert_false(grpc_session_has_output(&fixture->session)); /* the client sends first */
        grpc_fixture_feed(fixture, ROWS[i].bytes, strlen(ROWS[i].bytes));
        while (grpc_fixture_run_once(fixture)) {
        }
        assert_true(grpc_session_is_done(&fixture->session));
        size_t n = strlen(ROWS[i].answer);
        assert_true(n > 0 ? fixture->raw_len > n : fixture->raw_len == 0);
        assert_memory_equal(n > 0 ? fixture->raw : "", ROWS[i].answer, n);
        grpc_fixture_free(fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unread_call_holds_at_most_one_window),
        cmocka_unit_test(slow_method_bounds_buffered_messages),
        cmocka_unit_test(read_many_at_once_delivers_each_message_once),
        cmocka_unit_test(budget_bounds_all_streams_together),
        cmocka_unit_test(deadline_cancels_call),
        cmocka_unit_test(deadline_before_message_never_starts_method),
        cmocka_unit_test(deadline_mid_message_resets_stream),
        cmocka_unit_test(deadline_with_frame_already_made_ends_call),
        cmocka_unit_test(deadline_without_window_still_sends_status),
        cmocka_unit_test(body_timeout_ends_paused_message),
        cmocka_unit_test(body_rate_too_low_ends_message),
        cmocka_unit_test(body_timeout_ends_stream_without_message),
        cmocka_unit_test(drain_cancels_stream_without_message),
        cmocka_unit_test(write_timeout_ends_unread_response),
        cmocka_unit_test(stalled_calls_are_ended_alone),
        cmocka_unit_test(write_timeout_is_not_moved_by_queued_messages),
        cmocka_unit_test(write_rate_too_low_ends_response),
        cmocka_unit_test(reset_in_every_state_leaks_nothing),
        cmocka_unit_test(reset_during_write_releases_after_write),
        cmocka_unit_test(lost_connection_cancels_all_calls),
        cmocka_unit_test(lost_connection_cancels_calls_in_parts),
        cmocka_unit_test(drain_cancels_calls_in_parts),
        cmocka_unit_test(early_response_resets_with_no_error),
        cmocka_unit_test(trailers_too_large_reset_stream),
        cmocka_unit_test(head_over_limit_is_refused),
        cmocka_unit_test(drain_sends_two_goaways_and_finishes_calls),
        cmocka_unit_test(first_bytes_of_other_protocols_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
