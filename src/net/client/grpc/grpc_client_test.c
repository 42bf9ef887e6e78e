/* The gRPC client over sockets: calls of our own server, which comes and goes, and of listeners
 * that are no such thing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/protobuf/grpc_status.h"
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

static void test_tcp(void **state) {
    (void)state;
    unary_on("127.0.0.1:0");
}

static void test_unix(void **state) {
    char text[64];
    (void)state;
    snprintf(text, sizeof(text), "unix:/tmp/sluice-grpc-client-%ld", (long)getpid());
    unary_on(text);
}

static void test_ipv6(void **state) {
    (void)state;
    unary_on("[::1]:0");
}

/* A name is looked up, and each of its addresses tried. */
static void test_a_name(void **state) {
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

static void test_streaming(void **state) {
    struct caller caller;
    struct asked asked;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_ask(&caller, &asked,
               &(struct grpc_client_ask){.path = STR("/t.T/Bidi"), .streams = true});
    grpc_client_read(asked.call);
    for (unsigned i = 1; i <= 20; i++) {
        asked_send(&asked, STR("abc"));
        while (asked.n_messages < i) {
            caller_step(&caller, true);
        }
    }
    grpc_client_half_close(asked.call);
    caller_until_ended(&caller, &asked);
    assert_int_equal(asked.in_len, 60);
    assert_int_equal(asked.n_released, 20);
    assert_int_equal(asked.n_heads, 1);
    assert_answered(&asked, str_make(asked.in, asked.in_len));
    caller_close(&caller);
    test_grpc_end(&test);
}

static void test_many_at_once(void **state) {
    enum { N = 300 };
    static struct asked asked[N];
    struct caller caller;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    for (int i = 0; i < N; i++) {
        caller_unary(&caller, &asked[i], "/t.T/Echo", STR("abc"));
    }
    for (int i = 0; i < N; i++) {
        caller_until_ended(&caller, &asked[i]);
        /* More than the server takes, begun before it had said so, it did not begin. */
        if (asked[i].untouched) {
            assert_ended(&asked[i], ST_REFUSED, "did not begin the call");
        } else {
            assert_answered(&asked[i], STR("abc"));
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

static void test_large_messages(void **state) {
    struct grpc_limits limits = test_limits();
    struct net_budget budget = {.body_memory_bytes = 512 << 20, .max_connections = 10};
    struct caller caller;
    struct asked asked[2];
    char *text = large_text();
    (void)state;
    limits.max_message_bytes = LARGE_BYTES;
    test_grpc_start_over(&test, &limits, budget, NULL, "127.0.0.1:0");
    caller_open_on(&caller, &test);
    for (int i = 0; i < 2; i++) {
        caller_unary(&caller, &asked[i], "/t.T/Echo", str_make(text, LARGE_BYTES));
    }
    for (int i = 0; i < 2; i++) {
        caller_until_ended(&caller, &asked[i]);
        assert_int_equal(asked[i].n_released, 1);
        assert_answered(&asked[i], str_make(text, LARGE_BYTES));
    }
    caller_close(&caller);
    test_grpc_end(&test);
    free(text);
}

static void test_several_connections(void **state) {
    enum { N = 9 };
    struct asked asked[N];
    struct caller caller;
    (void)state;
    serve("127.0.0.1:0");
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(address_of(&test)),
                                                       .limits.n_connections = 3});
    caller_echo(&caller, STR("a"));
    assert_int_equal(grpc_client_n_connected(caller.client), 1); /* one call needs no more */
    for (int i = 0; i < N; i++) {
        caller_unary(&caller, &asked[i], "/t.T/Later", STR("a"));
        while (atomic_load(&test.n_later) <= i) {
            caller_step(&caller, false);
            usleep(200);
        }
    }
    assert_int_equal(grpc_client_n_connected(caller.client), 3);
    assert_true(test.of_worker[0] > 1 && test.of_worker[1] > 1);
    for (int i = 0; i < N; i++) {
        test_finish_later(&test, i);
    }
    for (int i = 0; i < N; i++) {
        caller_until_ended(&caller, &asked[i]);
        assert_answered(&asked[i], STR("late"));
    }
    caller_close(&caller);
    test_grpc_end(&test);
}

/* ---- calls that are given up ----------------------------------------------------------------- */

static void test_deadline(void **state) {
    struct caller caller;
    struct asked asked;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_ask(&caller, &asked,
               &(struct grpc_client_ask){.path = STR("/t.T/Later"), .timeout_ns = 20 * MS});
    asked_send(&asked, STR("a"));
    caller_until_ended(&caller, &asked);
    if (asked.error.status == ST_REFUSED) { /* the server keeps it too, and may be first */
        assert_int_equal(asked.code, GRPC_CODE_DEADLINE_EXCEEDED);
    } else {
        assert_ended(&asked, ST_DEADLINE_EXCEEDED, "no answer came in time");
    }
    caller_echo(&caller, STR("a"));
    if (atomic_load(&test.n_later) > 0) { /* else it was too late for the server to begin */
        test_finish_later(&test, 0);
    }
    caller_close(&caller);
    test_grpc_end(&test);
}

static void test_cancel(void **state) {
    struct caller caller;
    struct asked asked;
    (void)state;
    serve("127.0.0.1:0");
    caller_open_on(&caller, &test);
    caller_unary(&caller, &asked, "/t.T/Later", STR("a"));
    while (atomic_load(&test.n_later) < 1) {
        caller_step(&caller, false);
        usleep(200);
    }
    grpc_client_cancel(asked.call);
    assert_int_equal(asked.n_ended, 0); /* never from within */
    caller_until_ended(&caller, &asked);
    assert_ended(&asked, ST_CANCELLED, "cancelled");
    while (atomic_load(&test.cancels) < 1) { /* the server is told */
        caller_step(&caller, false);
        usleep(200);
    }
    test_finish_later(&test, 0);
    caller_close(&caller);
    test_grpc_end(&test);
}

static void test_stop_with_calls_under_way(void **state) {
    struct caller caller;
    struct asked later, waits;
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

static void test_stop_while_connecting(void **state) {
    struct caller caller;
    struct asked asked;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    caller_unary(&caller, &asked, "/t.T/Echo", STR("a"));
    caller_step(&caller, false);
    caller_close(&caller);
    assert_ended(&asked, ST_CANCELLED, "the client was stopped");
    close(bare.fd);
}

/* ---- servers that come and go ---------------------------------------------------------------- */

static void test_the_server_goes_away_and_comes_back(void **state) {
    struct caller caller;
    struct asked lost, refused, waits;
    char address[64];
    (void)state;
    snprintf(address, sizeof(address), "unix:/tmp/sluice-grpc-client-%ld", (long)getpid());
    serve(address);
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(address),
                                                       .limits.first_pause_ns = MS,
                                                       .limits.longest_pause_ns = 4 * MS});
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
    assert_false(lost.untouched);
    for (int i = 0; i < 5; i++) {
        caller_call(&caller, &refused, "/t.T/Echo", STR("a"));
        assert_ended(&refused, ST_IO, "no connection: ");
        assert_true(refused.untouched);
    }
    /* One that waits is begun when there is a server. */
    caller_ask(&caller, &waits, &(struct grpc_client_ask){.path = STR("/t.T/Echo"), .waits = true});
    asked_send(&waits, STR("b"));
    caller_call(&caller, &refused, "/t.T/Echo", STR("a"));
    assert_ended(&refused, ST_IO, "no connection: ");
    assert_int_equal(waits.n_ended, 0);
    serve(address);
    caller_until_ended(&caller, &waits);
    assert_answered(&waits, STR("b"));
    caller_close(&caller);
    test_grpc_end(&test);
}

/* Attempts become rare, and what is asked for between them fails at once, for the same reason. */
static void test_pauses_double(void **state) {
    const uint64_t first = UINT64_C(100) * MS;
    struct caller caller;
    struct asked asked;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    close(bare.fd); /* nobody listens there any more */
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(bare.target),
                                                       .limits.first_pause_ns = first,
                                                       .limits.longest_pause_ns = 5 * first});
    uint64_t now_ns = clock_now_ns();
    static const unsigned PAUSES[] = {1, 2, 4, 5, 5};
    for (size_t i = 0; i < sizeof(PAUSES) / sizeof(PAUSES[0]); i++) {
        clock_drive_ns(now_ns);
        caller_call(&caller, &asked, "/t.T/Echo", STR("a"));
        assert_ended(&asked, ST_IO, "no connection: connection refused");
        assert_true(caller.client->pause_ns == PAUSES[i] * first);
        assert_true(caller.client->next_attempt_ns == now_ns + PAUSES[i] * first);
        now_ns += PAUSES[i] * first - 1;
        clock_drive_ns(now_ns++);
        caller_call(&caller, &asked, "/t.T/Echo", STR("a"));
        assert_ended(&asked, ST_IO, "no connection: connection refused");
        assert_true(caller.client->next_attempt_ns == now_ns);
    }
    caller_close(&caller);
    clock_drive_ns(0);
}

