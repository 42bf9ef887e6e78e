/* The gRPC server over sockets: calls on TCP and Unix connections, drain and stop with calls in
 * progress, clients that disconnect, don't read, stay silent, or use another protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/http1/content_coding.h"
#include "net/server/grpc/server_fixture.h"
#include "net/server/report.h"

static void assert_echo(const struct client_call *call, struct str message) {
    struct str answer = client_answer(call, 0, NULL);
    assert_true(call->closed);
    assert_string_equal(call->grpc_status, "0");
    assert_true(str_eq(answer, message));
}

static void echo_on(const char *address) {
    static struct test_grpc test;
    enum { N_LIVES = 4, N_ROUNDS = 50 };
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, address);
    struct live *lives[N_LIVES];
    for (int i = 0; i < N_LIVES; i++) {
        lives[i] = live_open(&test);
        live_until_closed(lives[i], client_unary(&lives[i]->client, "/t.T/Echo", STR("first")));
    }
    /* Connections are spread evenly, the first ones too. */
    assert_true(test.of_worker[0] == N_LIVES / 2 && test.of_worker[1] == N_LIVES / 2);
    for (int round = 0; round < N_ROUNDS; round++) {
        char text[3000];
        memset(text, 'a' + round % 26, sizeof(text));
        struct str message = str_make(text, (size_t)round * 60);
        struct client_call *calls[N_LIVES];
        for (int i = 0; i < N_LIVES; i++) {
            calls[i] = client_unary(&lives[i]->client, "/t.T/Echo", message);
        }
        for (int i = 0; i < N_LIVES; i++) {
            live_until_closed(lives[i], calls[i]);
            assert_echo(calls[i], message);
        }
    }
    for (int i = 0; i < N_LIVES; i++) {
        live_close(lives[i]);
    }
    test_grpc_end(&test);
}

static void server_over_tcp_answers(void **state) {
    (void)state;
    echo_on("127.0.0.1:0");
}

static void server_over_unix_socket_answers(void **state) {
    (void)state;
    char text[64];
    snprintf(text, sizeof(text), "unix:/tmp/sluice-grpc-test-%ld", (long)getpid());
    echo_on(text);
}

/* Large messages in both directions; a second stream is not starved. */
static void server_large_messages_are_echoed(void **state) {
    (void)state;
    static struct test_grpc test;
    static char text[20 << 20];
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(i * 31 >> 5);
    }
    struct str message = str_make(text, sizeof(text));
    struct client_call *large = client_unary(&live->client, "/t.T/Echo", message);
    struct client_call *small = client_unary(&live->client, "/t.T/Echo", STR("small"));
    live_until_closed(live, small);
    live_until_closed(live, large);
    assert_echo(small, STR("small"));
    assert_echo(large, message);
    live_close(live);
    test_grpc_end(&test);
}

/* A connection whose client and server have exchanged their SETTINGS. */
static struct live *live_open_after_call(const struct test_grpc *test) {
    struct live *live = live_open(test);
    struct client_call *call = client_unary(&live->client, "/t.T/Echo", STR("first"));
    live_until_closed(live, call);
    assert_echo(call, STR("first"));
    return live;
}

static void live_close_after_call(struct live *live) {
    struct client_call *call = client_unary(&live->client, "/t.T/Echo", STR("last"));
    live_until_closed(live, call);
    assert_echo(call, STR("last"));
    live_close(live);
}

/* A method finishes between two writes, while nghttp2 holds the last frame of its messages, for
 * which the first write had no capacity: the status follows it. */
static void server_status_after_held_frame_is_sent(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open_after_call(&test);
    struct client_call *first = client_unary(&live->client, "/t.T/Pair", STR("a"));
    struct client_call *second = client_unary(&live->client, "/t.T/Pair", STR("b"));
    live_until_closed(live, first);
    live_until_closed(live, second);
    assert_string_equal(first->grpc_status, "0");
    assert_string_equal(second->grpc_status, "0");
    assert_int_equal(second->in_len, PAIR_MESSAGES * (PAIR_BYTES + GRPC_PREFIX_BYTES));
    live_close_after_call(live);
    test_grpc_end(&test);
}

