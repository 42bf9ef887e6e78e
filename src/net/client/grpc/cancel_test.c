/* Calls of the gRPC client that are cancelled, in each state of theirs: the server sees a reset
 * where it knew of the call, and each call ends once. */
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

/* ---- cancelling, in each state --------------------------------------------------------------- */

static void assert_cancelled(const struct asked *asked) {
    assert_failed(asked, ST_CANCELLED, -1, "cancelled");
}

static void test_cancel_while_waiting(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_unary(duo, "/t.T/Later", text_of(70000));
    grpc_client_cancel(asked->call);
    grpc_client_cancel(asked->call);
    assert_int_equal(asked->n_ended, 0); /* never from within a function */
    duo_run(duo);
    assert_cancelled(asked);
    assert_true(asked->untouched);
    assert_int_equal(asked->n_released, 1);
    assert_int_equal(duo->world->service.n, 0);
    duo_end(duo);
}

/* nghttp2 has it, and its head has not left. */
static void test_cancel_before_the_head_left(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    duo_run(duo);
    struct asked *asked = duo_unary(duo, "/t.T/Later", text_of(70000));
    grpc_client_core_dispatch(&duo->core, &duo->session);
    assert_int_equal(duo->session.n_open, 1);
    grpc_client_cancel(asked->call);
    duo_run(duo);
    assert_cancelled(asked);
    assert_int_equal(asked->n_released, 1);
    assert_int_equal(duo->session.n_open, 0);
    assert_int_equal(duo->world->service.n, 0);
    struct asked *next = duo_unary(duo, "/t.T/Echo", STR("a"));
    duo_run(duo);
    assert_ok(next);
    duo_end(duo);
}

/* The message is partly on its way: collected, promised, or held up by the window. */
static void test_cancel_within_a_message(void **state) {
    (void)state;
    for (size_t n_turns = 1; n_turns < 6; n_turns++) {
        struct duo *duo = duo_begin();
        struct asked *asked = duo_unary(duo, "/t.T/Later", text_of(500000));
        struct asked *other = duo_unary(duo, "/t.T/Echo", text_of(300000));
        for (size_t i = 0; i < n_turns; i++) {
            duo_turn(duo);
        }
        grpc_client_cancel(asked->call);
        duo_run(duo);
        assert_cancelled(asked);
        assert_int_equal(asked->n_released, 1);
        assert_ok(other);
        assert_int_equal(duo->session.n_open, 0);
        duo_end(duo);
    }
}

/* Its bytes are with the socket when it is cancelled: they are released when they have left, and
 * the caller need not wait for that. */
static void test_cancel_while_writing(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    duo_run(duo);
    struct asked *asked = duo_unary(duo, "/t.T/Later", text_of(50000));
    grpc_client_core_dispatch(&duo->core, &duo->session);
    assert_true(grpc_client_session_output(&duo->session, &duo->output));
    grpc_client_cancel(asked->call);
    grpc_client_core_sweep(&duo->core);
    assert_cancelled(asked);
    assert_int_equal(asked->n_released, 0);
    for (size_t i = 0; i < duo->output.n; i++) {
        world_feed(duo->world, duo->output.pieces[i].data, duo->output.pieces[i].n_bytes);
    }
    grpc_client_session_written(&duo->session);
    assert_int_equal(asked->n_released, 1);
    duo_run(duo);
    assert_int_equal(duo->core.n_alive, 0);
    duo_end(duo);
}

/* The server has it; it hears of it. */
static void test_cancel_while_the_server_works(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_unary(duo, "/t.T/Later", STR("a"));
    duo_run(duo);
    grpc_client_cancel(asked->call);
    duo_run(duo);
    assert_cancelled(asked);
    assert_int_equal(duo->world->service.calls[0].n_cancelled, 1);
    duo_end(duo);
}

static void test_cancel_within_events(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked = duo_stream(duo, "/t.T/Many");
    asked->cancels = true;
    asked_send(asked, STR("\xc8"));
    duo_run(duo);
    assert_cancelled(asked);
    struct asked *unary_one = duo_unary(duo, "/t.T/Echo", text_of(30000));
    unary_one->cancels = true;
    duo_run(duo);
    assert_cancelled(unary_one);
    assert_int_equal(duo->session.n_open, 0);
    duo_end(duo);
}

/* All has come; the caller has not asked for it. */
static void test_cancel_before_reading(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked =
        duo_ask(duo, &(struct grpc_client_ask){.path = STR("/t.T/Bidi"), .streams = true});
    asked_send(asked, text_of(1000));
    asked_send(asked, text_of(2000));
    grpc_client_half_close(asked->call);
    duo_run(duo);
    assert_int_equal(asked->n_messages, 0);
    assert_int_equal(asked->n_ended, 0);
    grpc_client_cancel(asked->call);
    duo_run(duo);
    assert_cancelled(asked);
    duo_end(duo);
}

/* What came before the end is given before it, however late it is asked for. */
static void test_reading_late(void **state) {
    struct duo *duo = duo_begin();
    (void)state;
    struct asked *asked =
        duo_ask(duo, &(struct grpc_client_ask){.path = STR("/t.T/Bidi"), .streams = true});
    asked->eager = false;
    asked_send(asked, text_of(1000));
    asked_send(asked, text_of(2000));
    grpc_client_half_close(asked->call);
    duo_run(duo);
    grpc_client_read(asked->call);
    duo_run(duo);
    assert_true(asked->n_messages == 1 && asked->n_ended == 0);
    duo_close(duo, "gone"); /* the call does not need it any more */
    grpc_client_read(asked->call);
    grpc_client_core_sweep(&duo->core);
    assert_int_equal(asked->n_messages, 2);
    assert_ok(asked);
    duo_end(duo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_while_waiting),
        cmocka_unit_test(test_cancel_before_the_head_left),
        cmocka_unit_test(test_cancel_within_a_message),
        cmocka_unit_test(test_cancel_while_writing),
        cmocka_unit_test(test_cancel_while_the_server_works),
        cmocka_unit_test(test_cancel_within_events),
        cmocka_unit_test(test_cancel_before_reading),
        cmocka_unit_test(test_reading_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
