/* Tests of exchanges over HTTP/2: a server with the resources of server_fixture.h, and a client
 * that is nghttp2's. What the session does for calls as well is in net/server/grpc. */
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "net/server/http/server_fixture.h"

/* ---- the client ------------------------------------------------------------------------------ */

enum { MOST_STREAMS = 2048 };

struct test_stream {
    int status;
    uint32_t error;
    bool closed, ended;
    size_t n_body, n_heads;
    char body[64];
    char length[24], field[64]; /* content-length, allow */
    struct str sends;           /* what is left of the request's body */
    bool keeps_open;            /* no END_STREAM after it */
};

struct test_client {
    int fd;
    nghttp2_session *h2;
    struct test_stream streams[MOST_STREAMS];
    bool went_away; /* GOAWAY arrived */
    uint32_t goaway;
    bool is_closed;
};

static struct test_stream *stream_at(struct test_client *client, int32_t id) {
    return &client->streams[id / 2];
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    struct test_stream *stream = stream_at(user, frame->hd.stream_id);
    struct str key = str_make((const char *)name, name_len);
    (void)h2, (void)flags;
    uint64_t number = 0;
    if (str_is(key, ":status")) {
        assert_true(num_parse_u64(str_make((const char *)value, value_len), &number));
        stream->status = (int)number;
        stream->n_heads++;
    } else if (str_is(key, "content-length")) {
        snprintf(stream->length, sizeof(stream->length), "%.*s", (int)value_len, value);
    } else if (str_is(key, "allow")) {
        snprintf(stream->field, sizeof(stream->field), "%.*s", (int)value_len, value);
    }
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
                   void *user) {
    struct test_stream *stream = stream_at(user, id);
    size_t left = sizeof(stream->body) - 1;
    (void)h2, (void)flags;
    for (size_t i = 0; i < n && stream->n_body + i < left; i++) {
        stream->body[stream->n_body + i] = (char)data[i];
    }
    stream->n_body += n;
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct test_client *client = user;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        client->went_away = true;
        client->goaway = frame->goaway.error_code;
    } else if (frame->hd.stream_id > 0 && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
               frame->hd.type <= NGHTTP2_HEADERS) {
        stream_at(client, frame->hd.stream_id)->ended = true;
    }
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t error, void *user) {
    struct test_stream *stream = stream_at(user, id);
    (void)h2;
    stream->closed = true;
    stream->error = error;
    return 0;
}

static struct test_client *client_new(const struct test_server *server, uint32_t window) {
    struct test_client *client = calloc(1, sizeof(*client));
    nghttp2_session_callbacks *callbacks;
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    assert_int_equal(nghttp2_session_client_new(&client->h2, callbacks, client), 0);
    nghttp2_session_callbacks_del(callbacks);
    assert_int_equal(nghttp2_submit_settings(client->h2, 0, settings, 1), 0);
    client->fd = test_connect(server);
    return client;
}

static void client_free(struct test_client *client) {
    close(client->fd);
    nghttp2_session_del(client->h2);
    free(client);
}

/* Sends all that can be sent, then reads once; waits for it when `wait`. */
static void step(struct test_client *client, bool wait) {
    static char bytes[1 << 16];
    const uint8_t *data;
    ssize_t n;
    while (!client->is_closed && (n = nghttp2_session_mem_send(client->h2, &data)) > 0) {
        if (!test_try_send(client->fd, (const char *)data, (size_t)n)) {
            client->is_closed = true;
        }
    }
    struct pollfd readable = {.fd = client->fd, .events = POLLIN};
    if (!client->is_closed && poll(&readable, 1, wait ? 60000 : 0) > 0) {
        n = read(client->fd, bytes, sizeof(bytes));
        client->is_closed = n <= 0;
        if (n > 0) {
            assert_int_equal(nghttp2_session_mem_recv(client->h2, (uint8_t *)bytes, (size_t)n), n);
        }
    }
}

