/* What a session does about clients that are slow, go away, take or send too much: each rule by a
 * test that shows the bound, and that a well-behaved client is not met by it. */
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
static void assert_serves(struct world *world) {
    struct client_call *call = client_unary(&world->client, "/t.T/Echo", STR("still"));
    world_run(world);
    assert_grpc(call, "0");
}

static struct seen *seen_first(struct world *world, const char *path) {
    for (size_t i = 0; i < world->service.n; i++) {
        if (strcmp(world->service.calls[i].method, path) == 0) {
            return &world->service.calls[i];
        }
    }
    fail_msg("%s was not called", path);
    return NULL;
}

/* A client whose windows have so many bytes, and that does not open them. */
static struct world *world_stingy(uint32_t window) {
    struct grpc_limits limits = world_limits();
    struct world *world = world_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
    world->client.stingy = true;
    world_open(world, settings, 1);
    world_run(world);
    return world;
}

/* ---- methods that do not read ---------------------------------------------------------------- */

/* No more than the stream's window is held for a method that does not read; others go on. */
static void test_deaf(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 10; i++) {
        client_message(&world->client, call, false, text_of(100000).ptr, 100000);
    }
    client_end(&world->client, call);
    world_run(world);
    uint64_t window = world->options.limits.stream_window_bytes;
    assert_true(call->out_at <= window && call->out_at > window / 2);
    assert_true(world->budget.n_body_bytes <= 2 * window);
    assert_serves(world);
    const struct seen *seen = &world->service.calls[0];
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen->n_messages, i);
        grpc_read(seen->call);
        world_run(world);
    }
    assert_int_equal(seen->n_messages, 10);
    assert_int_equal(seen->n_bytes, 1000000);
    assert_int_equal(seen->n_half_closed, 0);
    grpc_read(seen->call);
    assert_int_equal(seen->n_half_closed, 1);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    world_end(world);
}

/* One that reads a message now and then: what is kept does not grow, whatever was sent. */
static void test_slow_reading(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 2000; i++) {
        client_message(&world->client, call, false, text_of(700).ptr, 700);
    }
    world_run(world);
    for (int i = 0; i < 1900; i++) {
        assert_int_equal(world->service.calls[0].n_messages, i);
        grpc_read(world->service.calls[0].call);
        world_run(world);
        assert_true(world->budget.n_body_bytes <= 2 * world->options.limits.stream_window_bytes);
    }
    world_end(world);
}

/* A method that asks for many at once gets them as they come, and each once. */
static void test_reading_ahead(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    world_run(world);
    struct seen *seen = &world->service.calls[0];
    for (int i = 0; i < 5; i++) {
        grpc_read(seen->call);
    }
    for (int i = 0; i < 7; i++) {
        client_message(&world->client, call, false, "abc", 3);
    }
    client_end(&world->client, call);
    world_run(world);
    assert_int_equal(seen->n_messages, 5);
    grpc_read(seen->call);
    grpc_read(seen->call);
    assert_int_equal(seen->n_messages, 7);
    assert_int_equal(seen->n_half_closed, 0);
    grpc_read(seen->call);
    assert_int_equal(seen->n_half_closed, 1);
    seen_finish(seen, NULL);
    world_end(world);
}

