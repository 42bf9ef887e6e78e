/* The HTTP server over TLS as its clients see it: the same requests and responses as without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>

#include "net/server/tls/conn_fixture.h"

/* ---- requests and answers -------------------------------------------------------------------- */

static void sequential_requests_are_answered(void **state) {
    static struct test_server server;
    int64_t before = metric_read(METRIC_TLS_HANDSHAKES_TOTAL);
    (void)state;
    serve(&server);
    SSL *ssl = connect_tls(&server);
    for (int i = 0; i < 10; i++) {
        send_tls(ssl, STR(GET("/hello")));
        expect_tls(ssl, 200, "hello");
        send_tls(ssl, STR(GET("/later")));
        expect_tls(ssl, 200, "later");
        send_post(ssl, "/echo", 3);
        send_tls(ssl, STR("abc"));
        expect_tls(ssl, 200, "abc");
    }
    hang_up(ssl);
    assert_int_equal(metric_read(METRIC_TLS_HANDSHAKES_TOTAL) - before, 1);
    test_server_stop(&server);
}

/* Many requests in one record, some of which are answered later. */
static void pipelined_requests_in_one_record_are_answered(void **state) {
    static struct test_server server;
    struct arena *arena = arena_new(NULL, 0);
    struct buf all;
    (void)state;
    buf_init(&all, arena, 0);
    serve(&server);
    SSL *ssl = connect_tls(&server);
    for (int i = 0; i < 1000; i++) {
        buf_add_str(&all, i % 10 == 9 ? STR(GET("/later")) : STR(GET("/hello")));
    }
    send_tls(ssl, buf_str(&all));
    arena_free(arena);
    for (int i = 0; i < 1000; i++) {
        expect_tls(ssl, 200, i % 10 == 9 ? "later" : "hello");
    }
    hang_up(ssl);
    test_server_stop(&server);
}

/* Every byte of the handshake and of a request in a packet of its own. */
static void bytes_one_by_one_are_answered(void **state) {
    static struct test_server server;
    char in[16384];
    char *data;
    (void)state;
    serve(&server);
    int fd = test_connect(&server);
    SSL *ssl = test_client_new(client_context);
    SSL_write(ssl, GET("/hello"), sizeof(GET("/hello")) - 1);
    for (int i = 0; i < 2; i++) {
        size_t n = (size_t)BIO_get_mem_data(SSL_get_wbio(ssl), &data);
        for (size_t at = 0; at < n; at++) {
            test_send(fd, str_make(data + at, 1));
        }
        BIO_reset(SSL_get_wbio(ssl));
        while (i == 0 && !SSL_is_init_finished(ssl)) {
            ssize_t got = recv(fd, in, sizeof(in), 0);
            assert_true(got > 0);
            BIO_write(SSL_get_rbio(ssl), in, (int)got);
            SSL_do_handshake(ssl);
        }
        if (i == 0) {
            SSL_write(ssl, GET("/hello"), sizeof(GET("/hello")) - 1);
        }
    }
    size_t n_answer = 0;
    while (n_answer < 5 || memcmp(in + n_answer - 5, "hello", 5) != 0) {
        char got[4096];
        ssize_t n = recv(fd, got, sizeof(got), 0);
        assert_true(n > 0);
        BIO_write(SSL_get_rbio(ssl), got, (int)n);
        int rc = SSL_read(ssl, in + n_answer, (int)(sizeof(in) - n_answer));
        n_answer += rc > 0 ? (size_t)rc : 0;
    }
    assert_memory_equal(in, "HTTP/1.1 200", 12);
    SSL_free(ssl);
    close(fd);
    test_server_stop(&server);
}

/* Large bodies both ways: read in place, sent to a slow client. */
static void large_bodies_both_ways_are_intact(void **state) {
    static const size_t sizes[] = {20000, TLS_RECORD_BYTES * 5, 1 << 20, sizeof(body)};
    static char got[sizeof(body)];
    static struct test_server server;
    (void)state;
    serve(&server);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int status;
        int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
        SSL *ssl = connect_tls(&server);
        send_post(ssl, "/echo", sizes[i]);
        send_tls(ssl, str_make(body, sizes[i]));
        assert_int_equal(read_head(ssl, &status), sizes[i]);
        assert_int_equal(status, 200);
        assert_int_equal(read_tls(ssl, got, sizes[i]), sizes[i]);
        assert_memory_equal(got, body, sizes[i]);
        assert_true(metric_read(METRIC_COPIED_BYTES_TOTAL) - copied <= NET_DECRYPTED_BYTES);
        send_tls(ssl, STR(GET("/hello")));
        expect_tls(ssl, 200, "hello");
        hang_up(ssl);
    }
    test_server_stop(&server);
}

static void body_offset_is_aligned_to_64_bytes(void **state) {
    static struct test_server server;
    char path[32];
    (void)state;
    serve(&server);
    SSL *ssl = connect_tls(&server);
    for (int at = 0; at < 200; at += 7) {
        snprintf(path, sizeof(path), "/aligned?%d", at);
        send_post(ssl, path, 100000);
        send_tls(ssl, str_make(body, 100000));
        expect_tls(ssl, 200, "yes");
    }
    hang_up(ssl);
    test_server_stop(&server);
}

/* A slow reader gets all bytes, and the responses after them. */
static void slow_reader_gets_all_bytes(void **state) {
    static char got[TEST_BIG_BYTES];
    static struct test_server server;
    int small = 4096, status;
    (void)state;
    serve(&server);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    const struct address *to = &server.host.bound;
    assert_int_equal(connect(fd, (const struct sockaddr *)&to->storage, to->len), 0);
    SSL *ssl = shake_hands(fd);
    send_tls(ssl, STR(GET("/big") GET("/hello") GET("/big") GET("/hello")));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_head(ssl, &status), TEST_BIG_BYTES);
        for (size_t at = 0; at < TEST_BIG_BYTES; at += TEST_BIG_BYTES / 64) {
            usleep(200);
            assert_int_equal(read_tls(ssl, got + at, TEST_BIG_BYTES / 64), TEST_BIG_BYTES / 64);
        }
        assert_memory_equal(got, server.big, TEST_BIG_BYTES);
        expect_tls(ssl, 200, "hello");
    }
    hang_up(ssl);
    test_server_stop(&server);
}

/* The responses of many small requests, none read for a while. */
static void unread_replies_are_all_delivered(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    SSL *ssl = connect_tls(&server);
    int n = 0;
    SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
    struct timeval wait = {.tv_usec = 200000};
    setsockopt(SSL_get_fd(ssl), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    while (n < 200000 && SSL_write(ssl, GET("/hello"), sizeof(GET("/hello")) - 1) > 0) {
        n++;
    }
    assert_true(n > 100);
    for (int i = 0; i < n; i++) {
        expect_tls(ssl, 200, "hello");
    }
    hang_up(ssl);
    test_server_stop(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_requests_are_answered),
        cmocka_unit_test(pipelined_requests_in_one_record_are_answered),
        cmocka_unit_test(bytes_one_by_one_are_answered),
        cmocka_unit_test(large_bodies_both_ways_are_intact),
        cmocka_unit_test(body_offset_is_aligned_to_64_bytes),
        cmocka_unit_test(slow_reader_gets_all_bytes),
        cmocka_unit_test(unread_replies_are_all_delivered),
    };
    return cmocka_run_group_tests(tests, make_tls, free_tls);
}