static ssize_t read_body(nghttp2_session *h2, int32_t id, uint8_t *out, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct test_stream *stream = source->ptr;
    size_t n = stream->sends.len < length ? stream->sends.len : length;
    (void)h2, (void)id, (void)user;
    if (n > 0) {
        memcpy(out, stream->sends.ptr, n);
        stream->sends = str_make(stream->sends.ptr + n, stream->sends.len - n);
    } else if (stream->keeps_open) {
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= stream->sends.len == 0 && !stream->keeps_open ? NGHTTP2_DATA_FLAG_EOF : 0;
    return (ssize_t)n;
}

static nghttp2_nv nv(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

/* `body` NULL: END_STREAM with the head. `more`: a field, or NULL. Returns: the stream's id. */
static int32_t begin(struct test_client *client, const char *method, const char *path,
                     const char *body, const char *more, const char *value, bool keeps_open) {
    nghttp2_nv head[] = {nv(":method", method), nv(":scheme", "http"),
                         nv(":authority", "localhost"), nv(":path", path),
                         nv(more ? more : "accept", more ? value : "*/*")};
    uint32_t next = nghttp2_session_get_next_stream_id(client->h2);
    struct test_stream *stream = stream_at(client, (int32_t)next);
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_body};
    stream->sends = body ? str_of(body) : str_make(NULL, 0);
    stream->keeps_open = keeps_open;
    int32_t id = nghttp2_submit_request(client->h2, NULL, head, 5, body ? &provider : NULL, NULL);
    assert_int_equal(id, next);
    return id;
}

/* Returns: the stream, once it is closed. */
static struct test_stream *finish(struct test_client *client, int32_t id) {
    struct test_stream *stream = stream_at(client, id);
    while (!stream->closed) {
        assert_false(client->is_closed);
        step(client, true);
    }
    return stream;
}

static struct test_stream *ask(struct test_client *client, const char *method, const char *path,
                               const char *body) {
    return finish(client, begin(client, method, path, body, NULL, NULL, false));
}

static void expect(const struct test_stream *stream, int status, const char *body) {
    assert_int_equal(stream->error, NGHTTP2_NO_ERROR);
    assert_int_equal(stream->status, status);
    assert_string_equal(stream->body, body);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* In three events, the last one at the end; /open never ends it. */
static void stream_events(struct http_exchange *exchange) {
    static const struct piece EVENT = {"event\n", 6};
    http_stream_begin(exchange,
                      &(struct http_reply){.status = 200, .content_type = "text/event-stream"});
    for (int i = 0; i < 3; i++) {
        http_stream_send(exchange, &EVENT, 1, NULL, NULL);
    }
    if (str_is(exchange->head.path, "/events")) {
        http_stream_end(exchange);
    } else if (str_is(exchange->head.path, "/lost")) {
        http_stream_send(exchange, NULL, 0, NULL, NULL);
        http_stream_end(exchange);
    }
}

static void describe_head(struct http_exchange *exchange, struct test_server *server) {
    const struct http_head *head = &exchange->head;
    struct str cookie = STR("none"), query = head->query.ptr ? head->query : STR("");
    (void)http_head_find(head, STR("Cookie"), &cookie);
    test_reply(server, exchange,
               arena_printf(exchange->arena, "%.*s %.*s %.*s %.*s %d %d", STR_ARG(head->host),
                            STR_ARG(head->path), STR_ARG(query), STR_ARG(cookie), head->has_body,
                            head->chunked),
               NULL, 0);
}

static void on_head(struct http_exchange *exchange, void *context) {
    struct str path = exchange->head.path;
    if (str_is(path, "/head")) {
        atomic_fetch_add(&((struct test_server *)context)->heads, 1);
        describe_head(exchange, context);
        return;
    }
    if (str_is(path, "/events") || str_is(path, "/open") || str_is(path, "/lost")) {
        atomic_fetch_add(&((struct test_server *)context)->heads, 1);
        stream_events(exchange);
    } else {
        test_on_head(exchange, context);
    }
}

static void on_gone(struct http_exchange *exchange, void *context) {
    test_on_gone(exchange, context);
    if (str_is(exchange->head.path, "/open")) {
        http_stream_end(exchange);
    }
}

static void start(struct test_server *server, const struct net_limits *limits) {
    struct test_handler handler = {
        .on_head = on_head,
        .after_head = {.on_body = test_on_body, .on_disconnect = on_gone, .on_end = test_on_end},
        .speaks_h2 = true,
    };
    test_server_start_as(server, handler, limits, test_budget(), "127.0.0.1:0", NULL);
}

struct rig {
    struct test_server server;
    struct test_client *client;
};

static int set_up(void **state) {
    struct rig *rig = calloc(1, sizeof(*rig));
    struct net_limits limits = test_limits();
    limits.request_memory = 1 << 20;
    start(&rig->server, &limits);
    rig->client = client_new(&rig->server, 65535);
    *state = rig;
    return 0;
}

/* The same connection goes on, and nothing leaked. */
static int tear_down(void **state) {
    struct rig *rig = *state;
    expect(ask(rig->client, "GET", "/hello", NULL), 200, "hello");
    client_free(rig->client);
    test_server_stop(&rig->server);
    free(rig);
    return 0;
}

/* ---- requests and responses ------------------------------------------------------------------ */

static void h2_requests_get_responses_of_handlers(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    expect(ask(client, "GET", "/hello", NULL), 200, "hello");
    expect(ask(client, "GET", "/later", NULL), 200, "later");
    expect(ask(client, "POST", "/echo", "twelve bytes"), 200, "twelve bytes");
    expect(ask(client, "POST", "/later", "more"), 200, "more");
    expect(ask(client, "POST", "/aligned?5", "0123456789"), 200, "yes");
    expect(ask(client, "POST", "/echo", ""), 200, "");
    const struct test_stream *fields = ask(client, "GET", "/fields", NULL);
    expect(fields, 200, "fields");
    assert_string_equal(fields->field, "GET, HEAD");
    assert_string_equal(fields->length, "6");
}

static void h2_head_request_gets_length_without_body(void **state) {
    const struct test_stream *stream = ask(((struct rig *)*state)->client, "HEAD", "/hello", NULL);
    expect(stream, 200, "");
    assert_string_equal(stream->length, "5");
}

static void h2_errors_are_those_of_the_router(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    expect(ask(client, "GET", "/refuse", NULL), 404, "NOT_FOUND");
    expect(ask(client, "POST", "/refuse", "body"), 404, "NOT_FOUND");
    expect(ask(client, "POST", "/small", "eleven byte"), 413, "BODY_TOO_LARGE");
    expect(ask(client, "POST", "/small", "ten bytes!"), 200, "ten bytes!");
    expect(ask(client, "GET", "/greedy", NULL), 503, "NO_MEMORY");
    int32_t id = begin(client, "GET", "/hello", NULL, "expect", "tea", false);
    expect(finish(client, id), 417, "EXPECTATION_FAILED");
    id = begin(client, "POST", "/echo", "not deflate", "content-encoding", "gzip", false);
    expect(finish(client, id), 400, "BAD_ENCODING");
    static char large[5000];
    memset(large, 'x', sizeof(large) - 1);
    id = begin(client, "GET", "/hello", NULL, "x-large", large, false);
    expect(finish(client, id), 431, "HEADER_TOO_LARGE");
}

static void h2_large_response_arrives_whole(void **state) {
    const struct test_stream *stream = ask(((struct rig *)*state)->client, "GET", "/big", NULL);
    assert_int_equal(stream->n_body, TEST_BIG_BYTES);
    assert_int_equal(stream->error, NGHTTP2_NO_ERROR);
}

static void h2_expect_gets_100_before_the_body(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    int32_t id = begin(client, "POST", "/echo", "body", "expect", "100-continue", false);
    const struct test_stream *stream = finish(client, id);
    expect(stream, 200, "body");
    assert_int_equal(stream->n_heads, 2);
    id = begin(client, "POST", "/refuse", "body", "expect", "100-continue", false);
    stream = finish(client, id);
    expect(stream, 404, "NOT_FOUND");
    assert_int_equal(stream->n_heads, 1);
}

static void h2_streamed_response_ends_with_an_empty_frame(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    const struct test_stream *stream = ask(client, "GET", "/events", NULL);
    expect(stream, 200, "event\nevent\nevent\n");
    assert_string_equal(stream->length, "");
    assert_true(stream->ended);
}

static void h2_streamed_response_without_a_part_is_reset(void **state) {
    const struct test_stream *stream = ask(((struct rig *)*state)->client, "GET", "/lost", NULL);
    assert_int_equal(stream->error, NGHTTP2_INTERNAL_ERROR);
    assert_false(stream->ended);
}

static void h2_many_streams_at_once_are_answered(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    int32_t ids[500];
    for (int i = 0; i < 500; i++) {
        ids[i] = begin(client, "POST", i % 2 ? "/later" : "/echo", "body", NULL, NULL, false);
    }
    for (int i = 0; i < 500; i++) {
        expect(finish(client, ids[i]), 200, "body");
    }
}

/* ---- the end of a request -------------------------------------------------------------------- */

static void reset(struct test_client *client, int32_t id) {
    nghttp2_submit_rst_stream(client->h2, 0, id, NGHTTP2_CANCEL);
    step(client, false);
    assert_true(stream_at(client, id)->closed);
}

static void h2_reset_within_the_body_ends_the_exchange(void **state) {
    struct rig *rig = *state;
    int32_t id = begin(rig->client, "POST", "/echo", "part", NULL, NULL, true);
    step(rig->client, false);
    expect(ask(rig->client, "GET", "/hello", NULL), 200, "hello");
    reset(rig->client, id);
    test_wait_for(&rig->server.gones, 1);
    test_wait_for(&rig->server.ends, 2);
    assert_int_equal(rig->server.bodies, 0);
}

static void h2_reset_before_the_response_reaches_the_handler(void **state) {
    struct rig *rig = *state;
    int32_t id = begin(rig->client, "GET", "/never", NULL, NULL, NULL, false);
    step(rig->client, false);
    test_wait_for(&rig->server.heads, 1);
    reset(rig->client, id);
    test_wait_for(&rig->server.gones, 1);
    assert_int_equal(rig->server.ends, 0); /* it still replies */
    test_answer_never(&rig->server);
    test_wait_for(&rig->server.ends, 1);
}

static void h2_reset_ends_a_streamed_response(void **state) {
    struct rig *rig = *state;
    int32_t id = begin(rig->client, "GET", "/open", NULL, NULL, NULL, false);
    while (stream_at(rig->client, id)->n_body == 0) {
        step(rig->client, true);
    }
    reset(rig->client, id);
    test_wait_for(&rig->server.ends, 1);
    assert_int_equal(rig->server.gones, 1);
}

static void h2_lost_connection_ends_all_exchanges(void **state) {
    struct rig *rig = *state;
    struct test_client *lost = client_new(&rig->server, 1000);
    (void)begin(lost, "GET", "/never", NULL, NULL, NULL, false);
    (void)begin(lost, "POST", "/echo", "part", NULL, NULL, true);
    (void)begin(lost, "GET", "/open", NULL, NULL, NULL, false);
    (void)begin(lost, "GET", "/big", NULL, NULL, NULL, false);
    step(lost, false);
    test_wait_for(&rig->server.heads, 4);
    client_free(lost);
    test_wait_for(&rig->server.gones, 3);
    test_answer_never(&rig->server);
    test_wait_for(&rig->server.ends, 4);
}

static void h2_closed_window_holds_the_response_alone(void **state) {
    struct rig *rig = *state;
    struct test_client *slow = client_new(&rig->server, 10);
    int32_t big = begin(slow, "GET", "/big", NULL, NULL, NULL, false);
    expect(ask(slow, "POST", "/echo", "0123456789"), 200, "0123456789");
    expect(ask(slow, "GET", "/refuse", NULL), 404, "NOT_FOUND");
    assert_false(stream_at(slow, big)->closed);
    client_free(slow);
    test_wait_for(&rig->server.ends, 3);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void h2_body_timeout_is_408(void **state) {
    static struct test_server server;
    struct net_limits limits = test_limits();
    (void)state;
    limits.body_timeout_ns = 50000000;
    start(&server, &limits);
    struct test_client *client = client_new(&server, 65535);
    int32_t id = begin(client, "POST", "/echo", "part", NULL, NULL, true);
    expect(finish(client, id), 408, "REQUEST_TIMEOUT");
    expect(ask(client, "GET", "/hello", NULL), 200, "hello");
    client_free(client);
    test_server_stop(&server);
}

static void h2_rest_of_refused_body_is_dropped_within_discard_size(void **state) {
    static struct test_server server;
    static char body[3001];
    struct net_limits limits = test_limits();
    (void)state;
    memset(body, 'x', sizeof(body) - 1);
    limits.discard_size = 2000;
    start(&server, &limits);
    struct test_client *client = client_new(&server, 65535);
    int32_t id = begin(client, "POST", "/refuse", "", NULL, NULL, true);
    struct test_stream *stream = stream_at(client, id);
    while (!stream->ended) {
        step(client, true);
    }
    stream->sends = str_make(body, 1000);
    nghttp2_session_resume_data(client->h2, id);
    expect(ask(client, "GET", "/hello", NULL), 200, "hello");
    assert_false(stream->closed);
    stream->sends = str_make(body, 3000);
    nghttp2_session_resume_data(client->h2, id);
    expect(finish(client, id), 404, "NOT_FOUND");
    expect(ask(client, "GET", "/hello", NULL), 200, "hello");
    client_free(client);
    test_server_stop(&server);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void h2_head_becomes_that_of_http1(void **state) {
    struct test_client *client = ((struct rig *)*state)->client;
    expect(ask(client, "GET", "/head?a=%20b", NULL), 200, "localhost /head a=%20b none 0 0");
    int32_t id = begin(client, "GET", "/head", NULL, "host", "other", false);
    expect(finish(client, id), 200, "localhost /head  none 0 0");
    const nghttp2_nv head[] = {nv(":method", "POST"),     nv(":scheme", "http"),
                               nv(":authority", "there"), nv(":path", "/head"),
                               nv("cookie", "a=1"),       nv("content-length", "0"),
                               nv("cookie", "b=2")};
    id = nghttp2_submit_request(client->h2, NULL, head, 7, NULL, NULL);
    expect(finish(client, id), 200, "there /head  a=1; b=2 0 0");
    id = nghttp2_submit_request(client->h2, NULL, head, 4, NULL, NULL);
    expect(finish(client, id), 200, "there /head  none 0 0");
    id = begin(client, "CONNECT", "/", NULL, NULL, NULL, false);
    assert_int_equal(finish(client, id)->error, NGHTTP2_PROTOCOL_ERROR); /* it has no :path */
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(h2_requests_get_responses_of_handlers),
        WITH_RIG(h2_head_request_gets_length_without_body),
        WITH_RIG(h2_errors_are_those_of_the_router),
        WITH_RIG(h2_large_response_arrives_whole),
        WITH_RIG(h2_expect_gets_100_before_the_body),
        WITH_RIG(h2_streamed_response_ends_with_an_empty_frame),
        WITH_RIG(h2_streamed_response_without_a_part_is_reset),
        WITH_RIG(h2_many_streams_at_once_are_answered),
        WITH_RIG(h2_reset_within_the_body_ends_the_exchange),
        WITH_RIG(h2_reset_before_the_response_reaches_the_handler),
        WITH_RIG(h2_reset_ends_a_streamed_response),
        WITH_RIG(h2_lost_connection_ends_all_exchanges),
        WITH_RIG(h2_closed_window_holds_the_response_alone),
        WITH_RIG(h2_head_becomes_that_of_http1),
        cmocka_unit_test(h2_body_timeout_is_408),
        cmocka_unit_test(h2_rest_of_refused_body_is_dropped_within_discard_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