/* A method reads on when its response is written, which deferred work does: a compressed message of
 * more than a slice that is pending then is decompressed without another event. */
static void server_compressed_message_read_while_writing_is_delivered(void **state) {
    (void)state;
    static struct test_grpc test;
    static char zeros[1 << 20], bytes[10000];
    const char *const fields[] = {"grpc-encoding", "gzip", NULL};
    struct grpc_limits limits = test_limits();
    size_t n;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open_after_call(&test);
    struct client_call *call = client_begin(&live->client, "/t.T/Turns", fields);
    struct deflate *codec = deflate_new(HTTP_GZIP, 6);
    struct str text = str_make(zeros, sizeof(zeros));
    assert_true(deflate_step(codec, &text, true, bytes, sizeof(bytes), &n));
    deflate_free(codec);
    client_message(&live->client, call, false, "one", 3);
    client_message(&live->client, call, true, bytes, n);
    live_send_at_once(live);
    while (call->in_len < 2 * GRPC_PREFIX_BYTES + 3 + sizeof(zeros)) {
        live_step(live, true);
    }
    client_end(&live->client, call);
    live_until_closed(live, call);
    assert_string_equal(call->grpc_status, "0");
    live_close_after_call(live);
    test_grpc_end(&test);
}

/* A connection for each worker: a new one goes to the worker with the fewest. */
static void open_each(struct test_grpc *test, struct live *lives[TEST_WORKERS]) {
    for (int i = 0; i < TEST_WORKERS; i++) {
        lives[i] = live_open_after_call(test);
    }
}

static void close_each(struct live *lives[TEST_WORKERS]) {
    for (int i = 0; i < TEST_WORKERS; i++) {
        live_close_after_call(lives[i]);
    }
}

/* Until test->unblocked is set, what arrives waits in the sockets. */
static void block_workers(struct test_grpc *test, struct live *lives[TEST_WORKERS]) {
    for (int i = 0; i < TEST_WORKERS; i++) {
        client_unary(&lives[i]->client, "/t.T/Block", STR(""));
        live_send_at_once(lives[i]);
    }
    test_wait_for(&test->n_blocked, TEST_WORKERS);
}

/* A stream's message arrives in two reads. Between them its method reads on, while decompression
 * for another stream has used up the slice: the second part comes after the first. */
static void server_message_behind_pending_input_is_whole(void **state) {
    (void)state;
    enum { BYTES = 100000 };
    static struct test_grpc test;
    static struct live_output output;
    static char zeros[4 << 20], packed[20000], text[BYTES];
    const char *const fields[] = {"grpc-encoding", "gzip", NULL};
    struct grpc_limits limits = test_limits();
    struct live *blocking[TEST_WORKERS];
    size_t n;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open_after_call(&test);
    struct live *other = live_open_after_call(&test); /* of the other worker */
    open_each(&test, blocking);
    struct deflate *codec = deflate_new(HTTP_GZIP, 6);
    struct str large = str_make(zeros, sizeof(zeros));
    assert_true(deflate_step(codec, &large, true, packed, sizeof(packed), &n));
    deflate_free(codec);
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(i * 31 >> 5);
    }
    output.len = 0;
    struct client_call *call = client_begin(&live->client, "/t.T/Turns", NULL);
    client_message(&live->client, call, false, "one", 3);
    live_collect(live, &output);
    struct client_call *inflated = client_begin(&live->client, "/t.T/Turns", fields);
    client_message(&live->client, inflated, true, packed, n);
    client_end(&live->client, inflated);
    live_collect(live, &output);
    client_message(&live->client, call, false, text, sizeof(text));
    client_end(&live->client, call);
    live_collect(live, &output);
    block_workers(&test, blocking);
    test_send(live->fd, str_make(output.bytes, output.len)); /* all of it waits in the socket */
    atomic_store(&test.unblocked, true);
    live_until_closed(live, call);
    assert_string_equal(call->grpc_status, "0");
    assert_true(str_eq(client_answer(call, 1, NULL), str_make(text, sizeof(text))));
    live_until_closed(live, inflated);
    assert_string_equal(inflated->grpc_status, "0");
    assert_int_equal(inflated->in_len, GRPC_PREFIX_BYTES + sizeof(zeros));
    live_close_after_call(live);
    live_close_after_call(other);
    close_each(blocking);
    test_grpc_end(&test);
}

