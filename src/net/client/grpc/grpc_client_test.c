/* The gRPC client over sockets: calls to our own server, which stops and starts, and to listeners
 * that are not gRPC servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/grpc/status.h"
#include "net/client/grpc/live_fixture.h"

enum { MS = 1000 * 1000, LARGE_BYTES = 64 << 20 };
static struct test_grpc test;

static void serve(const char *address) {
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, address);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void unary_on(const char *address) {
    struct caller caller;
    serve(address);
    caller_open_on(&caller, &test);
    for (int i = 0; i < 100; i++) {
        char text[3000];
        memset(text, 'a' + i % 26, sizeof(text));
        caller_echo(&caller, str_make(text, (size_t)i * 30));
    }
    assert_int_equal(grpc_client_n_connected(caller.client), 1);
    assert_int_equal(test.of_worker[0] + test.of_worker[1], 100);
    assert_true(test.of_worker[0] == 0 || test.of_worker[1] == 0); /* one connection */
    caller_close(&caller);
    test_grpc_end(&test);
}

static void client_over_tcp_is_answered(void **state) {
    (void)state;
    unary_on("127.0.0.1:0");
}

static void client_over_unix_socket_is_answered(void **state) {
    char text[64];
    (void)state;
    snprintf(text, sizeof(text), "unix:/tmp/sluice-grpc-client-%ld", (long)getpid());
    unary_on(text);
}

static void client_over_ipv6_is_answered(void **state) {
    (void)state;
    unary_on("[::1]:0");
}

/* A name is looked up, and each of its addresses is tried. */
static void client_resolves_name_and_tries_each_address(void **state) {
    struct caller caller;
    char target[64];
    (void)state;
    serve("127.0.0.1:0");
    snprintf(target, sizeof(target), "localhost%s", strrchr(address_of(&test), ':'));
    caller_open_to(&caller, target);
    caller_echo(&caller, STR("a"));
    caller_close(&caller);
    test_grpc_end(&test);
}

static void client_streaming_is_answered(void **state) {
    struct caller caller;
    struct call_record record;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_ask(&caller, &record,
               &(struct grpc_client_call_options){.path = STR("/t.T/Bidi"), .streams = true});
    grpc_client_read(record.call);
    for (unsigned i = 1; i <= 20; i++) {
        call_record_send(&record, STR("abc"));
        while (record.n_messages < i) {
            caller_step(&caller, true);
        }
    }
    grpc_client_half_close(record.call);
    caller_until_ended(&caller, &record);
    assert_int_equal(record.in_len, 60);
    assert_int_equal(record.n_released, 20);
    assert_int_equal(record.n_heads, 1);
    assert_answered(&record, str_make(record.in, record.in_len));
    caller_close(&caller);
    test_grpc_end(&test);
}

static void client_many_calls_share_one_connection(void **state) {
    enum { N = 300 };
    static struct call_record record[N];
    struct caller caller;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    for (int i = 0; i < N; i++) {
        caller_unary(&caller, &record[i], "/t.T/Echo", STR("abc"));
    }
    for (int i = 0; i < N; i++) {
        caller_until_ended(&caller, &record[i]);
        /* Calls over the server's limit that started before its SETTINGS were not processed. */
        if (record[i].not_processed) {
            assert_ended(&record[i], ST_REFUSED, "did not begin the call");
        } else {
            assert_answered(&record[i], STR("abc"));
        }
    }
    caller_echo(&caller, STR("a"));
    assert_int_equal(grpc_client_n_connected(caller.client), 1);
    caller_close(&caller);
    test_grpc_end(&test);
}

static char *large_text(void) {
    char *text = malloc(LARGE_BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        text[i] = (char)(i * 31 + i / 251);
    }
    return text;
}

static void client_large_messages_are_echoed(void **state) {
    struct grpc_limits limits = test_limits();
    struct net_budget budget = {.body_memory = 512 << 20, .max_connections = 10};
    struct caller caller;
    struct call_record record[2];
    char *text = large_text();
    (void)state;
    limits.net.max_body_size = LARGE_BYTES;
    test_grpc_start_over(&test, &limits, budget, NULL, "127.0.0.1:0");
    caller_open_on(&caller, &test);
    for (int i = 0; i < 2; i++) {
        caller_unary(&caller, &record[i], "/t.T/Echo", str_make(text, LARGE_BYTES));
    }
    for (int i = 0; i < 2; i++) {
        caller_until_ended(&caller, &record[i]);
        assert_int_equal(record[i].n_released, 1);
        assert_answered(&record[i], str_make(text, LARGE_BYTES));
    }
    caller_close(&caller);
    test_grpc_end(&test);
    free(text);
}