/* All streams together are bounded by the budget. */
static void test_budget(void **state) {
    (void)state;
    struct world *world = world_begin();
    world->budget.body_memory_bytes = 200000;
    struct client_call *calls[20];
    for (int i = 0; i < 20; i++) {
        calls[i] = client_begin(&world->client, "/t.T/Deaf", NULL);
        client_message(&world->client, calls[i], false, text_of(30000).ptr, 30000);
        client_message(&world->client, calls[i], false, text_of(30000).ptr, 30000);
        world_run(world);
        assert_true(world->budget.n_body_bytes <= 200000);
    }
    assert_false(calls[0]->closed);
    for (int i = 0; i < 20; i++) { /* who failed holds nothing */
        if (world->service.calls[i].n_cancelled > 0) {
            assert_int_equal(world->service.calls[i].why, ST_OVERLOADED);
            seen_finish(&world->service.calls[i], NULL);
        }
    }
    client_end(&world->client, calls[19]);
    world_run(world);
    assert_string_equal(calls[19]->grpc_status, "8");
    assert_non_null(strstr(calls[19]->message, "--body-memory"));
    assert_serves(world);
    world_end(world);
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct client_call *begin_with_deadline(struct world *world, const char *path) {
    const char *const fields[] = {"grpc-timeout", "5S", NULL};
    struct client_call *call = client_begin(&world->client, path, fields);
    client_message(&world->client, call, false, "\xc8", 1);
    client_end(&world->client, call);
    return call;
}

static void test_deadline(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = begin_with_deadline(world, "/t.T/Later");
    world_run(world);
    struct seen *seen = &world->service.calls[0];
    assert_true(grpc_core_next_ns(&world->core) == world->now_ns + 5 * (uint64_t)SECOND);
    world_pass(world, 5 * (uint64_t)SECOND - 1);
    assert_int_equal(seen->n_cancelled, 0);
    world_pass(world, 1);
    assert_int_equal(seen->n_cancelled, 1);
    assert_int_equal(seen->why, ST_DEADLINE_EXCEEDED);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(world->n_alive, 1); /* the method still has it */
    struct piece piece = {"late", 4};
    grpc_send(seen->call, &piece, 1, NULL, NULL);
    seen_finish(seen, NULL);
    world_run(world);
    assert_int_equal(seen->n_ended, 1);
    assert_int_equal(call->in_len, 0);
    assert_int_equal(world->n_alive, 0);
    world_end(world);
}

/* Before the message has come; the method never hears of it. */
static void test_deadline_unseen(void **state) {
    (void)state;
    struct world *world = world_begin();
    const char *const fields[] = {"grpc-timeout", "1S", NULL};
    struct client_call *call = client_begin(&world->client, "/t.T/Echo", fields);
    world_run(world);
    world_pass(world, SECOND);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(world->service.n, 0);
    world_end(world);
}

/* Within a message of the answer, a part of which has left: only a reset can follow. */
static void test_deadline_in_message(void **state) {
    (void)state;
    struct world *world = world_stingy(50000);
    struct client_call *call = begin_with_deadline(world, "/t.T/Many");
    world_run(world);
    assert_int_equal(call->in_len, 50000);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_CANCEL);
    assert_string_equal(call->grpc_status, "");
    assert_int_equal(world->service.calls[0].why, ST_DEADLINE_EXCEEDED);
    assert_int_equal(world->service.calls[0].n_ended, 1);
    world_end(world);
}

/* The same, where nghttp2 has made the frame already and the output had no room for it. */
static void test_deadline_promised(void **state) {
    (void)state;
    struct grpc_limits limits = world_limits();
    struct world *world = world_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30}};
    world_open(world, settings, 1);
    nghttp2_session_set_local_window_size(world->client.h2, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    world_run(world);
    world->no_reading = true;
    struct client_call *calls[60];
    for (int i = 0; i < 60; i++) {
        calls[i] = begin_with_deadline(world, "/t.T/Many");
    }
    world_run(world);
    world->no_reading = false;
    world_turn(world); /* one output, and it is full */
    size_t n_promised = 0;
    for (const struct grpc_stream *at = world->session.streams; at; at = at->next) {
        n_promised += at->out.promised > 0;
    }
    assert_int_equal(n_promised, 1);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    for (int i = 0; i < 60; i++) {
        assert_true(calls[i]->closed);
        assert_true(strcmp(calls[i]->grpc_status, "4") == 0 || calls[i]->code == NGHTTP2_CANCEL);
    }
    world_end(world);
}

/* The client's window is shut: the status needs none. */
static void test_deadline_without_window(void **state) {
    (void)state;
    struct world *world = world_stingy(0);
    struct client_call *call = begin_with_deadline(world, "/t.T/Many");
    world_run(world);
    assert_string_equal(call->status, "200");
    assert_false(call->closed);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(call->in_len, 0);
    world_end(world);
}

/* A message that pauses ends its call; one that goes on slowly, and a stream between messages, do
 * not. */
static void test_message_pauses(void **state) {
    (void)state;
    struct world *world = world_begin();
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Bidi"};
    struct client_call *quiet = client_begin(&world->client, "/t.T/Bidi", NULL);
    client_message(&world->client, quiet, false, "whole", 5);
    for (size_t i = 0; i < 2; i++) {
        struct client_call *call = client_begin(&world->client, PATHS[i], NULL);
        client_add(&world->client, call, "\0\0\0\0\x64", 5);
        for (int j = 0; j < 10; j++) {
            client_add(&world->client, call, "a", 1);
            world_run(world);
            world_pass(world, 19 * (uint64_t)SECOND);
        }
        assert_false(call->closed);
        world_pass(world, 1 * (uint64_t)SECOND);
        client_end(&world->client, call);
        world_run(world);
        assert_grpc(call, "4");
        assert_non_null(strstr(call->message, "--body-timeout"));
    }
    assert_false(quiet->closed);
    assert_int_equal(quiet->in_len, 10);
    world_end(world);
}