/* A method that reads on finds thousands of messages that its window has allowed: it gets some, and
 * other connections their turn. */
static void server_pending_messages_are_delivered_in_slices(void **state) {
    (void)state;
    enum { MESSAGES = 20000 };
    static struct test_grpc test;
    static const char prefixes[MESSAGES * GRPC_PREFIX_BYTES];
    struct grpc_limits limits = test_limits();
    struct live *blocking[TEST_WORKERS], *probes[TEST_WORKERS];
    struct client_call *calls[TEST_WORKERS];
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open_after_call(&test);
    struct live *other = live_open_after_call(&test); /* of the other worker */
    open_each(&test, blocking);
    open_each(&test, probes);
    struct client_call *held = client_begin(&live->client, "/t.T/Held", NULL);
    client_message(&live->client, held, false, "one", 3);
    client_add(&live->client, held, prefixes, sizeof(prefixes));
    client_end(&live->client, held);
    live_send_at_once(live);
    live_until_closed(live, client_unary(&live->client, "/t.T/Echo", STR("after them")));
    assert_int_equal(test.n_later, 1);
    block_workers(&test, blocking);
    test_read_later(&test, 0);
    for (int i = 0; i < TEST_WORKERS; i++) {
        calls[i] = client_unary(&probes[i]->client, "/t.T/Probe", STR("probe"));
        live_send_at_once(probes[i]);
    }
    atomic_store(&test.unblocked, true);
    for (int i = 0; i < TEST_WORKERS; i++) {
        live_until_closed(probes[i], calls[i]);
        assert_echo(calls[i], STR("probe"));
    }
    assert_true(test.n_before_probe < MESSAGES / 10); /* else all of them */
    live_until_closed(live, held);
    assert_string_equal(held->grpc_status, "0");
    assert_int_equal(test.n_busy[0] + test.n_busy[1], MESSAGES);
    live_close_after_call(live);
    live_close_after_call(other);
    close_each(blocking);
    close_each(probes);
    test_grpc_end(&test);
}

/* Connections that are read between two polls share the time of a turn: the last one does not wait
 * until all calls of each before it have run. */
static void server_turns_of_connections_share_their_time(void **state) {
    (void)state;
    enum { BUSY_N = 20, CALLS = 32, BYTES = 300 };
    static struct test_grpc test;
    static char text[BYTES];
    struct grpc_limits limits = test_limits();
    struct live *busy[BUSY_N], *blocking[TEST_WORKERS], *probes[TEST_WORKERS];
    struct str message = str_make(text, sizeof(text));
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    for (int i = 0; i < BUSY_N; i++) {
        busy[i] = live_open_after_call(&test);
    }
    open_each(&test, blocking);
    open_each(&test, probes);
    block_workers(&test, blocking);
    for (int i = 0; i < BUSY_N; i++) { /* all wait in the sockets */
        for (int k = 0; k < CALLS; k++) {
            client_unary(&busy[i]->client, "/t.T/Busy", message);
        }
        live_send_at_once(busy[i]);
    }
    struct client_call *probe = client_unary(&probes[0]->client, "/t.T/Probe", STR("probe"));
    live_send_at_once(probes[0]);
    atomic_store(&test.unblocked, true);
    live_until_closed(probes[0], probe);
    assert_echo(probe, STR("probe"));
    assert_true(test.n_before_probe < BUSY_N / TEST_WORKERS * CALLS / 2); /* else all of them */
    for (int i = 0; i < BUSY_N; i++) {
        for (size_t k = 1; k <= CALLS; k++) {
            live_until_closed(busy[i], &busy[i]->client.calls[k]);
            assert_echo(&busy[i]->client.calls[k], message);
        }
        live_close_after_call(busy[i]);
    }
    close_each(blocking);
    close_each(probes);
    test_grpc_end(&test);
}

