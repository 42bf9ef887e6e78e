/* TLS connections that end: closed in order, slow, disconnected, or of another protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/tls/conn_fixture.h"

static const uint64_t SHORT_NS = 50000000;

/* ---- closing --------------------------------------------------------------------------------- */

static void server_close_sends_close_notify(void **state) {
    static struct test_server server;
    struct net_limits limits = test_limits();
    (void)state;
    limits.idle_timeout_ns = 10 * SHORT_NS; /* which a client keeps on a busy machine */
    serve_with(&server, &limits, test_budget());
    SSL *idle = connect_tls(&server);
    SSL *asked = connect_tls(&server);
    send_tls(asked, STR("GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"));
    expect_tls(asked, 200, "hello");
    assert_true(ended_well(asked));
    assert_true(ended_well(idle));
    hang_up(asked);
    hang_up(idle);
    test_server_stop(&server);
}

static void drain_sends_close_notify(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    SSL *idle = connect_tls(&server), *busy = connect_tls(&server);
    send_tls(idle, STR(GET("/hello")));
    expect_tls(idle, 200, "hello");
    send_tls(busy, STR(GET("/never")));
    while (!atomic_load(&server.never)) {
        usleep(1000);
    }
    test_host_control(&server.host, test_run_drain);
    assert_true(ended_well(idle));
    test_answer_never(&server);
    expect_tls(busy, 200, "later");
    assert_true(ended_well(busy));
    hang_up(idle);
    hang_up(busy);
    test_server_stop(&server);
}

/* A client that sent close_notify still gets its response. */
static void client_close_notify_still_gets_reply(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    SSL *ssl = connect_tls(&server);
    send_tls(ssl, STR(GET("/later")));
    SSL_shutdown(ssl);
    expect_tls(ssl, 200, "later");
    assert_true(ended_well(ssl));
    hang_up(ssl);
    ssl = connect_tls(&server);
    SSL_shutdown(ssl);
    assert_true(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
}

static int reply_n_bytes; /* 0: "hello", after a millisecond */

static void on_head(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    atomic_fetch_add(&server->heads, 1);
    if (reply_n_bytes == 0) {
        usleep(1000);
    }
    test_reply(server, exchange,
               reply_n_bytes > 0 ? str_make(server->big, (size_t)reply_n_bytes) : STR("hello"),
               NULL, 0);
}

static void serve_n_bytes(struct test_server *server, int n_bytes) {
    struct net_limits limits = test_limits();
    struct test_handler handler = {.on_head = on_head, .after_head = {.on_end = test_on_end}};
    reply_n_bytes = n_bytes;
    test_server_start_as(server, handler, &limits, test_budget(), "127.0.0.1:0", tls);
}

static void send_gets(SSL *ssl, int n) {
    for (int i = 0; i < n; i++) {
        send_tls(ssl, STR(GET("/hello")));
    }
}

/* All requests before a close_notify are answered, also where it is read together with them, and
 * where they take more than one turn. */
static void close_notify_after_pipelined_requests_gets_all_replies(void **state) {
    static struct test_server server;
    int on = 1, off = 0;
    (void)state;
    serve_n_bytes(&server, 0);
    for (int n = 3; n <= 24; n += 21) {
        SSL *ssl = connect_tls(&server);
        int fd = SSL_get_fd(ssl);
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)), 0);
        send_gets(ssl, n);
        SSL_shutdown(ssl);
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)), 0);
        for (int i = 0; i < n; i++) {
            expect_tls(ssl, 200, "hello");
        }
        assert_true(ended_well(ssl));
        hang_up(ssl);
    }
    test_server_stop(&server);
}

/* Pipelines `n` requests, half-closes and reads all responses. */
static void expect_all_after_half_close(const struct test_server *server, int n) {
    static char got[1 << 16];
    int status;
    SSL *ssl = connect_tls(server);
    send_gets(ssl, n);
    shutdown(SSL_get_fd(ssl), SHUT_WR);
    usleep(20000); /* the server has read the end by then, or waits for this client */
    for (int i = 0; i < n; i++) {
        size_t n_bytes = read_head(ssl, &status);
        assert_int_equal(n_bytes, reply_n_bytes);
        assert_int_equal(read_tls(ssl, got, n_bytes), n_bytes);
    }
    hang_up(ssl);
}

/* The last response is encrypted, and the socket has taken a part of it, when the client's end is
 * there: the rest is sent. */