static void test_names_that_do_not_exist(void **state) {
    struct caller caller;
    struct asked asked;
    (void)state;
    caller_open_to(&caller, "a..b:1");
    caller_call(&caller, &asked, "/t.T/Echo", STR("a"));
    assert_ended(&asked, ST_IO, "a..b:1: the name can't be looked up: ");
    caller_close(&caller);
}

static void test_no_connection_in_time(void **state) {
    struct caller caller;
    struct asked asked;
    struct bare bare;
    (void)state;
    bare_listen(&bare);
    caller_open(&caller, &(struct grpc_client_options){.target = str_of(bare.target),
                                                       .limits.connect_timeout_ns = 30 * MS});
    caller_call(&caller, &asked, "/t.T/Echo", STR("a")); /* nobody accepts, or says anything */
    assert_ended(&asked, ST_IO, "the server did not say in time that it speaks HTTP/2");
    caller_close(&caller);
    close(bare.fd);
}

/* ---- servers of something else --------------------------------------------------------------- */

static void answer_with(struct str text, const char *expected, enum status status) {
    struct caller caller;
    struct asked asked;
    struct bare bare;
    bare_listen(&bare);
    caller_open_to(&caller, bare.target);
    caller_unary(&caller, &asked, "/t.T/Echo", STR("a"));
    int fd = bare_accept(&bare, &caller);
    bare_hear(fd, &caller);
    test_send(fd, text);
    shutdown(fd, SHUT_WR);
    caller_until_ended(&caller, &asked);
    assert_ended(&asked, status, expected);
    caller_close(&caller);
    close(fd);
    close(bare.fd);
}