/* ---- calls that are given up ----------------------------------------------------------------- */

static void client_deadline_ends_call(void **state) {
    struct caller caller;
    struct call_record record;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_ask(
        &caller, &record,
        &(struct grpc_client_call_options){.path = STR("/t.T/Later"), .timeout_ns = 20 * MS});
    call_record_send(&record, STR("a"));
    caller_until_ended(&caller, &record);
    /* The server enforces the deadline too, and may be first. */
    if (record.error.status == ST_REFUSED) {
        assert_int_equal(record.code, GRPC_CODE_DEADLINE_EXCEEDED);
    } else {
        assert_ended(&record, ST_DEADLINE_EXCEEDED, "no response before the deadline");
    }
    caller_echo(&caller, STR("a"));
    if (atomic_load(&test.n_later) > 0) { /* else the server got it too late to start it */
        test_finish_later(&test, 0);
    }
    caller_close(&caller);
    test_grpc_end(&test);
}

static void client_cancel_ends_call(void **state) {
    struct caller caller;
    struct call_record record;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_unary(&caller, &record, "/t.T/Later", STR("a"));
    while (atomic_load(&test.n_later) < 1) {
        caller_step(&caller, false);
        usleep(200);
    }
    grpc_client_cancel(record.call);
    assert_int_equal(record.n_ended, 0); /* never from within a function */
    caller_until_ended(&caller, &record);
    assert_ended(&record, ST_CANCELLED, "cancelled");
    while (atomic_load(&test.cancels) < 1) { /* the server is notified */
        caller_step(&caller, false);
        usleep(200);
    }
    test_finish_later(&test, 0);
    caller_close(&caller);
    test_grpc_end(&test);
}

static void client_stop_cancels_open_calls(void **state) {
    struct caller caller;
    struct call_record later, waits;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_unary(&caller, &later, "/t.T/Later", STR("a"));
    while (atomic_load(&test.n_later) < 1) {
        caller_step(&caller, false);
        usleep(200);
    }
    caller_unary(&caller, &waits, "/t.T/Echo", STR("a"));
    caller_close(&caller);
    assert_ended(&later, ST_CANCELLED, "the client was stopped");
    assert_ended(&waits, ST_CANCELLED, "the client was stopped");
    test_wait_for(&test.cancels, 1);
    test_finish_later(&test, 0);
    test_grpc_end(&test);
}

static void client_stop_while_connecting_cancels_call(void **state) {
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    caller_unary(&caller, &record, "/t.T/Echo", STR("a"));
    caller_step(&caller, false);
    caller_close(&caller);
    assert_ended(&record, ST_CANCELLED, "the client was stopped");
    close(bare.fd);
}

/* ---- servers that restart -------------------------------------------------------------------- */

static void client_reconnects_after_server_restart(void **state) {
    struct caller caller;
    struct call_record lost, refused, waits;
    char address[64];
    (void)state;
    snprintf(address, sizeof(address), "unix:/tmp/sluice-grpc-client-%ld", (long)getpid());
    serve(address);
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(address),
                                                       .limits.initial_backoff_ns = MS,
                                                       .limits.max_backoff_ns = 4 * MS});
    caller_echo(&caller, STR("a"));
    caller_unary(&caller, &lost, "/t.T/Later", STR("a"));
    while (atomic_load(&test.n_later) < 1) {
        caller_step(&caller, false);
        usleep(200);
    }
    test_host_ask_stop(&test.host, test_run_stop);
    caller_until_ended(&caller, &lost);
    test_wait_for(&test.cancels, 1);
    test_finish_later(&test, 0);
    test_grpc_end(&test);
    assert_ended(&lost, ST_IO, "the server closed the connection");
    assert_false(lost.not_processed);
    for (int i = 0; i < 5; i++) {
        caller_call(&caller, &refused, "/t.T/Echo", STR("a"));
        assert_ended(&refused, ST_IO, "no connection: ");
        assert_true(refused.not_processed);
    }
    /* A waiting call starts once there is a server. */
    caller_ask(
        &caller, &waits,
        &(struct grpc_client_call_options){.path = STR("/t.T/Echo"), .wait_for_ready = true});
    call_record_send(&waits, STR("b"));
    caller_call(&caller, &refused, "/t.T/Echo", STR("a"));
    assert_ended(&refused, ST_IO, "no connection: ");
    assert_int_equal(waits.n_ended, 0);
    serve(address);
    caller_until_ended(&caller, &waits);
    assert_answered(&waits, STR("b"));
    caller_close(&caller);
    test_grpc_end(&test);
}

