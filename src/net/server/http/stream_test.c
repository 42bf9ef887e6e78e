/* Streamed responses as a client sees them: framed for its HTTP version, in order however slowly it
 * reads, each chunk released exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/http/server_fixture.h"

#define GET(path, version) "GET " path " HTTP/" version "\r\nHost: h\r\n\r\n"

enum { LARGE = 1 << 20, MOST_PIECES = 64 };

/* A streamed response. GET /N: N chunks, one per loop iteration, each a letter; /large?N: chunks of
 * 1 MiB, all at once; /open: two chunks, no end until the client disconnects; /lost: one chunk,
 * then a missing one. */
struct stream {
    struct worker_msg msg;
    struct http_exchange *exchange;
    struct test_server *server;
    int n, left;
};

static char large[MOST_PIECES][LARGE];

static void piece(struct stream *stream, const char *data, size_t n_bytes) {
    /* In three pieces, one of them empty. */
    struct piece parts[] = {{data, 1}, {data, 0}, {data + 1, n_bytes - 1}};
    atomic_fetch_add(&stream->server->replies, 1);
    http_stream_send(stream->exchange, parts, 3, test_released, stream->server);
}

static void step(struct worker_msg *msg) {
    struct stream *stream = (struct stream *)msg;
    if (stream->left == 0) {
        http_stream_end(stream->exchange);
        return;
    }
    piece(stream, large[stream->n - stream->left], 3);
    stream->left--;
    worker_post(stream->exchange->worker, &stream->msg);
}

static void all_at_once(struct stream *stream) {
    for (int i = 0; i < stream->n; i++) {
        piece(stream, large[i], LARGE);
    }
    http_stream_end(stream->exchange);
}

static void go_on(struct stream *stream) {
    struct str path = stream->exchange->head.path;
    if (str_is(path, "/large")) {
        all_at_once(stream);
    } else if (str_is(path, "/open")) {
        piece(stream, large[0], 2);
        piece(stream, large[1], 2);
    } else if (str_is(path, "/lost")) {
        piece(stream, large[0], 2);
        http_stream_send(stream->exchange, NULL, 0, NULL, NULL);
        http_stream_end(stream->exchange);
    } else {
        worker_post(stream->exchange->worker, &stream->msg);
    }
}

static void on_head(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    struct stream *stream = arena_calloc(exchange->arena, 1, sizeof(*stream));
    struct str number = exchange->head.query.len > 0
                            ? exchange->head.query
                            : str_make(exchange->head.path.ptr + 1, exchange->head.path.len - 1);
    uint64_t n = 0;
    struct http_field field = {STR("X-More"), STR("yes")};
    (void)num_parse_u64(number, &n);
    atomic_fetch_add(&server->heads, 1);
    assert_true(stream && n <= MOST_PIECES);
    *stream = (struct stream){{NULL, step}, exchange, server, (int)n, (int)n};
    if (str_is(exchange->head.path, "/open")) {
        atomic_store(&server->never, (struct test_later *)(void *)stream);
    }
    http_stream_begin(
        exchange, &(struct http_reply){
                      .status = 200, .content_type = "text/x", .fields = &field, .n_fields = 1});
    go_on(stream);
}

/* /open ends when its client disconnects. */
static void on_disconnect(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    atomic_fetch_add(&server->gones, 1);
    if (str_is(exchange->head.path, "/open")) {
        struct stream *stream = (struct stream *)(void *)atomic_exchange(&server->never, NULL);
        assert_non_null(stream);
        piece(stream, large[2], 2); /* only released */
        http_stream_end(exchange);
    }
}

/* ---- the client ------------------------------------------------------------------------------ */

static void start(struct test_server *server) {
    struct net_limits limits = test_limits();
    struct test_handler handler = {
        .on_head = on_head, .after_head = {.on_disconnect = on_disconnect, .on_end = test_on_end}};
    test_server_start_as(server, handler, &limits, test_budget(), "127.0.0.1:0", NULL);
}

static void read_head(int fd, struct test_answer *answer) {
    assert_true(test_read_answer(fd, answer, true));
    assert_int_equal(answer->status, 200);
    assert_true(test_head_has(answer, "\r\nContent-Type: text/x\r\n"));
    assert_true(test_head_has(answer, "\r\nX-More: yes\r\n"));
    assert_false(test_head_has(answer, "\r\nContent-Length: "));
}

static void expect_bytes(int fd, const char *text) {
    char read[256];
    size_t n = strlen(text);
    assert_true(n <= sizeof(read));
    assert_int_equal(test_read(fd, read, n), n);
    assert_memory_equal(read, text, n);
}