/* A client that takes nothing of an answer. */
static void test_answer_pauses(void **state) {
    (void)state;
    struct world *world = world_stingy(1000);
    struct client_call *calls[] = {client_unary(&world->client, "/t.T/Echo", text_of(5000)),
                                   client_unary(&world->client, "/t.T/Many", STR("\x09"))};
    world_run(world);
    assert_int_equal(calls[0]->in_len, 1000);
    world_pass(world, 29 * (uint64_t)SECOND);
    world_run(world);
    assert_false(calls[0]->closed || calls[1]->closed);
    world_pass(world, 1 * (uint64_t)SECOND);
    world_run(world);
    for (int i = 0; i < 2; i++) {
        assert_true(calls[i]->closed);
        assert_int_equal(calls[i]->code, NGHTTP2_CANCEL);
    }
    assert_int_equal(world->service.n_released, 1);
    const struct seen *many = seen_first(world, "/t.T/Many");
    assert_int_equal(many->n_cancelled, 1);
    assert_int_equal(many->why, ST_CANCELLED);
    world_end(world);
}

/* ---- clients that go away -------------------------------------------------------------------- */

static void reset(struct world *world, const struct client_call *call) {
    nghttp2_submit_rst_stream(world->client.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
}

/* A reset in each state of a call leaves nothing behind. */
static void test_reset_anywhere(void **state) {
    (void)state;
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Later", "/t.T/Bidi",   "/t.T/Deaf",
                                        "/t.T/Many", "/t.T/Sum",   "/t.T/Nothing"};
    static const char BYTES[] = "\0\0\0\0\11abcdefghi\0\0\0\0\3abc\0\0\0";
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        for (size_t n = 0; n < sizeof(BYTES); n++) {
            struct world *world = world_stingy(20);
            struct client_call *call = client_begin(&world->client, PATHS[i], NULL);
            client_add(&world->client, call, BYTES, n);
            world_run(world);
            reset(world, call);
            world_run(world);
            assert_int_equal(world->session.n_open, 0);
            struct seen *seen = &world->service.calls[0];
            if (seen->call && !seen->finished) {
                assert_int_equal(seen->n_cancelled, 1);
                assert_int_equal(seen->why, ST_CANCELLED);
                seen_finish(seen, NULL);
            }
            world_run(world);
            assert_int_equal(world->n_alive, 0);
            world_end(world);
        }
    }
}

/* The same while bytes of the answer are on their way to the socket: they stay until they left. */
static void test_reset_while_writing(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct world *world = world_begin();
        struct client_call *calls[] = {client_unary(&world->client, "/t.T/Echo", text_of(30000)),
                                       client_begin(&world->client, "/t.T/Bidi", NULL)};
        client_message(&world->client, calls[1], false, text_of(30000).ptr, 30000);
        world->no_reading = true;
        world_run(world);
        assert_int_equal(world->service.n_released, 0);
        assert_true(grpc_session_output(&world->session, world->output));
        if (lost) {
            grpc_session_close(&world->session);
        } else {
            reset(world, calls[0]);
            reset(world, calls[1]);
            world_run(world);
        }
        grpc_core_sweep(&world->core);
        size_t sum = 0; /* the sanitizer sees whether they are still there */
        for (size_t i = 0; i < world->output->n; i++) {
            const unsigned char *bytes = world->output->pieces[i].data;
            for (size_t j = 0; j < world->output->pieces[i].n_bytes; j++) {
                sum += bytes[j];
            }
        }
        assert_true(sum > 0);
        assert_int_equal(world->service.n_released, 0);
        grpc_session_written(&world->session);
        grpc_core_sweep(&world->core);
        assert_int_equal(world->service.n_released, 2);
        world_end(world);
    }
}

/* The connection is lost with calls in each state. */
static void test_lost(void **state) {
    (void)state;
    struct world *world = world_stingy(100);
    client_unary(&world->client, "/t.T/Later", STR("a"));
    client_unary(&world->client, "/t.T/Echo", text_of(1000));
    client_unary(&world->client, "/t.T/Many", STR("\x09"));
    client_begin(&world->client, "/t.T/Bidi", NULL);
    struct client_call *half = client_begin(&world->client, "/t.T/Bidi", NULL);
    client_add(&world->client, half, "\0\0\0\0\5ab", 7);
    world_run(world);
    grpc_session_close(&world->session);
    grpc_core_sweep(&world->core);
    assert_int_equal(seen_first(world, "/t.T/Later")->n_cancelled, 1);
    assert_int_equal(world->n_alive, 1);
    world_end(world);
}