/* Attempts become rarer, and calls between them fail at once with the same reason. */
static void client_backoff_doubles_and_fails_calls_meanwhile(void **state) {
    const uint64_t first = UINT64_C(100) * MS;
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    close(bare.fd); /* the port is closed */
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(bare.target),
                                                       .limits.initial_backoff_ns = first,
                                                       .limits.max_backoff_ns = 5 * first});
    uint64_t now_ns = clock_now_ns();
    static const unsigned PAUSES[] = {1, 2, 4, 5, 5};
    for (size_t i = 0; i < sizeof(PAUSES) / sizeof(PAUSES[0]); i++) {
        clock_set_fake_ns(now_ns);
        caller_call(&caller, &record, "/t.T/Echo", STR("a"));
        assert_ended(&record, ST_IO, "no connection: connection refused");
        assert_true(caller.client->n_failures == i + 1);
        assert_true(caller.client->next_attempt_ns == now_ns + PAUSES[i] * first);
        now_ns += PAUSES[i] * first - 1;
        clock_set_fake_ns(now_ns++);
        caller_call(&caller, &record, "/t.T/Echo", STR("a"));
        assert_ended(&record, ST_IO, "no connection: connection refused");
        assert_true(caller.client->next_attempt_ns == now_ns);
    }
    caller_close(&caller);
    clock_set_fake_ns(0);
}

/* When an attempt has failed, the client wakes for the next one; no longer once that is made, also
 * while calls wait for a stream of its connection. */
static void client_with_connection_does_not_wake_for_attempts(void **state) {
    enum { N = 101 }; /* one more than start before the server's SETTINGS */
    static struct call_record record[N];
    struct caller caller;
    struct bare bare;
    struct error err;
    (void)state;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    clock_set_fake_ns(clock_now_ns());
    error_set(&err, ST_IO, "no connection");
    grpc_client_start_backoff(caller.client, &err);
    for (int i = 0; i < N; i++) {
        caller_ask(
            &caller, &record[i],
            &(struct grpc_client_call_options){.path = STR("/t.T/Echo"), .wait_for_ready = true});
        call_record_send(&record[i], STR("a"));
    }
    caller_step(&caller, false);
    const struct timer_heap *timers = &worker_timers(caller.worker)->heap;
    uint64_t attempt_ns = caller.client->next_attempt_ns;
    assert_true(attempt_ns > clock_now_ns() && timer_heap_next_ns(timers) == attempt_ns);
    clock_set_fake_ns(attempt_ns);
    int fd = bare_accept(&bare, &caller);
    bare_hear(fd, &caller);
    assert_false(TAILQ_EMPTY(&caller.client->core.waiting));
    assert_true(timer_heap_next_ns(timers) > clock_now_ns());
    caller_close(&caller);
    for (int i = 0; i < N; i++) {
        assert_ended(&record[i], ST_CANCELLED, "the client was stopped");
    }
    clock_set_fake_ns(0);
    close(fd);
    close(bare.fd);
}

static void client_unknown_name_is_io_error(void **state) {
    struct caller caller;
    struct call_record record;
    (void)state;
    caller_open_to(&caller, "a..b:1");
    caller_call(&caller, &record, "/t.T/Echo", STR("a"));
    assert_ended(&record, ST_IO, "a..b:1: name lookup failed: ");
    caller_close(&caller);
}

static void client_connect_timeout_fails_call(void **state) {
    struct caller caller;
    struct call_record record;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(bare.target),
                                                       .limits.connect_timeout_ns = 30 * MS});
    caller_call(&caller, &record, "/t.T/Echo",
                STR("a")); /* connections are neither accepted nor answered */
    assert_ended(&record, ST_IO, "timed out waiting for the server's HTTP/2 SETTINGS");
    caller_close(&caller);
    close(bare.fd);
}

/* ---- servers of other protocols -------------------------------------------------------------- */

static void answer_with(struct str text, const char *expected, enum status status) {
    struct caller caller;
    struct call_record record;
    struct bare bare;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    caller_unary(&caller, &record, "/t.T/Echo", STR("a"));
    int fd = bare_accept(&bare, &caller);
    bare_hear(fd, &caller);
    test_send(fd, text);
    shutdown(fd, SHUT_WR);
    caller_until_ended(&caller, &record);
    assert_ended(&record, status, expected);
    caller_close(&caller);
    close(fd);
    close(bare.fd);
}

static void client_server_of_other_protocol_is_named(void **state) {
    (void)state;
    answer_with(STR("HTTP/1.1 400 Bad Request\r\n\r\n"), "HTTP/1.1", ST_BAD_ANSWER);
    answer_with(STR("\x15\x03\x01\0\x02\x02\x46\0\0\0"), "expects TLS", ST_BAD_ANSWER);
    answer_with(STR("SSH-2.0-nothing\r\n\r\n\r\n\r\n"), "violated HTTP/2", ST_BAD_ANSWER);
    answer_with(STR(""), "the server closed the connection", ST_IO);
}

