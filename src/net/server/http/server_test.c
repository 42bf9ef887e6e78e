/* The HTTP server as its clients see it: each row is the input on a new connection, sent whole and
 * byte by byte, and all expected responses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net/server/http/server_fixture.h"

#define HOST "Host: h\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"
#define GOOD "GET /hello HTTP/1.1\r\n" HOST "\r\n"

enum { MOST_ANSWERS = 4 };

static const struct row {
    const char *what;
    struct str sent;
    struct {
        int status;
        const char *body;
    } answers[MOST_ANSWERS];
    bool stays; /* the connection accepts another request */
} ROWS[] = {
    {"a request", STR(GOOD), {{200, "hello"}}, true},
    {"two of them", STR(GOOD GOOD), {{200, "hello"}, {200, "hello"}}, true},
    {"an empty line between", STR(GOOD "\r\n" GOOD), {{200, "hello"}, {200, "hello"}}, true},
    {"answered later",
     STR("GET /later HTTP/1.1\r\n" HOST "\r\n" GOOD "GET /later HTTP/1.1\r\n" HOST "\r\n" GOOD),
     {{200, "later"}, {200, "hello"}, {200, "later"}, {200, "hello"}},
     true},
    {"a body",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"),
     {{200, "abc"}},
     true},
    {"bodies one behind the other",
     STR("POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
         "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nde" GOOD),
     {{200, "abc"}, {200, "de"}, {200, "hello"}},
     true},
    {"an empty body",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"),
     {{200, ""}},
     true},
    {"chunks",
     STR("POST /echo HTTP/1.1\r\n" HOST CHUNKED "1\r\na\r\n2;x=y\r\nbc\r\n0\r\nT: t\r\n\r\n" GOOD),
     {{200, "abc"}, {200, "hello"}},
     true},
    {"no chunks", STR("POST /echo HTTP/1.1\r\n" HOST CHUNKED "0\r\n\r\n"), {{200, ""}}, true},
    {"HTTP/1.0", STR("GET /hello HTTP/1.0\r\n\r\n"), {{200, "hello"}}, false},
    {"HTTP/1.0 that stays",
     STR("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
     {{200, "hello"}},
     true},
    {"close",
     STR("GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"),
     {{200, "hello"}},
     false},
    {"what follows a close is not read",
     STR("GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n" GOOD),
     {{200, "hello"}},
     false},
    {"close, answered later",
     STR("GET /later HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n" GOOD),
     {{200, "later"}},
     false},
    {"absolute", STR("GET http://other/hello HTTP/1.1\r\n" HOST "\r\n"), {{200, "hello"}}, true},
    {"a body that was not asked for",
     STR("GET /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"),
     {{200, "x"}},
     true},
    {"refused before its body",
     STR("POST /refuse HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc" GOOD),
     {{404, "NOT_FOUND"}, {200, "hello"}},
     true},
    {"refused before its chunks",
     STR("POST /refuse HTTP/1.1\r\n" HOST CHUNKED "3\r\nabc\r\n0\r\n\r\n" GOOD),
     {{404, "NOT_FOUND"}, {200, "hello"}},
     true},
    {"a body over the limit",
     STR("POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n12345678901" GOOD),
     {{413, "BODY_TOO_LARGE"}, {200, "hello"}},
     true},
    {"chunks over the limit",
     STR("POST /small HTTP/1.1\r\n" HOST CHUNKED "9\r\n123456789\r\n2\r\n12\r\n0\r\n\r\n" GOOD),
     {{413, "BODY_TOO_LARGE"}, {200, "hello"}},
     true},
    {"a chunk far over the limit",
     STR("POST /echo HTTP/1.1\r\n" HOST CHUNKED "100000005\r\nabc"),
     {{413, "BODY_TOO_LARGE"}},
     false},
    {"a body far over the limit",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\nabc"),
     {{413, "BODY_TOO_LARGE"}},
     false},
    {"a chunk without a size",
     STR("POST /echo HTTP/1.1\r\n" HOST CHUNKED "x\r\n" GOOD),
     {{400, "BAD_REQUEST"}},
     false},
    {"17 digits",
     STR("POST /echo HTTP/1.1\r\n" HOST CHUNKED "10000000000000000\r\n"),
     {{400, "BAD_REQUEST"}},
     false},
    {"gzip",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Encoding: gzip\r\nContent-Length: 25\r\n\r\n"
         "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x07\x00"
         "\x86\xa6\x10\x36\x05\x00\x00\x00" GOOD),
     {{200, "hello"}, {200, "hello"}},
     true},
    {"deflate in chunks",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Encoding: deflate\r\n" CHUNKED
         "1\r\n\x78\r\nC\r\n\x9c\xcb\x48\xcd\xc9\xc9\x07\x00\x06\x2c\x02\x15\r\n0\r\n\r\n"),
     {{200, "hello"}},
     true},
    {"no gzip",
     STR("POST /echo HTTP/1.1\r\n" HOST
         "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello" GOOD),
     {{400, "BAD_ENCODING"}, {200, "hello"}},
     true},
    {"gzip that is cut off",
     STR("POST /echo HTTP/1.1\r\n" HOST
         "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b" GOOD),
     {{400, "BAD_ENCODING"}, {200, "hello"}},
     true},
    {"an unknown expectation",
     STR("POST /echo HTTP/1.1\r\n" HOST "Expect: tea\r\nContent-Length: 3\r\n\r\nabc" GOOD),
     {{417, "EXPECTATION_FAILED"}, {200, "hello"}},
     true},
    {"good, then bad", STR(GOOD "BAD\r\n\r\n" GOOD), {{200, "hello"}, {400, "BAD_REQUEST"}}, false},
    {"length and chunks",
     STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" CHUNKED "0\r\n\r\n" GOOD),
     {{400, "BAD_REQUEST"}},
     false},
    {"no Host", STR("GET /hello HTTP/1.1\r\n\r\n"), {{400, "BAD_REQUEST"}}, false},
    {"HTTP/2", STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), {{505, "BAD_VERSION"}}, false},
    {"CONNECT", STR("CONNECT h:1 HTTP/1.1\r\n" HOST "\r\n"), {{405, "METHOD_NOT_ALLOWED"}}, false},
    {"another transfer coding",
     STR("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n"),
     {{501, "UNSUPPORTED"}},
     false},
};