static void server_drain_finishes_open_calls(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *busy = live_open(&test), *idle = live_open(&test), *mute = live_open(&test);
    live_until_closed(idle, client_unary(&idle->client, "/t.T/Echo", STR("x")));
    struct client_call *call = client_begin(&busy->client, "/t.T/Bidi", NULL);
    client_message(&busy->client, call, false, "one", 3);
    while (call->in_len < GRPC_PREFIX_BYTES + 3) {
        live_step(busy, true);
    }
    test_host_control(&test.host, test_run_drain);
    live_until_ended(idle);
    assert_true(idle->client.goaway && idle->client.goaway_code == NGHTTP2_NO_ERROR);
    /* The running call continues after the shutdown notice. */
    live_until_goaway(busy);
    assert_int_equal(busy->client.goaway_last, INT32_MAX);
    client_message(&busy->client, call, false, "two", 3);
    while (call->in_len < 2 * (GRPC_PREFIX_BYTES + 3)) {
        live_step(busy, true);
    }
    assert_int_equal(busy->client.goaway_last, call->id);
    client_end(&busy->client, call);
    live_until_ended(busy);
    assert_string_equal(call->grpc_status, "0");
    /* A connection that was silent gets the notice with its first call, which is served. */
    struct client_call *late = client_unary(&mute->client, "/t.T/Echo", STR("late"));
    live_until_ended(mute);
    assert_echo(late, STR("late"));
    assert_true(mute->client.goaway);
    live_close(busy);
    live_close(idle);
    live_close(mute);
    test_grpc_end(&test);
}

static void server_stop_cancels_open_calls(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    client_unary(&live->client, "/t.T/Later", STR("a"));
    client_unary(&live->client, "/t.T/Later", STR("b"));
    struct client_call *bidi = client_begin(&live->client, "/t.T/Bidi", NULL);
    while (atomic_load(&test.begins) < 3) {
        live_step(live, false);
    }
    test_wait_for(&test.n_later, 2);
    test_host_ask_stop(&test.host, test_run_stop);
    test_wait_for(&test.cancels, 3);
    live_until_ended(live);
    assert_true(bidi->closed || live->ended);
    test_finish_later(&test, 0); /* what was owed */
    test_finish_later(&test, 1);
    live_close(live);
    test_grpc_end(&test);
}

static void server_lost_client_cancels_calls(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    for (int i = 0; i < 20; i++) {
        struct live *live = live_open(&test);
        client_unary(&live->client, "/t.T/Later", STR("a"));
        while (atomic_load(&test.n_later) < i + 1) {
            live_step(live, false);
        }
        if (i % 2) {
            test_reset(live->fd);
            live->fd = -1;
        }
        live_close(live);
        test_wait_for(&test.cancels, i + 1);
        test_finish_later(&test, i);
    }
    test_wait_for(&test.ends, 20);
    test_grpc_end(&test);
}