/* GOAWAY (RFC 9113, 6.8): open calls continue, the next call gets another connection. */
static void client_goaway_moves_next_call_to_new_connection(void **state) {
    static const char SETTINGS[] = "\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
    static const char GOAWAY[] = "\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    /* :status 200 (RFC 7541, appendix A), content-type, then a message "b", then grpc-status 0. */
    static const char ANSWER[] = "\0\0\x14\x01\x04\0\0\0\x01\x88\x0f\x10\x10"
                                 "application/grpc"
                                 "\0\0\x06\0\0\0\0\0\x01\0\0\0\0\x01"
                                 "b"
                                 "\0\0\x0f\x01\x05\0\0\0\x01\0\x0b"
                                 "grpc-status"
                                 "\x01"
                                 "0";
    struct caller caller;
    struct call_record first, second;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    caller_unary(&caller, &first, "/t.T/Echo", STR("a"));
    int one = bare_accept(&bare, &caller);
    bare_hear(one, &caller);
    test_send(one, str_make(SETTINGS, sizeof(SETTINGS) - 1));
    test_send(one, str_make(GOAWAY, sizeof(GOAWAY) - 1));
    while (grpc_client_n_connected(caller.client) > 0) {
        caller_step(&caller, true);
    }
    caller_unary(&caller, &second, "/t.T/Echo", STR("a"));
    int two = bare_accept(&bare, &caller);
    bare_hear(two, &caller);
    test_send(two, str_make(SETTINGS, sizeof(SETTINGS) - 1));
    test_send(two, str_make(ANSWER, sizeof(ANSWER) - 1));
    caller_until_ended(&caller, &second);
    assert_answered(&second, STR("b"));
    assert_int_equal(first.n_ended, 0);
    test_send(one, str_make(ANSWER, sizeof(ANSWER) - 1));
    caller_until_ended(&caller, &first);
    assert_answered(&first, STR("b"));
    assert_int_equal(grpc_client_n_connected(caller.client), 1);
    while (!bare_is_closed(one)) { /* it has no open call */
        caller_step(&caller, false);
        usleep(200);
    }
    caller_close(&caller);
    close(one);
    close(two);
    close(bare.fd);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void client_invalid_targets_are_bad_config(void **state) {
    static const struct {
        const char *text, *expected;
    } CASES[] = {
        {"127.0.0.1", "the port is missing"},
        {"127.0.0.1:", "the port is a number"},
        {"127.0.0.1:0", "the port is a number from 1"},
        {"127.0.0.1:65536", "the port is a number"},
        {":8001", "neither a name nor an address"},
        {"a b:1", "neither a name nor an address"},
        {"[::1:1", "neither a name nor an address"},
        {"http://a:1", "neither a name nor an address"},
        {"unix:", "the path of the socket is missing"},
    };
    struct worker *worker;
    struct grpc_client *client;
    struct error err;
    (void)state;
    assert_int_equal(worker_new("test", &worker, &err), ST_OK);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct grpc_client_options options = {.worker = worker, .target = str_of(CASES[i].text)};
        assert_int_equal(grpc_client_new(&options, &client, &err), ST_BAD_CONFIG);
        if (!strstr(err.text, CASES[i].expected)) {
            fail_msg("%s: %s", CASES[i].text, err.text);
        }
    }
    worker_free(worker);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_over_tcp_is_answered),
        cmocka_unit_test(client_over_unix_socket_is_answered),
        cmocka_unit_test(client_over_ipv6_is_answered),
        cmocka_unit_test(client_resolves_name_and_tries_each_address),
        cmocka_unit_test(client_streaming_is_answered),
        cmocka_unit_test(client_many_calls_share_one_connection),
        cmocka_unit_test(client_large_messages_are_echoed),
        cmocka_unit_test(client_deadline_ends_call),
        cmocka_unit_test(client_cancel_ends_call),
        cmocka_unit_test(client_stop_cancels_open_calls),
        cmocka_unit_test(client_stop_while_connecting_cancels_call),
        cmocka_unit_test(client_reconnects_after_server_restart),
        cmocka_unit_test(client_backoff_doubles_and_fails_calls_meanwhile),
        cmocka_unit_test(client_with_connection_does_not_wake_for_attempts),
        cmocka_unit_test(client_unknown_name_is_io_error),
        cmocka_unit_test(client_connect_timeout_fails_call),
        cmocka_unit_test(client_server_of_other_protocol_is_named),
        cmocka_unit_test(client_goaway_moves_next_call_to_new_connection),
        cmocka_unit_test(client_invalid_targets_are_bad_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
