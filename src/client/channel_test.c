/* Calls over gRPC, against a server in the test's thread: streams of one connection, their answers
 * and errors, what happens to them when the server or the connection ends, and deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_h2_peer.h"
#include "core/event/clock.h"
#include "net/transport/grpc/send_queue.h"

#define SECOND UINT64_C(1000000000)

/* ModelReadyResponse {ready: true}, ServerLiveResponse {} */
#define YES "\0\0\0\0\2\x08\x01"
#define NO "\0\0\0\0\0"

static struct h2_peer side;
static sluice_client *client;
static sluice_client_error error = {.size = sizeof(error)};
static uint64_t now_ns;

static void open_with(sluice_client_options options) {
    now_ns = 1000 * SECOND;
    clock_set_fake_ns(now_ns);
    h2_peer_open(&side);
    options.size = sizeof(options);
    options.url = side.url;
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
}

static void open_client(void) {
    open_with((sluice_client_options){0});
}

static void close_client(void) {
    sluice_client_close(client);
    h2_peer_close(&side);
    clock_set_fake_ns(0);
}

static void advance_clock(uint64_t ns) {
    now_ns += ns;
    clock_set_fake_ns(now_ns);
}

static void settle(void) {
    h2_peer_settle(&side, client);
}

static void expect(const sluice_call *call, sluice_client_status status, const char *says) {
    test_expect(&error, sluice_call_status(call, &error), status, says);
}

