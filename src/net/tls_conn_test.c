/* The HTTP server over TLS, as its clients see it through sockets: the same requests and answers as
 * without, and what TLS adds, who is slow, who is gone, who speaks something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <openssl/err.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/log.h"
#include "net/http_server_fixture.h"
#include "net/server.h"
#include "net/tls_fixture.h"
#include "net/tls_server.h"

#define HOST "Host: h\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

static struct test_identity server_id;
static struct tls_server *tls;
static SSL_CTX *client_context;
static char body[6 << 20];

static const uint64_t SHORT_NS = 50000000;

/* ---- a client -------------------------------------------------------------------------------- */

static void serve_with(struct test_server *server, const struct http_limits *limits,
                       struct net_budget budget) {
    test_server_start_over(server, limits, budget, "127.0.0.1:0", tls);
}

static void serve(struct test_server *server) {
    struct http_limits limits = test_limits();
    serve_with(server, &limits, test_budget());
}

static SSL *shake_hands(int fd) {
    SSL *ssl = SSL_new(client_context);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1) {
        fail_msg("no handshake: %s", ERR_reason_error_string(ERR_peek_error()));
    }
    return ssl;
}

static SSL *connect_tls(const struct test_server *server) {
    return shake_hands(test_connect(server));
}

/* Ends without a word. */
static void hang_up(SSL *ssl) {
    int fd = SSL_get_fd(ssl);
    SSL_free(ssl);
    close(fd);
}

static void send_tls(SSL *ssl, struct str text) {
    while (text.len > 0) {
        int n = SSL_write(ssl, text.ptr, text.len < 1 << 20 ? (int)text.len : 1 << 20);
        assert_true(n > 0);
        text = str_make(text.ptr + n, text.len - (size_t)n);
    }
}

/* Returns: fewer when the connection ends before. */
static size_t read_tls(SSL *ssl, char *out, size_t n) {
    size_t got = 0;
    int rc = 1;
    while (got < n && rc > 0) {
        size_t left = n - got;
        rc = SSL_read(ssl, out + got, left < 1 << 20 ? (int)left : 1 << 20);
        got += rc > 0 ? (size_t)rc : 0;
    }
    return got;
}

/* Did it end as TLS wants it, so that nobody could have cut it off? */
static bool ended_well(SSL *ssl) {
    char byte;
    ERR_clear_error();
    int rc = SSL_read(ssl, &byte, 1);
    return rc == 0 && SSL_get_error(ssl, rc) == SSL_ERROR_ZERO_RETURN;
}

/* Reads a head. Returns: the length of the body that follows; `*status` is the answer's. */
static size_t read_head(SSL *ssl, int *status) {
    char head[2048] = "";
    size_t n = 0;
    uint64_t length = 0, code = 0;
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
        assert_true(n < sizeof(head) - 1);
        if (read_tls(ssl, head + n, 1) == 0) {
            fail_msg("the connection ended after \"%s\"", head);
        }
        n++;
    }
    assert_true(num_parse_u64(str_make(head + 9, 3), &code));
    const char *at = strstr(head, "\r\nContent-Length: ");
    if (at) {
        at += strlen("\r\nContent-Length: ");
        assert_true(num_parse_u64(str_make(at, strcspn(at, "\r")), &length));
    }
    *status = (int)code;
    return (size_t)length;
}

static void expect_tls(SSL *ssl, int status, const char *text) {
    char got[1024];
    int code;
    size_t n = read_head(ssl, &code);
    assert_true(n <= sizeof(got));
    assert_int_equal(read_tls(ssl, got, n), n);
    if (code != status || !str_is(str_make(got, n), text)) {
        fail_msg("expected %d %s, got %d %.*s", status, text, code, (int)n, got);
    }
}

static void send_post(SSL *ssl, const char *path, size_t n_bytes) {
    char head[256];
    int n = snprintf(head, sizeof(head), "POST %s HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n",
                     path, n_bytes);
    send_tls(ssl, str_make(head, (size_t)n));
}

/* ---- requests and answers -------------------------------------------------------------------- */