static void check_rest(int fd, const struct row *row) {
    if (row->stays) {
        test_send(fd, STR(GOOD));
        test_expect(fd, 200, "hello");
    } else {
        shutdown(fd, SHUT_WR);
        if (!test_is_closed(fd)) {
            fail_msg("%s: the connection is still open", row->what);
        }
    }
}

static void check_row(const struct test_server *server, const struct row *row, size_t piece) {
    int fd = test_connect(server);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (size_t at = 0; at < row->sent.len; at += piece) {
        size_t n = row->sent.len - at < piece ? row->sent.len - at : piece;
        if (!test_try_send(fd, row->sent.ptr + at, n)) {
            break; /* refused before the end of the request */
        }
    }
    for (size_t i = 0; i < MOST_ANSWERS && row->answers[i].status; i++) {
        static struct test_answer answer;
        bool came = test_read_answer(fd, &answer, false);
        if (!came || answer.status != row->answers[i].status ||
            !str_is(str_make(answer.body, answer.body_len), row->answers[i].body)) {
            fail_msg("%s, by %zu, answer %zu: expected %d %s, got %d %.*s", row->what, piece, i + 1,
                     row->answers[i].status, row->answers[i].body, answer.status,
                     (int)answer.body_len, answer.body);
        }
        bool last = i + 1 == MOST_ANSWERS || !row->answers[i + 1].status;
        if (last && answer.closes == row->stays) {
            fail_msg("%s, by %zu: the last answer %s", row->what, piece, answer.head);
        }
    }
    check_rest(fd, row);
    close(fd);
}

static void check_rows(const char *address) {
    struct test_server server;
    struct net_limits limits = test_limits();
    test_server_start(&server, &limits, address);
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        check_row(&server, &ROWS[i], ROWS[i].sent.len);
        check_row(&server, &ROWS[i], 1);
    }
    test_server_stop(&server);
}

static void server_over_tcp_matches_table(void **state) {
    (void)state;
    check_rows("127.0.0.1:0");
}

static void server_over_unix_socket_matches_table(void **state) {
    (void)state;
    char folder[] = "/tmp/sluice-http-XXXXXX", address[64];
    assert_non_null(mkdtemp(folder));
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    check_rows(address);
    assert_int_equal(rmdir(folder), 0); /* the socket's file is gone */
}