/* A server that answers before the request was read asks for no more of it, with a reset that is no
 * error. */
static void test_answered_early(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    client_message(&world->client, call, false, text_of(500000).ptr, 500000);
    world_run(world);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    assert_int_equal(call->code, NGHTTP2_NO_ERROR);
    assert_serves(world);
    world_end(world);
}

/* Trailers that nghttp2 will not send: the call ends all the same. */
static void test_answer_too_large(void **state) {
    (void)state;
    struct grpc_limits limits = world_limits();
    limits.request_memory_bytes = 8 << 20;
    struct world *world = world_new(&limits);
    world_open(world, NULL, 0);
    struct client_call *call = client_unary(&world->client, "/t.T/Later", STR("a"));
    world_run(world);
    for (int i = 0; i < 3; i++) {
        grpc_set_trailer(world->service.calls[0].call, STR("large"), text_of(500000));
    }
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_INTERNAL_ERROR);
    assert_serves(world);
    world_end(world);
}

/* A head over the limit is refused and the connection goes on; far over it, it does not. */
static void test_header_limit(void **state) {
    (void)state;
    static char value[4001];
    memset(value, 'v', 4000);
    const char *const two[] = {"a", value, "b", value, NULL};
    const char *const many[] = {"a", value, "b", value, "c", value, NULL};
    struct world *world = world_begin();
    struct client_call *ok = client_begin(&world->client, "/t.T/Deaf", two + 2);
    struct client_call *over = client_begin(&world->client, "/t.T/Echo", many);
    client_message(&world->client, over, false, "a", 1);
    client_end(&world->client, over);
    world_run(world);
    assert_grpc(over, "8");
    assert_non_null(strstr(over->message, "--max-header-size"));
    assert_false(ok->closed);
    assert_serves(world);
    world_end(world);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void test_drain(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_unary(&world->client, "/t.T/Later", STR("a"));
    world_run(world);
    grpc_session_drain(&world->session);
    grpc_session_drain(&world->session);
    assert_true(world_turn(world));
    assert_true(world->client.goaway);
    assert_int_equal(world->client.goaway_last, INT32_MAX);
    assert_false(grpc_session_is_over(&world->session));
    /* Begun before the client read the notice: its call crosses it, and is served. */
    struct raw raw = {.id = call->id};
    raw_call(&raw, "/t.T/Later", 0);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    world_feed(world, raw.bytes, raw.n);
    assert_int_equal(world->service.n, 2);
    world_run(world); /* the client's answer to the ping */
    assert_int_equal(world->client.goaway_last, raw.id);
    /* Begun afterwards: not seen. */
    raw.n = 0;
    raw_call(&raw, "/t.T/Later", NGHTTP2_FLAG_END_STREAM);
    world_feed(world, raw.bytes, raw.n);
    assert_int_equal(world->session.n_alive, 2);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    assert_false(grpc_session_is_over(&world->session));
    world->keep_raw = true; /* the client does not know of that call */
    seen_finish(&world->service.calls[1], NULL);
    while (world_turn(world)) {
    }
    assert_true(grpc_session_is_over(&world->session));
    raw_end(&raw);
    world_end(world);
}

static void test_first_bytes(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *answer;
    } ROWS[] = {{"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 505 "}, {"\x16\x03\x01", ""}};
    for (size_t i = 0; i < 2; i++) {
        struct world *world = world_begin();
        world->keep_raw = true;
        assert_false(grpc_session_has_output(&world->session)); /* the client speaks first */
        world_feed(world, ROWS[i].bytes, strlen(ROWS[i].bytes));
        while (world_turn(world)) {
        }
        assert_true(grpc_session_is_over(&world->session));
        size_t n = strlen(ROWS[i].answer);
        assert_true(n > 0 ? world->raw_len > n : world->raw_len == 0);
        assert_memory_equal(n > 0 ? world->raw : "", ROWS[i].answer, n);
        world_end(world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_slow_reading),
        cmocka_unit_test(test_reading_ahead),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_unseen),
        cmocka_unit_test(test_deadline_in_message),
        cmocka_unit_test(test_deadline_promised),
        cmocka_unit_test(test_deadline_without_window),
        cmocka_unit_test(test_message_pauses),
        cmocka_unit_test(test_answer_pauses),
        cmocka_unit_test(test_reset_anywhere),
        cmocka_unit_test(test_reset_while_writing),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_answered_early),
        cmocka_unit_test(test_answer_too_large),
        cmocka_unit_test(test_header_limit),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_first_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