static void one_after_the_other(void **state) {
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
static void pipelined(void **state) {
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
static void byte_by_byte(void **state) {
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

/* Large bodies both ways: read straight into place, answered while the client is slow. */
static void large_bodies(void **state) {
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
        assert_true(metric_read(METRIC_COPIED_BYTES_TOTAL) - copied <= NET_OPENED_BYTES);
        send_tls(ssl, STR(GET("/hello")));
        expect_tls(ssl, 200, "hello");
        hang_up(ssl);
    }
    test_server_stop(&server);
}

static void bodies_are_aligned(void **state) {
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

/* A reader that takes little at a time gets all of it, and the next answers behind it. */
static void slow_readers(void **state) {
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

/* The answers of many small requests, of which the client reads none for a while. */
static void answers_that_pile_up(void **state) {
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

/* ---- ends ------------------------------------------------------------------------------------ */

static void ends_that_the_server_says(void **state) {
    static struct test_server server;
    struct http_limits limits = test_limits();
    (void)state;
    limits.idle_timeout_ns = SHORT_NS;
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

static void ends_by_a_drain(void **state) {
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

/* A client that has said all it has to say still gets its answer. */
static void ends_that_the_client_says(void **state) {
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

static void clients_that_go_away(void **state) {
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

/* Refused with a body under way: the answer can be read. */
static void refusals_can_be_read(void **state) {
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

static void one_connection_too_many(void **state) {
    static struct test_server server;
    struct http_limits limits = test_limits();
    struct net_budget budget = test_budget();
    (void)state;
    budget.max_connections = 1;
    serve_with(&server, &limits, budget);
    SSL *first = connect_tls(&server);
    SSL *second = connect_tls(&server);
    expect_tls(second, 503, "TOO_MANY_CONNECTIONS");
    assert_true(ended_well(second));
    send_tls(first, STR(GET("/hello")));
    expect_tls(first, 200, "hello");
    hang_up(first);
    hang_up(second);
    test_server_stop(&server);
}

static void an_answer_that_nobody_takes(void **state) {
    static struct test_server server;
    struct http_limits limits = test_limits();
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
    /* What was sent is not taken for all there is. */
    read_head(ssl, &status);
    (void)read_tls(ssl, got, sizeof(got));
    assert_false(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
}

/* ---- who does not speak TLS ------------------------------------------------------------------ */

static int64_t failures_of(enum tls_failure failure) {
    return metric_read((enum metric)((int)METRIC_TLS_FAILURES_PLAINTEXT + (int)failure));
}

static void plaintext(void **state) {
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

static void garbage(void **state) {
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
        (void)test_read(fd, alert, sizeof(alert)); /* until it ends */
        close(fd);
    }
    /* Behind a good handshake too. */
    SSL *ssl = connect_tls(&server);
    test_send(SSL_get_fd(ssl), STR("\x17\x03\x03\x00\x20 this is nobody's secret, is it?"));
    assert_false(ended_well(ssl));
    hang_up(ssl);
    test_server_stop(&server);
    assert_int_equal(server.heads, 0);
}

/* Handshakes that do not go on hold nobody up, and end. */
static void slow_handshakes(void **state) {
    enum { SLOW = 50 };
    static struct test_server server;
    struct http_limits limits = test_limits();
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
        (void)test_read(fds[i], rest, sizeof(rest)); /* until it ends */
        close(fds[i]);
    }
    test_server_stop(&server);
    assert_int_equal(failures_of(TLS_FAILURE_TIMEOUT) - before, SLOW);
}

static void handshakes_that_are_left(void **state) {
    static struct test_server server;
    int64_t before = failures_of(TLS_FAILURE_GONE);
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
    assert_int_equal(failures_of(TLS_FAILURE_GONE) - before, 10);
}

/* Stopped in the middle of everything. */
static void stopped_at_once(void **state) {
    static struct test_server server;
    (void)state;
    serve(&server);
    int half = test_connect(&server);
    test_send(half, STR("\x16\x03\x01\x02"));
    SSL *reading = connect_tls(&server), *writing = connect_tls(&server);
    send_tls(reading, STR(GET("/big") GET("/big")));
    send_post(writing, "/echo", 1 << 20);
    test_wait_for(&server.heads, 2);
    test_server_stop(&server);
    close(half);
    hang_up(reading);
    hang_up(writing);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_tls(void **state) {
    const char *tmp = getenv("TMPDIR");
    char folder[128], cert[160], key[160];
    struct error err;
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    log_configure(LOG_ERROR, LOG_TEXT);
    test_identity_init(&server_id, "server", NULL);
    snprintf(folder, sizeof(folder), "%s/sluice_tls_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(cert, sizeof(cert), "%s/cert", folder);
    snprintf(key, sizeof(key), "%s/key", folder);
    write_file(cert, server_id.cert_pem);
    write_file(key, server_id.key_pem);
    struct tls_server_options options = {.cert = {"cert", cert}, .key = {"key", key}};
    if (tls_server_new(&options, time(NULL), &tls, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    unlink(cert);
    unlink(key);
    rmdir(folder);
    client_context = test_client_context(&server_id, NULL);
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (char)(i * 31 + i / 251);
    }
    return 0;
}

static int free_tls(void **state) {
    (void)state;
    SSL_CTX_free(client_context);
    tls_server_free(tls);
    test_identity_fini(&server_id);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(pipelined),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(large_bodies),
        cmocka_unit_test(bodies_are_aligned),
        cmocka_unit_test(slow_readers),
        cmocka_unit_test(answers_that_pile_up),
        cmocka_unit_test(ends_that_the_server_says),
        cmocka_unit_test(ends_by_a_drain),
        cmocka_unit_test(ends_that_the_client_says),
        cmocka_unit_test(clients_that_go_away),
        cmocka_unit_test(refusals_can_be_read),
        cmocka_unit_test(one_connection_too_many),
        cmocka_unit_test(an_answer_that_nobody_takes),
        cmocka_unit_test(plaintext),
        cmocka_unit_test(garbage),
        cmocka_unit_test(slow_handshakes),
        cmocka_unit_test(handshakes_that_are_left),
        cmocka_unit_test(stopped_at_once),
    };
    return cmocka_run_group_tests(tests, make_tls, free_tls);
}