/* RST_STREAM cancels the call and keeps the connection. */
static void server_reset_stream_cancels_call(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    struct client_call *call = client_unary(&live->client, "/t.T/Later", STR("a"));
    while (atomic_load(&test.n_later) < 1) {
        live_step(live, false);
    }
    nghttp2_submit_rst_stream(live->client.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
    struct client_call *next = client_unary(&live->client, "/t.T/Echo", STR("next"));
    live_until_closed(live, next);
    assert_echo(next, STR("next"));
    assert_int_equal(test.cancels, 1);
    test_finish_later(&test, 0);
    live_close(live);
    test_grpc_end(&test);
}

/* A streaming method sees the call before any message arrives. */
static void server_deadline_cancels_call(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    const char *const fields[] = {"grpc-timeout", "20m", NULL};
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    struct client_call *call = client_begin(&live->client, "/t.T/Bidi", fields);
    live_until_closed(live, call);
    assert_string_equal(call->grpc_status, "4");
    test_wait_for(&test.cancels, 1);
    live_close(live);
    test_grpc_end(&test);
}

/* ---- slow and silent clients ----------------------------------------------------------------- */

/* The socket is full for a while: nothing is lost. */
static void server_slow_reader_gets_all_bytes(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    live_open_windows(live);
    struct client_call *calls[4];
    for (int i = 0; i < 4; i++) {
        calls[i] = client_unary(&live->client, "/t.T/Flood", STR("x"));
    }
    while (atomic_load(&test.begins) < 4) {
        live_step(live, false);
    }
    usleep(50000); /* lets the server fill the socket */
    for (int i = 0; i < 4; i++) {
        live_until_closed(live, calls[i]);
        assert_string_equal(calls[i]->grpc_status, "0");
        assert_int_equal(calls[i]->in_len, GRPC_PREFIX_BYTES + 8000000);
    }
    live_close(live);
    test_grpc_end(&test);
}

/* Waits until the server has no connection left. */
static void wait_for_no_connection(void) {
    while (metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
}

/* One client reads nothing, one reads but opens no window. */
static void server_write_timeout_resets_unread_calls(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    limits.net.write_timeout_ns = 50000000;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    live_open_windows(live);
    for (int i = 0; i < 4; i++) {
        client_unary(&live->client, "/t.T/Flood", STR("x"));
    }
    /* On a busy machine the first calls may have timed out before the others begin. */
    do {
        live_step(live, false);
    } while (atomic_load(&test.begins) < 4 && metric_read(METRIC_CONNECTIONS) > 0);
    /* All may be reset before the last of these steps, which read: the connection does not stall
     * then, and stays. */
    while (atomic_load(&test.ends) < 4 && metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
    live_close(live);
    wait_for_no_connection();

    live = live_open_as(&test, true);
    struct client_call *call = client_unary(&live->client, "/t.T/Flood", STR("x"));
    live_until_closed(live, call);
    assert_int_equal(call->code, NGHTTP2_CANCEL);
    assert_true(call->in_len > 0 && call->in_len < 8000000);
    live_close(live);
    test_grpc_end(&test);
}

static void server_header_timeout_closes_connection(void **state) {
    (void)state;
    static struct test_grpc test;
    static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct grpc_limits limits = test_limits();
    limits.net.header_timeout_ns = 30000000;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    static const struct str BEGINNINGS[] = {
        {"", 0},
        {"PRI * HT", 8},
        {PREFACE, 24},                                        /* no SETTINGS */
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" /* SETTINGS */
         "\0\0\1\1\0\0\0\0\1\x83",                            /* HEADERS, no end */
         24 + 9 + 10},
    };
    for (size_t i = 0; i < sizeof(BEGINNINGS) / sizeof(BEGINNINGS[0]); i++) {
        char bytes[4096];
        int fd = test_connect_to(&test.host.bound);
        test_send(fd, BEGINNINGS[i]);
        size_t n = test_read(fd, bytes, sizeof(bytes)); /* until the connection closes */
        assert_true(n < sizeof(bytes));
        close(fd);
    }
    test_grpc_end(&test);
}

static void server_idle_timeout_sends_goaway(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    limits.net.idle_timeout_ns = 600000000; /* which a client keeps on a busy machine */
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *live = live_open(&test);
    live_until_closed(live, client_unary(&live->client, "/t.T/Echo", STR("x")));
    live_until_ended(live);
    assert_true(live->client.goaway && live->client.goaway_code == NGHTTP2_NO_ERROR);
    live_close(live);
    /* A connection with a call is not idle. */
    live = live_open(&test);
    struct client_call *call = client_unary(&live->client, "/t.T/Later", STR("x"));
    while (atomic_load(&test.n_later) < 1) {
        live_step(live, false);
    }
    usleep(1200000);
    test_finish_later(&test, 0);
    live_until_closed(live, call);
    assert_string_equal(call->grpc_status, "0");
    live_close(live);
    test_grpc_end(&test);
}

/* An old connection takes no new calls. Its calls go on, until the grace is over. */
static void server_old_connection_gets_goaway(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    limits.net.max_age_ns = 50000000;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *idle = live_open(&test), *busy = live_open(&test);
    struct client_call *call = client_unary(&busy->client, "/t.T/Later", STR("x"));
    while (atomic_load(&test.n_later) < 1) {
        live_step(busy, false);
    }
    live_until_ended(idle);
    assert_true(idle->client.goaway && idle->client.goaway_code == NGHTTP2_NO_ERROR);
    live_until_goaway(busy);
    assert_int_equal(busy->client.goaway_code, NGHTTP2_NO_ERROR);
    test_finish_later(&test, 0);
    live_until_closed(busy, call);
    assert_string_equal(call->grpc_status, "0");
    live_until_ended(busy);
    live_close(idle);
    live_close(busy);
    test_grpc_end(&test);
}

static void server_old_connection_is_closed_after_grace(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    limits.net.max_age_ns = limits.net.age_grace_ns = 50000000;
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    struct live *busy = live_open(&test);
    client_begin(&busy->client, "/t.T/Bidi", NULL);
    live_until_ended(busy); /* the call does not end by itself */
    assert_true(busy->client.goaway);
    live_close(busy);
    test_grpc_end(&test);
}

/* ---- clients of other protocols -------------------------------------------------------------- */

static void server_http1_request_gets_505(void **state) {
    (void)state;
    static struct test_grpc test;
    char answer[1024] = "";
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 100, "127.0.0.1:0");
    int fd = test_connect_to(&test.host.bound);
    test_send(fd, STR("GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"));
    test_read(fd, answer, sizeof(answer) - 1);
    assert_memory_equal(answer, "HTTP/1.1 505 ", 13);
    const char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    assert_non_null(strstr(answer, "Content-Length: 91\r\n"));
    assert_int_equal(strlen(body + 4), 91);
    assert_non_null(strstr(body, "gRPC"));
    close(fd);
    fd = test_connect_to(&test.host.bound);
    test_send(fd, STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"));
    assert_true(test_is_closed(fd));
    close(fd);
    test_grpc_end(&test);
}

static void server_connection_over_limit_gets_goaway(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 1, "127.0.0.1:0");
    struct live *first = live_open(&test);
    struct client_call *call = client_begin(&first->client, "/t.T/Bidi", NULL);
    client_message(&first->client, call, false, "one", 3);
    while (call->in_len < GRPC_PREFIX_BYTES + 3) {
        live_step(first, true);
    }
    struct live *second = live_open(&test);
    live_until_ended(second);
    assert_true(second->client.goaway && second->client.goaway_code == NGHTTP2_ENHANCE_YOUR_CALM);
    assert_non_null(strstr(second->client.goaway_text, "at most 1 connections"));
    live_close(second);
    client_end(&first->client, call);
    live_until_closed(first, call);
    assert_string_equal(call->grpc_status, "0");
    live_close(first);
    test_grpc_end(&test);
}

/* The client of the idle one is told by GOAWAY, so that it knows which calls were taken. */
static void server_connection_over_limit_takes_place_of_idle_one(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 1, "127.0.0.1:0");
    struct live *idle = live_open(&test);
    struct client_call *call = client_unary(&idle->client, "/t.T/Echo", STR("x"));
    live_until_closed(idle, call);
    struct live *second = NULL;
    for (bool served = false; !served;) { /* refused as long as the worker has not seen it idle */
        second = live_open(&test);
        struct client_call *other = client_unary(&second->client, "/t.T/Echo", STR("y"));
        while (!other->closed && !second->ended) {
            live_step(second, true);
        }
        served = other->closed;
        if (!served) {
            live_close(second);
        }
    }
    live_until_ended(idle);
    assert_true(idle->client.goaway && idle->client.goaway_code == NGHTTP2_NO_ERROR);
    assert_int_equal(idle->client.goaway_last, call->id);
    live_close(idle);
    live_close(second);
    test_grpc_end(&test);
}