static sluice_call *start_with(const sluice_call_options *options) {
    sluice_call *call;
    if (sluice_client_start_is_live(client, options, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return call;
}

static sluice_call *start(void) {
    return start_with(NULL);
}

static int32_t yes(sluice_call *call) {
    int32_t answer = -1;
    assert_int_equal(sluice_call_yes(call, &answer), SLUICE_CLIENT_OK);
    return answer;
}

/* A call that succeeds, on whichever connection. */
static void expect_usable(void) {
    sluice_call *call = start();
    settle();
    h2_answer_ok(&side.requests[side.n_requests - 1], YES, 7);
    settle();
    expect(call, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
}

/* ---- calls and answers ----------------------------------------------------------------------- */

static void channel_calls_are_streams_of_one_connection(void **state) {
    (void)state;
    sluice_call *calls[5];
    open_client();
    for (size_t i = 0; i < 5; i++) {
        calls[i] = start();
    }
    assert_true(sluice_client_timeout_ns(client) == 0);
    settle();
    assert_int_equal(side.n_conns, 1);
    assert_int_equal(side.n_requests, 5);
    assert_null(sluice_client_next_done(client));
    h2_answer_ok(&side.requests[3], YES, 7);
    h2_answer_ok(&side.requests[1], NO, 5);
    settle();
    assert_ptr_equal(sluice_client_next_done(client), calls[3]);
    assert_ptr_equal(sluice_client_next_done(client), calls[1]);
    assert_null(sluice_client_next_done(client));
    assert_true(yes(calls[3]) == 1 && yes(calls[1]) == 0);
    expect(calls[0], SLUICE_CLIENT_PENDING, "");
    for (size_t i = 0; i < 5; i++) {
        sluice_call_free(calls[i]);
    }
    settle();
    assert_true(side.requests[0].reset && side.requests[2].reset && side.requests[4].reset);
    assert_true(sluice_client_timeout_ns(client) == UINT64_MAX);
    expect_usable();
    assert_int_equal(side.n_conns, 1);
    close_client();
}

static void channel_request_has_path_deadline_and_metadata(void **state) {
    (void)state;
    const sluice_header items[] = {{.size = sizeof(*items), .name = "X-Key", .value = "one"}};
    const sluice_header own[] = {
        {.size = sizeof(*own), .name = "x-KEY", .value = "two"},
        {.size = sizeof(*own), .name = "raw-bin", .value = "\xff", .value_bytes = 1}};
    open_with((sluice_client_options){.headers = items, .n_headers = 1, .bearer_token = "secret"});
    sluice_call *plain = start();
    const sluice_call_options options = {
        .size = sizeof(options),
        .timeout_ns = 3 * SECOND,
        .headers = own,
        .n_headers = 2,
        .traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    sluice_call *call = start_with(&options);
    settle();
    const struct h2_request *first = &side.requests[0], *second = &side.requests[1];
    assert_string_equal(h2_request_field(first, ":path"),
                        "/inference.GRPCInferenceService/ServerLive");
    assert_string_equal(h2_request_field(first, ":scheme"), "http");
    assert_string_equal(h2_request_field(first, ":authority"), "localhost");
    assert_string_equal(h2_request_field(first, "x-key"), "one");
    assert_string_equal(h2_request_field(first, "authorization"), "Bearer secret");
    assert_string_equal(h2_request_field(first, "grpc-timeout"), "60000000u");
    assert_string_equal(h2_request_field(second, "grpc-timeout"), "3000000u");
    assert_string_equal(h2_request_field(second, "x-key"), "two");
    assert_string_equal(h2_request_field(second, "raw-bin"), "/w");
    assert_string_equal(h2_request_field(second, "traceparent"), options.traceparent);
    assert_true(first->ended && first->n_body == 5);
    sluice_call_free(plain);
    sluice_call_free(call);
    close_client();
}

static const char *header(const sluice_call *call, const char *name) {
    sluice_header out = {.size = sizeof(out)};
    return sluice_call_find_header(call, name, &out) == SLUICE_CLIENT_OK ? out.value : "";
}

static void channel_answer_has_headers_and_trailers(void **state) {
    (void)state;
    static const struct h2_field HEAD[] = {
        {":status", "200"}, {"content-type", "application/grpc"}, {"before", "it"}};
    static const struct h2_field TRAILERS[] = {
        {"grpc-status", "8"}, {"grpc-message", "too%20much"}, {"retry-in", "3"}};
    open_client();
    sluice_call *call = start(), *failed;
    assert_int_equal(sluice_client_start_server_metadata(client, NULL, &failed, &error),
                     SLUICE_CLIENT_OK);
    sluice_header out = {.size = sizeof(out)};
    assert_int_equal(sluice_call_header(call, 0, &out), SLUICE_CLIENT_INVALID);
    settle();
    h2_answer(&side.requests[0], HEAD, 3, YES, 7, H2_OK, 2);
    h2_answer(&side.requests[1], HEAD, 3, "", 0, TRAILERS, 3);
    settle();
    expect(call, SLUICE_CLIENT_OK, "");
    assert_string_equal(header(call, "Before"), "it");
    assert_string_equal(header(call, "after"), "all");
    assert_int_equal(sluice_call_header(call, 3, &out), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_header(call, 4, &out), SLUICE_CLIENT_NOT_FOUND);
    expect(failed, SLUICE_CLIENT_SERVER_ERROR, "too much (gRPC RESOURCE_EXHAUSTED)");
    assert_true(error.grpc_status == 8 && error.http_status == 200 && error.may_have_run == 1);
    assert_string_equal(header(failed, "before"), "it");
    assert_string_equal(header(failed, "retry-in"), "3");
    sluice_call_free(call);
    sluice_call_free(failed);
    close_client();
}

/* Health has no error: another answer than "live" is a no. A ping is content with any answer. */
static void channel_error_answer_is_an_answer_to_health_and_ping(void **state) {
    (void)state;
    static const struct h2_field NO_SUCH[] = {{":status", "200"},
                                              {"content-type", "application/grpc"},
                                              {"grpc-status", "5"},
                                              {"grpc-message", "none"}};
    static const struct h2_field PROXY[] = {{":status", "503"}, {"content-type", "text/html"}};
    sluice_call *calls[4];
    open_client();
    sluice_client_start_model_is_ready(client, "m", "1", NULL, &calls[0], &error);
    sluice_client_start_ping(client, NULL, &calls[1], &error);
    calls[2] = start();
    sluice_client_start_unload(client, "m", NULL, &calls[3], &error);
    settle();
    assert_int_equal(side.n_requests, 4);
    assert_memory_equal(side.requests[0].body,
                        "\0\0\0\0\6\x0a\1m\x12\1"
                        "1",
                        11);
    h2_answer(&side.requests[0], NO_SUCH, 4, "", 0, NULL, 0);
    h2_answer(&side.requests[1], NO_SUCH, 4, "", 0, NULL, 0);
    h2_answer(&side.requests[2], PROXY, 2, "<html>", 6, NULL, 0);
    h2_answer(&side.requests[3], PROXY, 2, "<html>", 6, NULL, 0);
    settle();
    expect(calls[0], SLUICE_CLIENT_OK, "");
    expect(calls[1], SLUICE_CLIENT_OK, "");
    expect(calls[2], SLUICE_CLIENT_OK, "");
    assert_true(yes(calls[0]) == 0 && yes(calls[2]) == 0);
    assert_string_equal(header(calls[0], "grpc-message"), "none");
    expect(calls[3], SLUICE_CLIENT_SERVER_ERROR, "HTTP 503");
    assert_true(error.http_status == 503 && error.grpc_status == 14);
    for (size_t i = 0; i < 4; i++) {
        sluice_call_free(calls[i]);
    }
    close_client();
}

static void channel_bad_answers_have_their_status(void **state) {
    (void)state;
    static const struct h2_field TEXT[] = {{":status", "200"}, {"content-type", "text/html"}};
    static const struct h2_field GZIP[] = {
        {":status", "200"}, {"content-type", "application/grpc"}, {"grpc-encoding", "br"}};
    static const struct h2_field WORD[] = {{"grpc-status", "fine"}};
    static const struct {
        const struct h2_field *head;
        size_t n_head;
        const char *out;
        size_t n_out;
        const struct h2_field *trailers;
        size_t n_trailers;
        sluice_client_status status;
        const char *says;
    } rows[] = {
        {TEXT, 2, "<html>", 6, NULL, 0, SLUICE_CLIENT_PROTOCOL, "is not gRPC"},
        {GZIP, 3, YES, 7, H2_OK, 1, SLUICE_CLIENT_PROTOCOL, "grpc-encoding"},
        {H2_HEAD, 2, YES, 7, NULL, 0, SLUICE_CLIENT_PROTOCOL, "without a status"},
        {H2_HEAD, 2, "", 0, H2_OK, 1, SLUICE_CLIENT_PROTOCOL, "without a message"},
        {H2_HEAD, 2, YES YES, 14, H2_OK, 1, SLUICE_CLIENT_PROTOCOL, "several messages"},
        {H2_HEAD, 2, YES, 6, H2_OK, 1, SLUICE_CLIENT_PROTOCOL, "within a message"},
        {H2_HEAD, 2, YES, 7, WORD, 1, SLUICE_CLIENT_PROTOCOL, "grpc-status"},
        {H2_HEAD, 2, "\0\0\0\0\1\xff", 6, H2_OK, 1, SLUICE_CLIENT_PROTOCOL, "the server's answer"},
        {H2_HEAD, 2, "\0\0\1\0\0", 5, H2_OK, 1, SLUICE_CLIENT_TOO_LARGE, "max_answer_bytes"},
    };
    open_with((sluice_client_options){.max_answer_bytes = 1000});
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        sluice_call *call = start();
        settle();
        h2_answer(&side.requests[side.n_requests - 1], rows[i].head, rows[i].n_head, rows[i].out,
                  rows[i].n_out, rows[i].trailers, rows[i].n_trailers);
        settle();
        expect(call, rows[i].status, rows[i].says);
        assert_int_equal(error.may_have_run, 1);
        sluice_call_free(call);
        expect_usable();
    }
    assert_int_equal(side.n_conns, 1);
    close_client();
}

/* A small message that decompresses to more than the limit, or to what is none. */
static void channel_compressed_answers_are_bounded(void **state) {
    (void)state;
    static const struct h2_field GZIP[] = {
        {":status", "200"}, {"content-type", "application/grpc"}, {"grpc-encoding", "gzip"}};
    static const char zeros[100000];
    const struct grpc_send_queue_options gzip = {.coding = HTTP_GZIP, .compression_level = 1};
    const struct piece bomb = {zeros, sizeof(zeros)}, answer = {"\x08\x01", 2};
    open_with((sluice_client_options){.max_answer_bytes = 1000});
    for (int i = 0; i < 3; i++) {
        struct piece packed;
        char framed[2000] = {1};
        assert_true(grpc_compress_copy(&gzip, NULL, i == 0 ? &bomb : &answer, 1, &packed));
        assert_true(packed.n_bytes < 1000);
        framed[3] = (char)(packed.n_bytes >> 8);
        framed[4] = (char)packed.n_bytes;
        memcpy(framed + 5, packed.data, packed.n_bytes);
        framed[5] ^= i == 1;
        sluice_call *call = start();
        settle();
        h2_answer(&side.requests[side.n_requests - 1], GZIP, 3, framed, 5 + packed.n_bytes, H2_OK,
                  1);
        settle();
        static const sluice_client_status WANTED[] = {SLUICE_CLIENT_TOO_LARGE,
                                                      SLUICE_CLIENT_PROTOCOL, SLUICE_CLIENT_OK};
        expect(call, WANTED[i], "");
        sluice_call_free(call);
        free((void *)(uintptr_t)packed.data);
        expect_usable();
    }
    assert_int_equal(side.n_conns, 1);
    close_client();
}

/* ---- the end of a stream or a connection ----------------------------------------------------- */

static void channel_refused_stream_is_started_once_more(void **state) {
    (void)state;
    open_client();
    sluice_call *call = start();
    settle();
    nghttp2_submit_rst_stream(side.conns[0].h2, 0, side.requests[0].id, NGHTTP2_REFUSED_STREAM);
    settle();
    expect(call, SLUICE_CLIENT_PENDING, "");
    assert_int_equal(side.n_requests, 2);
    nghttp2_submit_rst_stream(side.conns[0].h2, 0, side.requests[1].id, NGHTTP2_REFUSED_STREAM);
    settle();
    expect(call, SLUICE_CLIENT_SERVER_ERROR, "did not begin the call");
    assert_true(error.may_have_run == 0 && error.grpc_status == 14);
    sluice_call_free(call);
    call = start();
    settle();
    nghttp2_submit_rst_stream(side.conns[0].h2, 0, side.requests[2].id, NGHTTP2_INTERNAL_ERROR);
    settle();
    expect(call, SLUICE_CLIENT_SERVER_ERROR, "reset the call");
    assert_int_equal(error.may_have_run, 1);
    sluice_call_free(call);
    assert_int_equal(side.n_requests, 3);
    close_client();
}

/* Calls up to the last that the server has read end on their connection, the others start on a new
 * one, in order. */
static void channel_goaway_moves_the_calls_it_passes_over(void **state) {
    (void)state;
    sluice_call *calls[3];
    open_client();
    for (size_t i = 0; i < 3; i++) {
        calls[i] = start();
    }
    settle();
    nghttp2_submit_goaway(side.conns[0].h2, 0, side.requests[0].id, NGHTTP2_NO_ERROR, NULL, 0);
    settle();
    assert_int_equal(side.n_conns, 2);
    assert_int_equal(side.n_requests, 5);
    assert_ptr_equal(side.requests[3].conn, &side.conns[1]);
    sluice_call *later = start();
    settle();
    assert_ptr_equal(side.requests[5].conn, &side.conns[1]);
    for (size_t i = 3; i < 6; i++) {
        h2_answer_ok(&side.requests[i], YES, 7);
    }
    settle();
    expect(calls[0], SLUICE_CLIENT_PENDING, "");
    assert_ptr_equal(sluice_client_next_done(client), calls[1]);
    assert_ptr_equal(sluice_client_next_done(client), calls[2]);
    assert_ptr_equal(sluice_client_next_done(client), later);
    h2_answer_ok(&side.requests[0], YES, 7);
    settle();
    expect(calls[0], SLUICE_CLIENT_OK, "");
    assert_true(side.conns[0].ended); /* it is not needed any more */
    for (size_t i = 0; i < 3; i++) {
        sluice_call_free(calls[i]);
    }
    sluice_call_free(later);
    close_client();
}

static void channel_goaway_with_an_error_is_the_reason(void **state) {
    (void)state;
    open_client();
    sluice_call *call = start();
    settle();
    nghttp2_submit_goaway(side.conns[0].h2, 0, side.requests[0].id, NGHTTP2_ENHANCE_YOUR_CALM,
                          (const uint8_t *)"too_many_pings", 14);
    settle();
    h2_peer_disconnect(&side.conns[0]);
    settle();
    expect(call, SLUICE_CLIENT_CLOSED, "too_many_pings");
    assert_int_equal(error.may_have_run, 1);
    sluice_call_free(call);
    expect_usable();
    close_client();
}

static void channel_lost_connection_ends_its_calls(void **state) {
    (void)state;
    open_client();
    sluice_call *calls[] = {start(), start()};
    settle();
    h2_peer_disconnect(&side.conns[0]);
    settle();
    for (size_t i = 0; i < 2; i++) {
        expect(calls[i], SLUICE_CLIENT_CLOSED, "the server closed the connection");
        assert_int_equal(error.may_have_run, 1);
        sluice_call_free(calls[i]);
    }
    expect_usable();
    assert_int_equal(side.n_conns, 2);
    /* between two calls: the next one does not notice */
    h2_peer_disconnect(&side.conns[1]);
    expect_usable();
    assert_int_equal(side.n_conns, 3);
    close_client();
}

static void channel_without_a_server_fails_at_once(void **state) {
    (void)state;
    open_client();
    close(side.peer.listener);
    for (size_t i = 0; i < 3; i++) { /* each call tries */
        sluice_call *call = start();
        sluice_client_step(client);
        sluice_client_step(client);
        expect(call, SLUICE_CLIENT_CONNECT, "Connection refused");
        assert_int_equal(error.may_have_run, 0);
        sluice_call_free(call);
    }
    unlink(side.peer.address.sun_path);
    peer_listen(&side.peer, 16);
    expect_usable();
    close_client();
}

static void channel_server_of_another_protocol_is_told_apart(void **state) {
    (void)state;
    open_client();
    sluice_call *call = start();
    sluice_client_step(client);
    h2_peer_accept(&side);
    peer_send(&(struct peer){.fd = side.conns[0].fd}, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    side.is_silent = true;
    settle();
    expect(call, SLUICE_CLIENT_PROTOCOL, "HTTP/1.1");
    sluice_call_free(call);
    side.is_silent = false;
    h2_peer_disconnect(&side.conns[0]);
    expect_usable();
    close_client();
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void channel_calls_over_the_servers_limit_wait(void **state) {
    (void)state;
    open_client();
    side.max_streams = 2;
    sluice_call *first = start();
    settle(); /* its SETTINGS are known */
    sluice_call *calls[] = {start(), start(), start()};
    settle();
    assert_int_equal(side.n_requests, 2);
    h2_answer_ok(&side.requests[0], YES, 7);
    settle();
    expect(first, SLUICE_CLIENT_OK, "");
    assert_int_equal(side.n_requests, 3);
    advance_clock(60 * SECOND);
    settle();
    for (size_t i = 0; i < 3; i++) {
        expect(calls[i], SLUICE_CLIENT_TIMEOUT, i < 2 ? "waiting for" : "connecting to");
        assert_int_equal(error.may_have_run, i < 2);
        sluice_call_free(calls[i]);
    }
    sluice_call_free(first);
    expect_usable();
    assert_int_equal(side.n_conns, 1);
    close_client();
}

static void channel_deadline_resets_the_stream(void **state) {
    (void)state;
    open_client();
    const sluice_call_options options = {.size = sizeof(options), .timeout_ns = SECOND};
    sluice_call *call = start_with(&options), *other = start();
    settle();
    assert_true(sluice_client_timeout_ns(client) == SECOND);
    advance_clock(SECOND);
    assert_true(sluice_client_timeout_ns(client) == 0);
    settle();
    expect(call, SLUICE_CLIENT_TIMEOUT, "timed out waiting for");
    assert_int_equal(error.may_have_run, 1);
    assert_true(side.requests[0].reset && side.requests[0].reset_code == NGHTTP2_CANCEL);
    h2_answer_ok(&side.requests[1], YES, 7);
    settle();
    expect(other, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
    sluice_call_free(other);
    close_client();
}

static void channel_connection_has_deadlines_of_its_own(void **state) {
    (void)state;
    open_with(
        (sluice_client_options){.connect_timeout_ns = 2 * SECOND, .idle_timeout_ns = 5 * SECOND});
    side.is_silent = true;
    sluice_call *call = start();
    settle();
    assert_true(sluice_client_timeout_ns(client) == 2 * SECOND);
    advance_clock(2 * SECOND);
    settle();
    expect(call, SLUICE_CLIENT_TIMEOUT, "SETTINGS");
    sluice_call_free(call);
    side.is_silent = false;
    expect_usable();
    assert_true(sluice_client_timeout_ns(client) == UINT64_MAX); /* idle between calls */
    advance_clock(10 * SECOND);
    call = start();
    settle();
    assert_true(sluice_client_timeout_ns(client) == 5 * SECOND);
    advance_clock(5 * SECOND);
    settle();
    expect(call, SLUICE_CLIENT_TIMEOUT, "without a byte");
    sluice_call_free(call);
    expect_usable();
    close_client();
}

/* A layer that lets nothing be sent before the server has sent something. */
static struct {
    int fd;
    bool has_read;
} layer;

static int32_t layer_start(void *context, int fd, const char *host) {
    (void)context, (void)host;
    layer.fd = fd;
    layer.has_read = false;
    return 0;
}

static int64_t layer_read(void *context, void *data, size_t n_bytes) {
    ssize_t n = recv(layer.fd, data, n_bytes, MSG_DONTWAIT);
    (void)context;
    layer.has_read |= n > 0;
    return n >= 0 ? n : SLUICE_TRANSPORT_WANT_READ;
}

static int64_t layer_write(void *context, const void *data, size_t n_bytes) {
    (void)context;
    if (!layer.has_read) {
        return SLUICE_TRANSPORT_WANT_READ;
    }
    ssize_t n = send(layer.fd, data, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n > 0 ? n : SLUICE_TRANSPORT_WANT_WRITE;
}

/* A server that ends each connection before a call can start is not asked in a tight loop. */
static void channel_useless_connections_are_slowed_down(void **state) {
    (void)state;
    const sluice_client_transport transport = {
        .size = sizeof(transport), .start = layer_start, .read = layer_read, .write = layer_write};
    open_with((sluice_client_options){.transport = &transport});
    side.says_goaway = true;
    sluice_call *call = start();
    settle();
    assert_int_equal(side.n_conns, 2);
    for (size_t i = 2; i < 5; i++) {
        expect(call, SLUICE_CLIENT_PENDING, "");
        uint64_t pause_ns = sluice_client_timeout_ns(client);
        assert_int_equal(pause_ns, UINT64_C(10000000) << (i - 2));
        advance_clock(pause_ns);
        settle();
        assert_int_equal(side.n_conns, i + 1);
    }
    expect(call, SLUICE_CLIENT_PENDING, "");
    side.says_goaway = false;
    advance_clock(SECOND);
    settle();
    h2_answer_ok(&side.requests[0], YES, 7);
    settle();
    expect(call, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
    close_client();
}

/* ---- the caller's bytes ---------------------------------------------------------------------- */

enum { N_LARGE = 1 << 21 };

static sluice_call *start_infer(const char *bytes, size_t n_bytes) {
    const int64_t dims[] = {(int64_t)n_bytes};
    sluice_tensor input = sluice_tensor_u8("I", (const uint8_t *)bytes, dims, 1);
    const sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
    sluice_call *call;
    if (sluice_client_start_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return call;
}

/* ModelInferResponse {outputs: [{name: "O", datatype: "UINT8", shape: [2^20]}], raw…} */
#define LARGE_OUTPUT "\x2a\x0f\x0a\1O\x12\5UINT8\x1a\3\x80\x80\x40\x32\x80\x80\x40"

static void channel_large_request_and_answer(void **state) {
    (void)state;
    enum { N = 1 << 20, HEAD = sizeof(LARGE_OUTPUT) - 1 };
    static char answer[5 + HEAD + N];
    char *bytes = calloc(1, N_LARGE);
    const uint32_t n_message = HEAD + N;
    for (size_t i = 0; i < 4; i++) {
        answer[1 + i] = (char)(n_message >> (24 - 8 * i));
    }
    memcpy(answer + 5, LARGE_OUTPUT, HEAD);
    memset(answer + 5 + HEAD, 'y', N);
    open_client();
    sluice_call *call = start_infer(bytes, N_LARGE);
    settle();
    assert_true(side.requests[0].ended && side.requests[0].n_all > N_LARGE);
    h2_answer_ok(&side.requests[0], answer, sizeof(answer));
    settle();
    expect(call, SLUICE_CLIENT_OK, "");
    sluice_tensor output = {.size = sizeof(output)};
    assert_int_equal(sluice_call_find_output(call, "O", &output), SLUICE_CLIENT_OK);
    assert_true(output.datatype == SLUICE_UINT8 && output.n_bytes == N);
    assert_int_equal((uintptr_t)output.data % 64, 0);
    assert_memory_equal(output.data, answer + 5 + HEAD, N);
    expect_usable(); /* the output stays while other calls run */
    assert_memory_equal(output.data, answer + 5 + HEAD, N);
    sluice_call_free(call);
    free(bytes);
    close_client();
}

/* The caller frees the inputs of a call that is done, though the connection has promised to send
 * parts of them: the other calls on it are not disturbed. */
static void channel_bytes_of_a_finished_call_may_go(void **state) {
    (void)state;
    static const struct h2_field ERROR[] = {
        {":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "3"}};
    for (int how = 0; how < 3; how++) {
        char *bytes = malloc(N_LARGE);
        memset(bytes, 'x', N_LARGE);
        open_client();
        expect_usable();
        side.reads_nothing = true; /* until the socket is full */
        sluice_call *call = start_infer(bytes, N_LARGE), *other = start();
        settle();
        if (how == 0) {
            sluice_call_free(call);
            call = NULL;
        } else if (how == 1) {
            advance_clock(60 * SECOND);
            settle();
            expect(call, SLUICE_CLIENT_TIMEOUT, "");
            sluice_call_free(other);
            other = NULL;
        } else {
            h2_peer_read(&side.conns[0]);
            h2_answer(&side.requests[1], ERROR, 3, "", 0, NULL, 0);
            settle();
            expect(call, SLUICE_CLIENT_SERVER_ERROR, "INVALID_ARGUMENT");
        }
        memset(bytes, 0, N_LARGE);
        free(bytes);
        side.reads_nothing = false;
        settle();
        for (size_t i = 6; i < side.requests[1].n_body && i < 100000; i++) {
            assert_true(i < 40 || side.requests[1].body[i] == 'x');
        }
        if (other) {
            h2_answer_ok(&side.requests[side.n_requests - 1], YES, 7);
            settle();
            expect(other, SLUICE_CLIENT_OK, "");
        }
        sluice_call_free(call);
        sluice_call_free(other);
        expect_usable();
        assert_int_equal(side.n_conns, 1);
        close_client();
    }
}

static void channel_client_is_closed_in_any_state(void **state) {
    (void)state;
    char *bytes = calloc(1, N_LARGE);
    for (int steps = 0; steps < 6; steps++) {
        open_client();
        side.reads_nothing = steps == 5;
        (void)start();
        (void)start_infer(bytes, N_LARGE);
        for (int i = 0; i < steps; i++) {
            sluice_client_step(client);
        }
        if (steps > 3) {
            settle();
        }
        close_client();
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channel_calls_are_streams_of_one_connection),
        cmocka_unit_test(channel_request_has_path_deadline_and_metadata),
        cmocka_unit_test(channel_answer_has_headers_and_trailers),
        cmocka_unit_test(channel_error_answer_is_an_answer_to_health_and_ping),
        cmocka_unit_test(channel_bad_answers_have_their_status),
        cmocka_unit_test(channel_compressed_answers_are_bounded),
        cmocka_unit_test(channel_refused_stream_is_started_once_more),
        cmocka_unit_test(channel_goaway_moves_the_calls_it_passes_over),
        cmocka_unit_test(channel_goaway_with_an_error_is_the_reason),
        cmocka_unit_test(channel_lost_connection_ends_its_calls),
        cmocka_unit_test(channel_without_a_server_fails_at_once),
        cmocka_unit_test(channel_server_of_another_protocol_is_told_apart),
        cmocka_unit_test(channel_calls_over_the_servers_limit_wait),
        cmocka_unit_test(channel_deadline_resets_the_stream),
        cmocka_unit_test(channel_connection_has_deadlines_of_its_own),
        cmocka_unit_test(channel_useless_connections_are_slowed_down),
        cmocka_unit_test(channel_large_request_and_answer),
        cmocka_unit_test(channel_bytes_of_a_finished_call_may_go),
        cmocka_unit_test(channel_client_is_closed_in_any_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