static void reply_heads_have_expected_fields(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    static struct test_answer answer;
    test_server_start(&server, &limits, "127.0.0.1:0");
    int fd = test_connect(&server);
    test_send(fd, STR("HEAD /fields HTTP/1.1\r\n" HOST "\r\n" GOOD));
    assert_true(test_read_answer(fd, &answer, true));
    assert_true(test_head_has(&answer, "HTTP/1.1 200 OK\r\n"));
    assert_true(test_head_has(&answer, "\r\nServer: test\r\n"));
    assert_true(test_head_has(&answer, "\r\nDate: "));
    assert_true(test_head_has(&answer, " GMT\r\n"));
    assert_true(test_head_has(&answer, "\r\nContent-Type: text/plain\r\n"));
    assert_true(test_head_has(&answer, "\r\nContent-Length: 6\r\n"));
    assert_true(test_head_has(&answer, "\r\nAllow: GET, HEAD\r\n"));
    assert_false(test_head_has(&answer, "\r\nConnection: "));
    test_expect(fd, 200, "hello"); /* no 100 Continue in between */
    test_send(fd, STR("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert_true(test_read_answer(fd, &answer, false));
    assert_true(test_head_has(&answer, "\r\nConnection: keep-alive\r\n"));
    close(fd);
    test_server_stop(&server);
}

static void expect_continue_gets_100_before_body(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    static const struct str CONTINUE = {"HTTP/1.1 100 Continue\r\n\r\n", 25};
    char text[32];
    test_server_start(&server, &limits, "127.0.0.1:0");
    int fd = test_connect(&server);
    for (int i = 0; i < 2; i++) {
        test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST
                          "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
        assert_int_equal(test_read(fd, text, CONTINUE.len), CONTINUE.len);
        assert_memory_equal(text, CONTINUE.ptr, CONTINUE.len);
        test_send(fd, STR("abc"));
        test_expect(fd, 200, "abc");
    }
    /* A client that does not wait gets no 100 Continue. */
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST
                      "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"));
    test_expect(fd, 200, "abc");
    /* A refused client gets the final status and a close: whether the body follows is unknown. */
    test_send(fd, STR("POST /refuse HTTP/1.1\r\n" HOST
                      "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
    test_expect(fd, 404, "NOT_FOUND");
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void pipelined_10000_requests_answered_in_order(void **state) {
    (void)state;
    enum { REQUESTS = 10000 };
    struct test_server server;
    struct net_limits limits = test_limits();
    struct str request = STR(GOOD);
    static struct test_answer answer;
    test_server_start(&server, &limits, "127.0.0.1:0");
    int fd = test_connect(&server);
    for (int later = 0; later < 2; later++) {
        if (later) {
            request = STR("GET /later HTTP/1.1\r\n" HOST "\r\n");
        }
        char *all = malloc(REQUESTS * request.len);
        assert_non_null(all);
        for (size_t i = 0; i < REQUESTS; i++) {
            memcpy(all + i * request.len, request.ptr, request.len);
        }
        /* All are sent before the first response is read: the socket buffers suffice. */
        int size = 4 << 20;
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
        test_send(fd, str_make(all, REQUESTS * request.len));
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(test_read_answer(fd, &answer, false));
            assert_true(str_is(str_make(answer.body, answer.body_len), later ? "later" : "hello"));
        }
        free(all);
    }
    close(fd);
    test_server_stop(&server);
}

static void chunked_body_of_one_byte_chunks_is_read(void **state) {
    (void)state;
    enum { CHUNKS = 1000000, BATCH = 1000 };
    struct test_server server;
    struct net_limits limits = test_limits();
    static const char CHUNK[6] = {'1', '\r', '\n', 'x', '\r', '\n'};
    char batch[BATCH * sizeof(CHUNK)];
    for (size_t i = 0; i < BATCH; i++) {
        memcpy(batch + i * sizeof(CHUNK), CHUNK, sizeof(CHUNK));
    }
    test_server_start(&server, &limits, "127.0.0.1:0");
    int fd = test_connect(&server);
    test_send(fd, STR("POST /aligned?100 HTTP/1.1\r\n" HOST CHUNKED));
    for (int i = 0; i < CHUNKS / BATCH; i++) {
        test_send(fd, str_make(batch, sizeof(batch)));
    }
    test_send(fd, STR("0\r\n\r\n"));
    test_expect(fd, 200, "yes");
    close(fd);
    test_server_stop(&server);
}

static void body_offset_is_aligned_to_64_bytes(void **state) {
    (void)state;
    static const unsigned SIZES[] = {200, 2049, 20000, 3000000};
    struct test_server server;
    struct net_limits limits = test_limits();
    char *body = malloc(3000000);
    assert_non_null(body);
    memset(body, 'x', 3000000);
    test_server_start(&server, &limits, "127.0.0.1:0");
    int fd = test_connect(&server);
    for (size_t i = 0; i < 16; i++) {
        unsigned size = SIZES[i / 4], align = (unsigned[]){0, 1, 157, 200}[i % 4];
        char head[128];
        int n = snprintf(head, sizeof(head),
                         "POST /aligned?%u HTTP/1.1\r\n" HOST "Content-Length: %u\r\n\r\n", align,
                         size);
        test_send(fd, str_make(head, (size_t)n));
        test_send(fd, str_make(body, size));
        test_expect(fd, 200, "yes");
    }
    close(fd);
    test_server_stop(&server);
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_over_tcp_matches_table),
        cmocka_unit_test(server_over_unix_socket_matches_table),
        cmocka_unit_test(reply_heads_have_expected_fields),
        cmocka_unit_test(expect_continue_gets_100_before_body),
        cmocka_unit_test(pipelined_10000_requests_answered_in_order),
        cmocka_unit_test(chunked_body_of_one_byte_chunks_is_read),
        cmocka_unit_test(body_offset_is_aligned_to_64_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