/* Reads a chunk of one repeated byte. */
static void expect_large(int fd, int i) {
    static char read[LARGE];
    char head[16];
    snprintf(head, sizeof(head), "%x\r\n", LARGE);
    expect_bytes(fd, head);
    assert_int_equal(test_read(fd, read, LARGE), LARGE);
    assert_memory_equal(read, large[i], LARGE);
    expect_bytes(fd, "\r\n");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void stream_http11_is_chunked_and_keeps_connection(void **state) {
    struct test_server server;
    static struct test_answer answer;
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/3", "1.1") GET("/0", "1.1") GET("/1", "1.1")));
    read_head(fd, &answer);
    assert_true(test_head_has(&answer, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_false(answer.closes);
    expect_bytes(fd, "3\r\naaa\r\n3\r\nbbb\r\n3\r\nccc\r\n0\r\n\r\n");
    read_head(fd, &answer);
    expect_bytes(fd, "0\r\n\r\n");
    read_head(fd, &answer);
    expect_bytes(fd, "3\r\naaa\r\n0\r\n\r\n");
    close(fd);
    test_server_stop(&server);
    assert_int_equal(server.gones, 0);
}

static void stream_http10_ends_with_connection(void **state) {
    struct test_server server;
    static struct test_answer answer;
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/2", "1.0") GET("/1", "1.0")));
    read_head(fd, &answer);
    assert_false(test_head_has(&answer, "Transfer-Encoding"));
    expect_bytes(fd, "aaabbb");
    assert_true(test_is_closed(fd));
    close(fd);
    fd = test_connect(&server);
    test_send(fd, STR("GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    read_head(fd, &answer);
    assert_true(answer.closes);
    expect_bytes(fd, "3\r\naaa\r\n0\r\n\r\n");
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

/* More than the socket takes: later chunks are queued, and none is released early. */
static void stream_slow_reader_queues_chunks(void **state) {
    struct test_server server;
    static struct test_answer answer;
    enum { N = 32 };
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/large?32", "1.1") GET("/1", "1.1")));
    read_head(fd, &answer);
    test_wait_for(&server.replies, N);
    assert_true(atomic_load(&server.releases) < N);
    for (int i = 0; i < N; i++) {
        expect_large(fd, i);
    }
    expect_bytes(fd, "0\r\n\r\n");
    read_head(fd, &answer);
    expect_bytes(fd, "3\r\naaa\r\n0\r\n\r\n");
    close(fd);
    test_server_stop(&server);
}

static void stream_client_disconnect_releases_chunks(void **state) {
    struct test_server server;
    static struct test_answer answer;
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/open", "1.1")));
    read_head(fd, &answer);
    expect_bytes(fd, "2\r\naa\r\n2\r\nbb\r\n");
    test_reset(fd);
    test_wait_for(&server.gones, 1);
    test_wait_for(&server.releases, 3);
    fd = test_connect(&server); /* half-closed: cut off, so that the body does not look complete */
    test_send(fd, STR(GET("/open", "1.1")));
    read_head(fd, &answer);
    expect_bytes(fd, "2\r\naa\r\n2\r\nbb\r\n");
    shutdown(fd, SHUT_WR);
    assert_true(test_is_closed(fd));
    close(fd);
    test_wait_for(&server.gones, 2);
    test_wait_for(&server.releases, 6);
    fd = test_connect(&server); /* with chunks queued */
    test_send(fd, STR(GET("/large?64", "1.1")));
    read_head(fd, &answer);
    expect_large(fd, 0);
    test_reset(fd);
    test_wait_for(&server.releases, 6 + 64);
    test_server_stop(&server);
}

/* A missing chunk leaves the body without its end. */
static void stream_missing_piece_closes_connection(void **state) {
    struct test_server server;
    static struct test_answer answer;
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/lost", "1.1")));
    read_head(fd, &answer);
    expect_bytes(fd, "2\r\naa\r\n");
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void stream_server_stop_closes_connection(void **state) {
    struct test_server server;
    static struct test_answer answer;
    (void)state;
    start(&server);
    int fd = test_connect(&server);
    test_send(fd, STR(GET("/open", "1.1")));
    read_head(fd, &answer);
    expect_bytes(fd, "2\r\naa\r\n2\r\nbb\r\n");
    test_server_stop(&server);
    assert_true(test_is_closed(fd));
    close(fd);
}

int main(void) {
    for (int i = 0; i < MOST_PIECES; i++) {
        memset(large[i], 'a' + i % 26, LARGE);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_http11_is_chunked_and_keeps_connection),
        cmocka_unit_test(stream_http10_ends_with_connection),
        cmocka_unit_test(stream_slow_reader_queues_chunks),
        cmocka_unit_test(stream_client_disconnect_releases_chunks),
        cmocka_unit_test(stream_missing_piece_closes_connection),
        cmocka_unit_test(stream_server_stop_closes_connection),
    };
    return cmocka_run_group_tests_name("net/server/http/stream", tests, NULL, NULL);
}