static void report_done(void *user) {
    atomic_store((atomic_bool *)user, true);
}

/* A report of the connections, as a reader of /debug/state gets it. */
struct reported {
    struct net_report_server server;
    struct worker *worker;
    struct arena *arena;
    struct buf text;
    atomic_bool done;
    struct worker_msg msg;
};

static void run_report(struct worker_msg *msg) {
    struct reported *reported = CONTAINER_OF(msg, struct reported, msg);
    struct error err;
    reported->arena = arena_new(worker_arenas(reported->worker), 0);
    buf_init(&reported->text, reported->arena, 1024);
    assert_int_equal(net_report_start(&reported->server, 1, reported->worker, &reported->text,
                                      report_done, &reported->done, &err),
                     ST_OK);
}

static void run_report_end(struct worker_msg *msg) {
    struct reported *reported = CONTAINER_OF(msg, struct reported, msg);
    arena_free(reported->arena);
    atomic_store(&reported->done, false);
}

/* Its session is not open: that is made with the first bytes. */
static void server_connection_without_bytes_is_in_report(void **state) {
    (void)state;
    static struct test_grpc test;
    struct grpc_limits limits = test_limits();
    test_grpc_start(&test, &limits, 10, "127.0.0.1:0");
    int fd = test_connect_to(&test.host.bound);
    while (metric_read(METRIC_CONNECTIONS) < 1) {
        usleep(1000);
    }
    static struct reported reported;
    reported = (struct reported){.server = {"grpc", grpc_server_net(test.server)},
                                 .worker = test.host.workers[0],
                                 .msg.run = run_report};
    worker_post(reported.worker, &reported.msg);
    while (!atomic_load(&reported.done)) {
        usleep(1000);
    }
    buf_add_char(&reported.text, '\0');
    assert_non_null(strstr(reported.text.data, ": 0 calls"));
    reported.msg.run = run_report_end;
    worker_post(reported.worker, &reported.msg);
    while (atomic_load(&reported.done)) {
        usleep(1000);
    }
    close(fd);
    test_grpc_end(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_over_tcp_answers),
        cmocka_unit_test(server_over_unix_socket_answers),
        cmocka_unit_test(server_large_messages_are_echoed),
        cmocka_unit_test(server_status_after_held_frame_is_sent),
        cmocka_unit_test(server_compressed_message_read_while_writing_is_delivered),
        cmocka_unit_test(server_message_behind_pending_input_is_whole),
        cmocka_unit_test(server_pending_messages_are_delivered_in_slices),
        cmocka_unit_test(server_turns_of_connections_share_their_time),
        cmocka_unit_test(server_drain_finishes_open_calls),
        cmocka_unit_test(server_stop_cancels_open_calls),
        cmocka_unit_test(server_lost_client_cancels_calls),
        cmocka_unit_test(server_reset_stream_cancels_call),
        cmocka_unit_test(server_deadline_cancels_call),
        cmocka_unit_test(server_slow_reader_gets_all_bytes),
        cmocka_unit_test(server_write_timeout_resets_unread_calls),
        cmocka_unit_test(server_header_timeout_closes_connection),
        cmocka_unit_test(server_idle_timeout_sends_goaway),
        cmocka_unit_test(server_old_connection_gets_goaway),
        cmocka_unit_test(server_old_connection_is_closed_after_grace),
        cmocka_unit_test(server_http1_request_gets_505),
        cmocka_unit_test(server_connection_over_limit_gets_goaway),
        cmocka_unit_test(server_connection_over_limit_takes_place_of_idle_one),
        cmocka_unit_test(server_connection_without_bytes_is_in_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
