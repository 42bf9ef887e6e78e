/* Calls of the gRPC client cancelled in each state: the server gets a reset if it knows the call,
 * and each call ends once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc_session/session_fixture.h"

#include "codec/grpc/status.h"

/* ---- cancelling, in each state --------------------------------------------------------------- */

static void assert_cancelled(const struct call_record *record) {
    assert_call_ended(record, ST_CANCELLED, -1, "cancelled");
}

static void cancel_waiting_call_never_reaches_server(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", varied_text(70000));
    grpc_client_cancel(record->call);
    grpc_client_cancel(record->call);
    assert_int_equal(record->n_ended, 0); /* never from within a function */
    session_pair_run(pair);
    assert_cancelled(record);
    assert_true(record->not_processed);
    assert_int_equal(record->n_released, 1);
    assert_int_equal(pair->fixture->service.n, 0);
    session_pair_free(pair);
}

/* nghttp2 has the call, and its head is not sent. */
static void cancel_before_head_sent_never_reaches_server(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    session_pair_run(pair);
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", varied_text(70000));
    grpc_client_core_dispatch(&pair->core, &pair->session);
    assert_int_equal(pair->session.n_open, 1);
    grpc_client_cancel(record->call);
    session_pair_run(pair);
    assert_cancelled(record);
    assert_int_equal(record->n_released, 1);
    assert_int_equal(pair->session.n_open, 0);
    assert_int_equal(pair->fixture->service.n, 0);
    struct call_record *next = session_pair_unary(pair, "/t.T/Echo", STR("a"));
    session_pair_run(pair);
    assert_call_ok(next);
    session_pair_free(pair);
}

/* Part of the message is collected, reserved, or blocked by the window. */
static void cancel_mid_message_releases_once(void **state) {
    (void)state;
    for (size_t n_turns = 1; n_turns < 6; n_turns++) {
        struct session_pair *pair = session_pair_open();
        struct call_record *record = session_pair_unary(pair, "/t.T/Later", varied_text(500000));
        struct call_record *other = session_pair_unary(pair, "/t.T/Echo", varied_text(300000));
        for (size_t i = 0; i < n_turns; i++) {
            session_pair_run_once(pair);
        }
        grpc_client_cancel(record->call);
        session_pair_run(pair);
        assert_cancelled(record);
        assert_int_equal(record->n_released, 1);
        assert_call_ok(other);
        assert_int_equal(pair->session.n_open, 0);
        session_pair_free(pair);
    }
}

/* A write of its bytes is in progress: they are released when it ends; the caller gets
 * GRPC_CLIENT_END before. */
static void cancel_during_write_releases_after_write(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    session_pair_run(pair);
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", varied_text(50000));
    grpc_client_core_dispatch(&pair->core, &pair->session);
    assert_true(grpc_client_session_collect_output(&pair->session, &pair->output));
    grpc_client_cancel(record->call);
    grpc_client_core_sweep(&pair->core);
    assert_cancelled(record);
    assert_int_equal(record->n_released, 0);
    for (size_t i = 0; i < pair->output.n; i++) {
        grpc_fixture_feed(pair->fixture, pair->output.pieces[i].data,
                          pair->output.pieces[i].n_bytes);
    }
    grpc_client_session_on_written(&pair->session);
    assert_int_equal(record->n_released, 1);
    session_pair_run(pair);
    assert_int_equal(pair->core.n_alive, 0);
    session_pair_free(pair);
}