static void test_servers_of_something_else(void **state) {
    (void)state;
    answer_with(STR("HTTP/1.1 400 Bad Request\r\n\r\n"), "HTTP/1.1", ST_BAD_ANSWER);
    answer_with(STR("\x15\x03\x01\0\x02\x02\x46\0\0\0"), "expects TLS", ST_BAD_ANSWER);
    answer_with(STR("SSH-2.0-nothing\r\n\r\n\r\n\r\n"), "broke a rule of HTTP/2", ST_BAD_ANSWER);
    answer_with(STR(""), "the server closed the connection", ST_IO);
}

/* GOAWAY (RFC 9113, 6.8): what has begun goes on, the next call has another connection. */
static void test_goodbye(void **state) {
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
    struct asked first, second;
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
    while (!bare_is_closed(one)) { /* it has nothing left to do */
        caller_step(&caller, false);
        usleep(200);
    }
    caller_close(&caller);
    close(one);
    close(two);
    close(bare.fd);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void test_targets(void **state) {
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
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_a_name),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_large_messages),
        cmocka_unit_test(test_several_connections),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_stop_with_calls_under_way),
        cmocka_unit_test(test_stop_while_connecting),
        cmocka_unit_test(test_the_server_goes_away_and_comes_back),
        cmocka_unit_test(test_pauses_double),
        cmocka_unit_test(test_names_that_do_not_exist),
        cmocka_unit_test(test_no_connection_in_time),
        cmocka_unit_test(test_servers_of_something_else),
        cmocka_unit_test(test_goodbye),
        cmocka_unit_test(test_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