static void half_closed_client_gets_encrypted_rest(void **state) {
    enum { MOST = 400 };
    static struct test_server server;
    int n = 0;
    (void)state;
    serve_n_bytes(&server, 60000);
    SSL *ssl = connect_tls(&server);
    send_gets(ssl, MOST);
    test_wait_for(&server.releases, 3);
    for (int quiet = 0; quiet < 10; quiet++, usleep(10000)) { /* until the sockets are full */
        quiet = atomic_load(&server.releases) > n ? 0 : quiet;
        n = atomic_load(&server.releases);
    }
    assert_true(n < MOST);
    hang_up(ssl);
    for (int i = 0; i < 27; i++) { /* as many, or nearly, fill the sockets of the next clients */
        expect_all_after_half_close(&server, n - 4 + i % 9);
    }
    test_server_stop(&server);
}

static void client_disconnects_leak_nothing(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    for (int i = 0; i < 20; i++) {
        SSL *ssl = connect_tls(&server);
        send_tls(ssl,
                 i % 2 ? STR(GET("/big"))
                       : STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc"));
        if (i % 4 < 2) {
            hang_up(ssl);
        } else {
            int fd = SSL_get_fd(ssl);
            SSL_free(ssl);
            test_reset(fd);
        }
    }
    test_server_stop(&server);
}

static int resetting_fd;

/* The client resets its connection just before the end of the response is written. */
static void on_head_of_reset(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    const struct piece piece = {"abc", 3};
    atomic_fetch_add(&server->heads, 1);
    atomic_fetch_add(&server->replies, 1);
    http_stream_begin(exchange, &(struct http_reply){.status = 200, .content_type = "text/x"});
    http_stream_send(exchange, &piece, 1, test_released, server);
    test_reset(resetting_fd);
    http_stream_end(exchange);
}

/* Its last chunk is in use until the write that failed has returned. */
static void client_reset_before_end_of_stream_ends_call(void **state) {
    static struct test_server server;
    struct net_limits limits = test_limits();
    struct test_handler handler = {.on_head = on_head_of_reset,
                                   .after_head = {.on_end = test_on_end}};
    (void)state;
    test_server_start_as(&server, handler, &limits, test_budget(), "127.0.0.1:0", tls);
    for (int n = 1; n <= 3; n++) {
        SSL *ssl = connect_tls(&server);
        resetting_fd = SSL_get_fd(ssl);
        send_tls(ssl, STR(GET("/")));
        test_wait_for(&server.ends, n);
        assert_int_equal(server.releases, n);
        SSL_free(ssl);
    }
    test_server_stop(&server);
}

/* A response that refuses a body can be read while the body is sent. */
static void refused_body_client_reads_413(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    SSL *ssl = connect_tls(&server);
    send_post(ssl, "/small", sizeof(body));
    send_tls(ssl, str_make(body, sizeof(body)));
    expect_tls(ssl, 413, "BODY_TOO_LARGE");
    assert_true(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
}

/* The part of a body that comes with its head ends where the memory does. */
static void body_memory_ends_with_first_part_gets_503(void **state) {
    static struct test_server server;
    static char first[2200];
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    (void)state;
    budget.body_memory = 65536;
    serve_with(&server, &limits, budget);
    SSL *holder = connect_tls(&server), *ssl = connect_tls(&server);
    send_post(holder, "/echo", 70000);
    send_tls(holder, str_make(body, 3000));
    while (atomic_load(&server.host.budget.n_body_bytes) < 65536) {
        usleep(1000);
    }
    int n = snprintf(first, sizeof(first),
                     "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000\r\n\r\n");
    send_tls(ssl, str_make(first, (size_t)n + 2048)); /* as much as is never accounted */
    send_tls(ssl, str_make(body, 20000 - 2048));
    expect_tls(ssl, 503, "OVERLOADED");
    send_tls(ssl, STR(GET("/hello")));
    expect_tls(ssl, 200, "hello");
    hang_up(ssl);
    hang_up(holder);
    test_server_stop(&server);
}

static void connection_over_limit_gets_503(void **state) {
    static struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    (void)state;
    budget.max_connections = 1;
    serve_with(&server, &limits, budget);
    SSL *first = connect_tls(&server);
    send_tls(first, STR(GET("/hello") "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    expect_tls(first, 200, "hello");
    SSL *second = connect_tls(&server);
    expect_tls(second, 503, "TOO_MANY_CONNECTIONS");
    assert_true(ended_well(second));
    hang_up(second);
    send_tls(first, STR("b"));
    expect_tls(first, 200, "ab");
    SSL *third = NULL;
    for (int status = 503; status == 503;) { /* as long as `first` is not idle for its worker */
        if (third) {
            hang_up(third);
        }
        third = connect_tls(&server); /* takes the place of one that is idle */
        send_tls(third, STR(GET("/hello")));
        (void)read_head(third, &status);
        assert_true(status == 200 || status == 503);
    }
    assert_true(ended_well(first));
    hang_up(first);
    hang_up(third);
    test_server_stop(&server);
}

static void write_timeout_closes_without_close_notify(void **state) {
    static struct test_server server;
    struct net_limits limits = test_limits();
    static char got[TEST_BIG_BYTES * 2];
    int status;
    (void)state;
    limits.write_timeout_ns = SHORT_NS;
    serve_with(&server, &limits, test_budget());
    SSL *ssl = connect_tls(&server);
    send_tls(ssl, STR(GET("/big") GET("/big") GET("/big")));
    test_wait_for(&server.gones, 0);
    while (metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
    /* A truncated response is not taken as complete. */
    read_head(ssl, &status);
    (void)read_tls(ssl, got, sizeof(got));
    assert_false(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
}

/* ---- plaintext on a TLS port ----------------------------------------------------------------- */

static int64_t failures_of(enum tls_failure failure) {
    return metric_read((enum metric)((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)failure));
}

static void plaintext_client_is_answered_in_plaintext(void **state) {
    static struct test_server server;
    static struct test_answer answer;
    int64_t before = failures_of(TLS_FAILURE_PLAINTEXT);
    char frames[128];
    (void)state;
    serve(&server);
    int fd = test_connect(&server);
    test_send(fd, STR("GET /hello HTTP/1.1\r\n" HOST "\r\n"));
    assert_true(test_read_answer(fd, &answer, false));
    assert_int_equal(answer.status, 400);
    assert_true(answer.closes);
    assert_non_null(strstr(answer.body, "https://"));
    assert_true(test_is_closed(fd));
    close(fd);
    fd = test_connect(&server);
    test_send(fd, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    size_t n = test_read(fd, frames, sizeof(frames));
    assert_int_equal(n, 9 + 9 + 8 + 24);
    assert_int_equal(frames[3], 4);     /* SETTINGS */
    assert_int_equal(frames[9 + 3], 7); /* GOAWAY */
    assert_int_equal(frames[9 + 2], 8 + 24);
    assert_int_equal(frames[9 + 9 + 7], 0xc);
    close(fd);
    test_server_stop(&server);
    assert_int_equal(failures_of(TLS_FAILURE_PLAINTEXT) - before, 2);
    assert_int_equal(server.heads, 0);
}

static void garbage_bytes_fail_handshake(void **state) {
    static const struct str sent[] = {
        STR("\0\1\0\0\0\0\0\4Ping"),
        STR("\x16\x03\x01\x60\x01 too long a record for any handshake"),
        STR("\x80\x08\x09\x03\x01 SSL 2"),
        STR("{\"json\": true}"),
    };
    static struct test_server server;
    char alert[64];
    (void)state;
    serve(&server);
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        int fd = test_connect(&server);
        test_send(fd, sent[i]);
        (void)test_read(fd, alert, sizeof(alert)); /* until it closes */
        close(fd);
    }
    /* After a successful handshake too. */
    SSL *ssl = connect_tls(&server);
    test_send(SSL_get_fd(ssl), STR("\x17\x03\x03\x00\x20 this is nobody's secret, is it?"));
    assert_false(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
    assert_int_equal(server.heads, 0);
}

/* A client that sends only updates of its keys is no longer read; others are served. */
static void key_updates_without_data_end_the_connection(void **state) {
    enum { MANY = 20000 }; /* takes the server a second, if it handles them all */
    static struct test_server server;
    int n = 0, rc = 1;
    (void)state;
    serve(&server);
    int64_t before = failures_of(TLS_FAILURE_PROTOCOL);
    int64_t failed_before = metric_read(METRIC_TLS_CONNECTION_FAILURES_TOTAL);
    SSL *updating = connect_tls(&server), *good = connect_tls(&server);
    send_tls(updating, STR(GET("/hello")));
    expect_tls(updating, 200, "hello");
    while (n < MANY && rc == 1) {
        SSL_key_update(updating, SSL_KEY_UPDATE_NOT_REQUESTED);
        rc = SSL_do_handshake(updating); /* fails once the server has closed */
        n++;
    }
    char byte;
    assert_int_equal(read_tls(updating, &byte, 1), 0);
    assert_int_equal(metric_read(METRIC_TLS_CONNECTION_FAILURES_TOTAL), failed_before + 1);
    assert_int_equal(failures_of(TLS_FAILURE_PROTOCOL), before); /* the handshake succeeded */
    send_tls(good, STR(GET("/hello")));
    expect_tls(good, 200, "hello");
    hang_up(updating);
    hang_up(good);
    test_server_stop(&server);
}

/* Stalled handshakes time out and block no other connection. */
static void slow_handshakes_time_out_without_blocking_others(void **state) {
    enum { SLOW = 50 };
    static struct test_server server;
    struct net_limits limits = test_limits();
    int fds[SLOW];
    char *data;
    int64_t before = failures_of(TLS_FAILURE_TIMEOUT);
    (void)state;
    limits.header_timeout_ns = 1000000000;
    serve_with(&server, &limits, test_budget());
    SSL *ssl = test_client_new(client_context);
    SSL_do_handshake(ssl);
    size_t n = (size_t)BIO_get_mem_data(SSL_get_wbio(ssl), &data);
    for (size_t i = 0; i < SLOW; i++) { /* nothing, a part, all of the first message */
        fds[i] = test_connect(&server);
        test_send(fds[i], str_make(data, n * i / (SLOW - 1)));
    }
    SSL_free(ssl);
    ssl = connect_tls(&server);
    send_tls(ssl, STR(GET("/hello")));
    expect_tls(ssl, 200, "hello");
    hang_up(ssl);
    for (size_t i = 0; i < SLOW; i++) {
        char rest[8192];
        (void)test_read(fds[i], rest, sizeof(rest)); /* until it closes */
        close(fds[i]);
    }
    test_server_stop(&server);
    assert_int_equal(failures_of(TLS_FAILURE_TIMEOUT) - before, SLOW);
}

static void abandoned_handshakes_are_counted(void **state) {
    static struct test_server server;
    int64_t before = failures_of(TLS_FAILURE_DISCONNECTED);
    int64_t n_before = metric_read(METRIC_CONNECTIONS_TOTAL);
    (void)state;
    serve(&server);
    for (int i = 0; i < 10; i++) {
        int fd = test_connect(&server);
        test_send(fd, str_make("\x16\x03\x01", (size_t)(i % 4)));
        if (i % 2) {
            test_reset(fd);
        } else {
            close(fd);
        }
    }
    while (metric_read(METRIC_CONNECTIONS_TOTAL) - n_before < 10 ||
           metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
    test_server_stop(&server);
    assert_int_equal(failures_of(TLS_FAILURE_DISCONNECTED) - before, 10);
}

/* Stopped in a handshake, while a response is written and while a body is read. */
static void stop_in_every_state_completes(void **state) {
    static struct test_server server;
    int64_t n_handshakes = metric_read(METRIC_TLS_HANDSHAKES_TOTAL);
    (void)state;
    serve(&server);
    int half = test_connect(&server);
    test_send(half, STR("\x16\x03\x01\x02"));
    SSL *reading = connect_tls(&server), *writing = connect_tls(&server);
    send_tls(reading, STR(GET("/big") GET("/big")));
    send_post(writing, "/echo", 1 << 20);
    test_wait_for(&server.heads, 2);
    while (metric_read(METRIC_REQUESTS_IN_FLIGHT) < 2) {
        usleep(1000);
    }
    assert_int_equal(metric_read(METRIC_CONNECTIONS), 3);
    test_server_stop(&server); /* asserts that the gauges are 0 */
    assert_int_equal(server.heads, 2);
    assert_int_equal(server.bodies, 0); /* only the head of the POST was sent */
    assert_int_equal(metric_read(METRIC_TLS_HANDSHAKES_TOTAL) - n_handshakes, 2);
    assert_true(test_is_closed(half));
    assert_true(ended_well(writing));
    /* 6 of 8 MiB: more than the sockets hold. An answer that was cut off must not look whole. */
    assert_true(read_tls(reading, body, sizeof(body)) < sizeof(body));
    close(half);
    hang_up(reading);
    hang_up(writing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_close_sends_close_notify),
        cmocka_unit_test(drain_sends_close_notify),
        cmocka_unit_test(client_close_notify_still_gets_reply),
        cmocka_unit_test(close_notify_after_pipelined_requests_gets_all_replies),
        cmocka_unit_test(half_closed_client_gets_encrypted_rest),
        cmocka_unit_test(client_disconnects_leak_nothing),
        cmocka_unit_test(client_reset_before_end_of_stream_ends_call),
        cmocka_unit_test(refused_body_client_reads_413),
        cmocka_unit_test(body_memory_ends_with_first_part_gets_503),
        cmocka_unit_test(connection_over_limit_gets_503),
        cmocka_unit_test(write_timeout_closes_without_close_notify),
        cmocka_unit_test(plaintext_client_is_answered_in_plaintext),
        cmocka_unit_test(garbage_bytes_fail_handshake),
        cmocka_unit_test(key_updates_without_data_end_the_connection),
        cmocka_unit_test(slow_handshakes_time_out_without_blocking_others),
        cmocka_unit_test(abandoned_handshakes_are_counted),
        cmocka_unit_test(stop_in_every_state_completes),
    };
    return cmocka_run_group_tests(tests, make_tls, free_tls);
}