/* What nghttp2 has promised of a message is copied: the caller's bytes may go at once. */
static void cancel_mid_message_gives_bytes_back(void **state) {
    (void)state;
    bool any_reserved = false;
    for (size_t n_turns = 1; n_turns < 6; n_turns++) {
        struct session_pair *pair = session_pair_open();
        struct str text = varied_text(500000);
        char *bytes = malloc(text.len);
        memcpy(bytes, text.ptr, text.len);
        struct call_record *record = session_pair_call(
            pair, &(struct grpc_client_call_options){.path = STR("/t.T/Later"), .streams = true});
        for (size_t i = 0; i < text.len; i += 1000) { /* copied: they fill an output soon */
            const struct piece piece = {bytes + i, 1000};
            grpc_client_send(record->call, &piece, 1, NULL, NULL);
        }
        for (size_t i = 0; i < n_turns; i++) {
            session_pair_run_once(pair);
        }
        struct grpc_client_stream *stream = (struct grpc_client_stream *)record->call;
        grpc_client_cancel(record->call);
        any_reserved = any_reserved || stream->out.n_reserved > 0;
        assert_true(grpc_client_stream_give_bytes_back(stream));
        memset(bytes, 0, text.len);
        free(bytes);
        struct call_record *other = session_pair_unary(pair, "/t.T/Echo", varied_text(300000));
        session_pair_run(pair);
        assert_cancelled(record);
        assert_call_ok(other);
        assert_int_equal(pair->session.n_open, 0);
        session_pair_free(pair);
    }
    assert_true(any_reserved);
}

/* The server has the call and is notified. */
static void cancel_running_call_reaches_server(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_unary(pair, "/t.T/Later", STR("a"));
    session_pair_run(pair);
    grpc_client_cancel(record->call);
    session_pair_run(pair);
    assert_cancelled(record);
    assert_int_equal(pair->fixture->service.calls[0].n_cancelled, 1);
    session_pair_free(pair);
}

static void cancel_inside_event_callback_ends_call(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_stream(pair, "/t.T/Many");
    record->cancels = true;
    call_record_send(record, STR("\xc8"));
    session_pair_run(pair);
    assert_cancelled(record);
    struct call_record *unary_one = session_pair_unary(pair, "/t.T/Echo", varied_text(30000));
    unary_one->cancels = true;
    session_pair_run(pair);
    assert_cancelled(unary_one);
    assert_int_equal(pair->session.n_open, 0);
    session_pair_free(pair);
}

/* The whole response was received, and the caller has not read it. */
static void cancel_unread_call_discards_messages(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_call(
        pair, &(struct grpc_client_call_options){.path = STR("/t.T/Bidi"), .streams = true});
    call_record_send(record, varied_text(1000));
    call_record_send(record, varied_text(2000));
    grpc_client_half_close(record->call);
    session_pair_run(pair);
    assert_int_equal(record->n_messages, 0);
    assert_int_equal(record->n_ended, 0);
    grpc_client_cancel(record->call);
    session_pair_run(pair);
    assert_cancelled(record);
    session_pair_free(pair);
}

/* Messages before END_STREAM are delivered before the end, however late they are requested. */
static void read_after_end_of_stream_delivers_messages_first(void **state) {
    struct session_pair *pair = session_pair_open();
    (void)state;
    struct call_record *record = session_pair_call(
        pair, &(struct grpc_client_call_options){.path = STR("/t.T/Bidi"), .streams = true});
    record->eager = false;
    call_record_send(record, varied_text(1000));
    call_record_send(record, varied_text(2000));
    grpc_client_half_close(record->call);
    session_pair_run(pair);
    grpc_client_read(record->call);
    session_pair_run(pair);
    assert_true(record->n_messages == 1 && record->n_ended == 0);
    session_pair_close(pair, "gone"); /* the call does not need the connection any more */
    grpc_client_read(record->call);
    grpc_client_core_sweep(&pair->core);
    assert_int_equal(record->n_messages, 2);
    assert_call_ok(record);
    session_pair_free(pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_waiting_call_never_reaches_server),
        cmocka_unit_test(cancel_before_head_sent_never_reaches_server),
        cmocka_unit_test(cancel_mid_message_releases_once),
        cmocka_unit_test(cancel_during_write_releases_after_write),
        cmocka_unit_test(cancel_mid_message_gives_bytes_back),
        cmocka_unit_test(cancel_running_call_reaches_server),
        cmocka_unit_test(cancel_inside_event_callback_ends_call),
        cmocka_unit_test(cancel_unread_call_discards_messages),
        cmocka_unit_test(read_after_end_of_stream_delivers_messages_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
