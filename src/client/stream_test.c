/* Calls with several answers, over gRPC and HTTP, against a server in the test's own thread: how
 * the answers are taken, what is held back while they are not, and how such a call ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_h2_peer.h"
#include "core/event/clock.h"

#define SECOND UINT64_C(1000000000)

/* ModelStreamInferResponse {infer_response: {id: "a"}} and so on, {error_message: "bad"}, and one
 * that is cut off. */
#define ANSWER(id) "\0\0\0\0\5\x12\3\x1a\1" id
#define FAILURE "\0\0\0\0\5\x0a\3bad"
#define CUT_OFF "\0\0\0\0\2\x12\3"
enum { FRAMED = 10 };

static struct peer peer;
static struct h2_peer side;
static sluice_client *client;
static sluice_client_error error = {.size = sizeof(error)};
static uint64_t now_ns;

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    if (status == SLUICE_CLIENT_END) {
        assert_int_equal(is, status);
        return;
    }
    test_expect(&error, is, status, says);
}

static void open_client(const char *url, uint64_t max_answer_bytes) {
    now_ns = 1000 * SECOND;
    clock_set_fake_ns(now_ns);
    const sluice_client_options options = {
        .size = sizeof(options), .url = url, .max_answer_bytes = max_answer_bytes};
    expect(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
}

static void advance_clock(uint64_t ns) {
    now_ns += ns;
    clock_set_fake_ns(now_ns);
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

static sluice_call *open_stream(const sluice_call_options *options) {
    sluice_call *call;
    h2_peer_open(&side);
    open_client(side.url, 0);
    expect(sluice_client_start_stream(client, options, &call, &error), SLUICE_CLIENT_OK, "");
    return call;
}

static void close_grpc(void) {
    sluice_client_close(client);
    h2_peer_close(&side);
    clock_set_fake_ns(0);
}

static void settle(void) {
    h2_peer_settle(&side, client);
}

static sluice_client_status send_request(sluice_call *call, const char *model) {
    const sluice_infer_request request = {.size = sizeof(request), .model = model, .id = "a"};
    return sluice_call_send(call, &request, &error);
}

static void answer(const char *messages, size_t n_bytes) {
    settle();
    h2_answer_ok(&side.requests[side.n_requests - 1], messages, n_bytes);
    settle();
}

static void expect_answer(sluice_call *call, const char *id) {
    sluice_answer_info info = {.size = sizeof(info)};
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(sluice_call_answer(call, &info), SLUICE_CLIENT_OK);
    assert_string_equal(info.id, id);
}

static void expect_usable(void) {
    sluice_call *call;
    expect(sluice_client_start_stream(client, NULL, &call, &error), SLUICE_CLIENT_OK, "");
    sluice_call_half_close(call);
    answer(ANSWER("z"), FRAMED);
    expect_answer(call, "z");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
}

static void stream_answers_are_taken_one_by_one(void **state) {
    (void)state;
    sluice_answer_info info = {.size = sizeof(info)};
    sluice_header header = {.size = sizeof(header)};
    sluice_call *call = open_stream(NULL);
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_PENDING, "");
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    expect(send_request(call, "n"), SLUICE_CLIENT_OK, "");
    assert_true(sluice_call_unsent_bytes(call) > 0);
    settle();
    assert_int_equal(sluice_call_unsent_bytes(call), 0);
    const struct h2_request *request = &side.requests[0];
    assert_string_equal(h2_request_field(request, ":path"),
                        "/inference.GRPCInferenceService/ModelStreamInfer");
    assert_null(h2_request_field(request, "grpc-timeout"));
    assert_int_equal(request->n_body, 22);
    assert_memory_equal(request->body, "\0\0\0\0\6\x0a\1m\x1a\1a\0\0\0\0\6\x0a\1n\x1a\1a", 22);
    assert_false(request->ended);
    sluice_call_half_close(call);
    settle();
    assert_true(request->ended);
    answer(ANSWER("a") ANSWER("b") ANSWER("c"), 3 * (size_t)FRAMED);
    assert_int_equal(sluice_call_answer(call, &info), SLUICE_CLIENT_INVALID); /* none is taken */
    expect_answer(call, "a");
    expect_answer(call, "b");
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "");
    expect_answer(call, "c");
    settle();
    assert_int_equal(sluice_call_answer(call, &info), SLUICE_CLIENT_OK); /* still that one */
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    assert_int_equal(sluice_call_answer(call, &info), SLUICE_CLIENT_INVALID);
    assert_int_equal(sluice_call_find_header(call, "after", &header), SLUICE_CLIENT_OK);
    expect(send_request(call, "m"), SLUICE_CLIENT_INVALID, "after sluice_call_half_close");
    assert_ptr_equal(sluice_client_next_done(client), call);
    sluice_call_free(call);
    close_grpc();
}

static void stream_error_takes_the_place_of_an_answer(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    answer(FAILURE ANSWER("b"), 2 * (size_t)FRAMED);
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_SERVER_ERROR, "bad");
    assert_int_equal(error.may_have_run, 1);
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "");
    expect_answer(call, "b");
    settle();
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    expect(send_request(call, "m"), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

static void stream_ends_with_an_answer_that_is_malformed(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    answer(ANSWER("a") CUT_OFF ANSWER("b"), 2 * (size_t)FRAMED + 7);
    expect_answer(call, "a");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_PROTOCOL, "the server's answer");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_PROTOCOL, "the server's answer");
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_PROTOCOL, "the server's answer");
    expect(send_request(call, "m"), SLUICE_CLIENT_PROTOCOL, "the server's answer");
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

static void stream_answers_before_an_error_are_taken(void **state) {
    (void)state;
    static const struct h2_field trailers[] = {{"grpc-status", "8"}, {"grpc-message", "enough"}};
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    settle();
    h2_answer(&side.requests[0], H2_HEAD, 2, ANSWER("a"), FRAMED, trailers, 2);
    settle();
    expect_answer(call, "a");
    settle();
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_SERVER_ERROR, "enough");
    assert_int_equal(error.grpc_status, 8);
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_SERVER_ERROR, "enough");
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

static void stream_ends_with_its_connection(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    settle();
    h2_peer_disconnect(&side.conns[0]);
    settle();
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_CLOSED, "closed the connection");
    assert_int_equal(error.may_have_run, 1);
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

static void stream_that_is_refused_is_not_started_again(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    settle();
    nghttp2_submit_rst_stream(side.requests[0].conn->h2, NGHTTP2_FLAG_NONE, side.requests[0].id,
                              NGHTTP2_REFUSED_STREAM);
    settle();
    assert_int_equal(side.n_requests, 1);
    assert_true(sluice_call_next(call, &error) < 0);
    assert_int_equal(error.may_have_run, 0);
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

static void stream_bad_requests_are_refused(void **state) {
    (void)state;
    char data[4];
    const sluice_wanted wanted = {
        .size = sizeof(wanted), .name = "Y", .data = data, .n_bytes = sizeof(data)};
    const sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .wanted = &wanted, .n_wanted = 1};
    sluice_call *call = open_stream(NULL), *other;
    expect(send_request(call, ""), SLUICE_CLIENT_INVALID, "the model's name is empty");
    expect(sluice_call_send(call, &request, &error), SLUICE_CLIENT_UNSUPPORTED, "no buffers");
    expect(sluice_client_start_is_live(client, NULL, &other, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_call_next(other, &error), SLUICE_CLIENT_INVALID, "no stream");
    expect(send_request(other, "m"), SLUICE_CLIENT_INVALID, "sends no requests");
    sluice_call_half_close(other);
    sluice_call_free(other);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    answer(ANSWER("a"), FRAMED);
    expect_answer(call, "a");
    sluice_call_free(call);
    close_grpc();
}

static void stream_deadline_is_the_callers(void **state) {
    (void)state;
    const sluice_call_options options = {.size = sizeof(options), .timeout_ns = 100 * SECOND};
    sluice_call *endless = open_stream(NULL), *call;
    expect(sluice_client_start_stream(client, &options, &call, &error), SLUICE_CLIENT_OK, "");
    settle();
    assert_string_equal(h2_request_field(&side.requests[1], "grpc-timeout"), "100000m");
    advance_clock(101 * SECOND);
    settle();
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_TIMEOUT, "after 100 s");
    assert_true(side.requests[1].reset);
    advance_clock(1000000 * SECOND);
    settle();
    expect(sluice_call_next(endless, &error), SLUICE_CLIENT_PENDING, "");
    close_grpc();
}

struct told {
    size_t n, n_taken, n_done;
    bool takes;
    sluice_call *cancels; /* by on_answer; NULL: none */
};

static void on_answer(sluice_call *call, void *user) {
    struct told *told = user;
    told->n++;
    while (told->takes && sluice_call_next(call, &error) == SLUICE_CLIENT_OK) {
        told->n_taken++;
    }
    if (told->cancels) {
        sluice_call_cancel(told->cancels);
    }
}

static void on_done(sluice_call *call, void *user) {
    struct told *told = user;
    (void)call;
    told->n_done++;
}

static void stream_callback_is_called_for_answers(void **state) {
    (void)state;
    struct told told = {.takes = true}, idle = {0};
    sluice_call_options options = {
        .size = sizeof(options), .on_answer = on_answer, .on_done = on_done, .user = &told};
    sluice_call *call = open_stream(&options), *other;
    answer(ANSWER("a") ANSWER("b") ANSWER("c"), 3 * (size_t)FRAMED);
    assert_int_equal(told.n_taken, 3);
    assert_true(told.n >= 1 && told.n <= 3);
    assert_int_equal(told.n_done, 1);
    sluice_call_free(call);
    /* Without being taken, one answer comes; the call can be freed. */
    options.user = &idle;
    expect(sluice_client_start_stream(client, &options, &other, &error), SLUICE_CLIENT_OK, "");
    answer(ANSWER("a") ANSWER("b"), 2 * (size_t)FRAMED);
    assert_true(idle.n == 1 && idle.n_done == 0);
    assert_true(sluice_client_timeout_ns(client) > 0);
    sluice_call_free(other);
    expect_usable();
    close_grpc();
}

static void stream_wait_drops_the_answers(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    answer(ANSWER("a") FAILURE ANSWER("c"), 3 * (size_t)FRAMED);
    expect(sluice_client_wait(client, 0), SLUICE_CLIENT_PENDING, "");
    expect(sluice_call_wait(call, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
    expect_usable();
    close_grpc();
}

/* Answers of two streams come together; the callback of the first cancels the other one. */
static void stream_callback_is_not_called_after_cancel(void **state) {
    (void)state;
    struct told told[2] = {0};
    sluice_call_options options = {
        .size = sizeof(options), .on_answer = on_answer, .on_done = on_done, .user = &told[0]};
    sluice_call *calls[2] = {open_stream(&options)};
    options.user = &told[1];
    expect(sluice_client_start_stream(client, &options, &calls[1], &error), SLUICE_CLIENT_OK, "");
    told[0].cancels = calls[1];
    told[1].cancels = calls[0];
    settle();
    assert_int_equal(side.n_requests, 2);
    for (size_t i = 0; i < 2; i++) { /* the second answer waits, so the call is in progress */
        h2_answer_ok(&side.requests[i], ANSWER("a") ANSWER("b"), 2 * (size_t)FRAMED);
    }
    settle();
    assert_int_equal(told[0].n + told[1].n, 1);
    assert_int_equal(told[0].n_done + told[1].n_done, 0);
    size_t cancelled = told[0].n > 0;
    expect(sluice_call_status(calls[cancelled], &error), SLUICE_CLIENT_CANCELLED, "cancelled");
    expect_answer(calls[!cancelled], "a");
    sluice_call_free(calls[0]);
    sluice_call_free(calls[1]);
    expect_usable();
    close_grpc();
}

static void stream_is_freed_with_its_client(void **state) {
    (void)state;
    sluice_call *call = open_stream(NULL);
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    answer(ANSWER("a") ANSWER("b"), 2 * (size_t)FRAMED);
    expect_answer(call, "a");
    sluice_call_cancel(call);
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_CANCELLED, "");
    expect(sluice_client_start_stream(client, NULL, &call, &error), SLUICE_CLIENT_OK, "");
    expect(send_request(call, "m"), SLUICE_CLIENT_OK, "");
    close_grpc();
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"

static sluice_call *start_generate(void) {
    const sluice_generate_request request = {.size = sizeof(request), .model = "m", .json = "{}"};
    sluice_call *call;
    expect(sluice_client_start_generate_stream(client, &request, NULL, &call, &error),
           SLUICE_CLIENT_OK, "");
    return call;
}

static void step_all(void) {
    do {
        sluice_client_step(client);
    } while (client_is_ready(client, 0));
}

/* The request comes. */
static void receive(void) {
    static const char LINE[] = "POST /v2/models/m/generate_stream HTTP/1.1\r\n";
    step_all();
    (void)peer_accept(&peer);
    peer.n_in = 0;
    assert_true(peer_read(&peer) > 0);
    assert_memory_equal(peer.in, LINE, sizeof(LINE) - 1);
}

static sluice_call *open_generate(uint64_t max_answer_bytes) {
    peer_open(&peer, false);
    open_client(peer.url, max_answer_bytes);
    sluice_call *call = start_generate();
    receive();
    return call;
}

static void close_http(void) {
    sluice_client_close(client);
    peer_close(&peer);
    clock_set_fake_ns(0);
}

static void serve(const char *text) {
    peer_send(&peer, text, strlen(text));
    step_all();
}

static void expect_event(sluice_call *call, const char *data) {
    const char *text;
    size_t n;
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(sluice_call_text(call, &text, &n), SLUICE_CLIENT_OK);
    assert_string_equal(text, data);
    assert_int_equal(n, strlen(data));
}

static void expect_usable_http(void) {
    sluice_call *call = start_generate();
    receive();
    serve(CHUNKED "b\r\ndata: {}\n\n\n\r\n0\r\n\r\n");
    expect_event(call, "{}");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
}

static void events_are_taken_while_they_come(void **state) {
    (void)state;
    static const char TEXT[] = CHUNKED "18\r\ndata: 1\n\n: none\n\ndata: 2\r\nd\r\n\n\ndata: "
                                       "three\r\n2\r\n\n\n\r\n0\r\n\r\n";
    static const char *const EVENTS[] = {"1", "2", "three"};
    sluice_call *call = open_generate(0);
    size_t n_taken = 0;
    for (size_t i = 0; i + 1 < sizeof(TEXT); i++) {
        const char *text = "";
        expect(sluice_call_next(call, &error), SLUICE_CLIENT_PENDING, "");
        peer_send(&peer, TEXT + i, 1);
        step_all();
        if (sluice_call_next(call, &error) == SLUICE_CLIENT_OK) {
            assert_int_equal(sluice_call_text(call, &text, NULL), SLUICE_CLIENT_OK);
            assert_string_equal(text, EVENTS[n_taken++ % 3]);
        }
    }
    assert_int_equal(n_taken, 3);
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
    expect_usable_http();
    close_http();
}

static void events_are_left_when_the_exchange_ends(void **state) {
    (void)state;
    sluice_call *call = open_generate(0);
    serve(HEAD "Content-Length: 20\r\n\r\ndata: 1\n\ndata: 22\n\n\n");
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "");
    expect_event(call, "1");
    expect_event(call, "22");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_OK, "");
    assert_ptr_equal(sluice_client_next_done(client), call);
    sluice_call_free(call);
    expect_usable_http(); /* over the same connection */
    close_http();
}

static void event_with_an_error_is_one(void **state) {
    (void)state;
    sluice_call *call = open_generate(0);
    serve(CHUNKED "a\r\ndata: {}\n\n\r\n1e\r\ndata: {\"error\":\"out of ink\"}\n\n\r\n0\r\n\r\n");
    expect_event(call, "{}");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_SERVER_ERROR, "out of ink");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
    expect_usable_http();
    close_http();
}

static void events_bad_answers_have_their_status(void **state) {
    (void)state;
    static const struct {
        const char *answer;
        size_t n_events; /* before the failure */
        sluice_client_status status;
        const char *says;
    } rows[] = {
        {"HTTP/1.1 400 x\r\nContent-Length: 15\r\n\r\n{\"error\":\"no!\"}", 0,
         SLUICE_CLIENT_SERVER_ERROR, "no! (HTTP 400)"},
        {"HTTP/1.1 503 x\r\nContent-Type: text/event-stream\r\nContent-Length: 11\r\n\r\n"
         "data: {}\n\n\n",
         0, SLUICE_CLIENT_SERVER_ERROR, "HTTP 503"},
        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{", 0,
         SLUICE_CLIENT_PROTOCOL, "\"application/json\", expected text/event-stream"},
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 10\r\n\r\ndata: {}\n\n", 0,
         SLUICE_CLIENT_PROTOCOL, "text/html"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ndata: {}\n\n", 0, SLUICE_CLIENT_PROTOCOL,
         "Content-Type \"\""},
        {CHUNKED "a\r\ndata: {}\n\n\r\n1", 1, SLUICE_CLIENT_PROTOCOL, "in the middle"},
        {CHUNKED "a\r\ndata: {}\n\n\r\nx\r\n", 1, SLUICE_CLIENT_PROTOCOL, ""},
        {CHUNKED "a\r\ndata: 12345678901234567890123456", 0, SLUICE_CLIENT_PROTOCOL, ""},
        {CHUNKED "30\r\ndata: 123456789012345678901234567890123456789012", 0,
         SLUICE_CLIENT_TOO_LARGE, "max_answer_bytes"},
        {CHUNKED "32\r\ndata: 123456789012345678901234567890123456789012\n\n", 0,
         SLUICE_CLIENT_TOO_LARGE, "max_answer_bytes"},
        {"HTTP/1.1 500 x\r\nContent-Length: 100\r\n\r\n", 0, SLUICE_CLIENT_TOO_LARGE,
         "max_answer_bytes"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        sluice_call *call = open_generate(40);
        serve(rows[i].answer);
        peer_disconnect(&peer);
        step_all();
        for (size_t k = 0; k < rows[i].n_events; k++) {
            expect_event(call, "{}");
        }
        sluice_client_status status = sluice_call_next(call, &error);
        if (status != rows[i].status || !strstr(error.text, rows[i].says)) {
            fail_msg("row %zu: %d %s", i, (int)status, error.text);
        }
        sluice_call_free(call);
        expect_usable_http();
        close_http();
    }
}

/* The limit is one of an event, and what waits is bounded by the reader. */
static void events_that_are_not_taken_hold_up_the_server(void **state) {
    (void)state;
    enum { EVENTS = 20000, MOST_BYTES = 1 << 22 };
    static const char EVENT[] = "c\r\ndata: 1234\n\n\r\n";
    sluice_call *call = open_generate(100);
    size_t n_sent = 0, n_bytes = 0, at = 0, n_taken = 0;
    serve(CHUNKED);
    for (bool blocked = false; !blocked && n_bytes < MOST_BYTES; sluice_client_step(client)) {
        ssize_t n = send(peer.fd, EVENT + at, sizeof(EVENT) - 1 - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        blocked = n < 0;
        at = n > 0 ? (at + (size_t)n) % (sizeof(EVENT) - 1) : at;
        n_sent += n > 0 && at == 0;
        n_bytes += n > 0 ? (size_t)n : 0;
    }
    step_all();
    assert_true(n_bytes < MOST_BYTES && n_sent > 1000);
    assert_true(sluice_client_timeout_ns(client) > 0);
    while (sluice_call_next(call, &error) == SLUICE_CLIENT_OK) {
        n_taken++;
        step_all();
    }
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "");
    assert_int_equal(n_taken, n_sent);
    peer_send(&peer, EVENT + at, sizeof(EVENT) - 1 - at);
    serve("0\r\n\r\n");
    expect_event(call, "1234");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_END, "");
    sluice_call_free(call);
    expect_usable_http();
    close_http();
}

static void generate_answers_once(void **state) {
    (void)state;
    static const char LINE[] = "POST /v2/models/m/versions/2/generate HTTP/1.1\r\n";
    const sluice_generate_request request = {.size = sizeof(request),
                                             .model = "m",
                                             .version = "2",
                                             .json = "{\"a\":1}x",
                                             .json_bytes = 7};
    const sluice_generate_request bad = {.size = sizeof(bad), .model = "m"};
    sluice_call *call;
    const char *text;
    peer_open(&peer, false);
    open_client(peer.url, 0);
    expect(sluice_client_start_generate(client, &bad, NULL, &call, &error), SLUICE_CLIENT_INVALID,
           "no json");
    expect(sluice_client_start_generate(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK,
           "");
    step_all();
    (void)peer_accept(&peer);
    assert_true(peer_read(&peer) > 0);
    assert_memory_equal(peer.in, LINE, sizeof(LINE) - 1);
    assert_memory_equal(peer.in + peer.n_in - 11, "\r\n\r\n{\"a\":1}", 11);
    serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    assert_int_equal(sluice_call_text(call, &text, NULL), SLUICE_CLIENT_OK);
    assert_string_equal(text, "{}");
    expect(sluice_call_next(call, &error), SLUICE_CLIENT_INVALID, "no stream");
    sluice_call_free(call);
    close_http();
}

static void streams_are_refused_by_other_protocols(void **state) {
    (void)state;
    const sluice_generate_request request = {.size = sizeof(request), .model = "m", .json = "{}"};
    sluice_call *call;
    open_client("grpc://127.0.0.1:1", 0);
    expect(sluice_client_start_generate_stream(client, &request, NULL, &call, &error),
           SLUICE_CLIENT_UNSUPPORTED, "sluice_client_start_stream");
    sluice_client_close(client);
    static const char *const urls[] = {"http://127.0.0.1:1", "tcp://127.0.0.1:1"};
    for (size_t i = 0; i < 2; i++) {
        open_client(urls[i], 0);
        expect(sluice_client_start_stream(client, NULL, &call, &error), SLUICE_CLIENT_UNSUPPORTED,
               "grpc://");
        sluice_client_close(client);
    }
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_answers_are_taken_one_by_one),
        cmocka_unit_test(stream_error_takes_the_place_of_an_answer),
        cmocka_unit_test(stream_ends_with_an_answer_that_is_malformed),
        cmocka_unit_test(stream_answers_before_an_error_are_taken),
        cmocka_unit_test(stream_ends_with_its_connection),
        cmocka_unit_test(stream_that_is_refused_is_not_started_again),
        cmocka_unit_test(stream_bad_requests_are_refused),
        cmocka_unit_test(stream_deadline_is_the_callers),
        cmocka_unit_test(stream_callback_is_called_for_answers),
        cmocka_unit_test(stream_wait_drops_the_answers),
        cmocka_unit_test(stream_callback_is_not_called_after_cancel),
        cmocka_unit_test(stream_is_freed_with_its_client),
        cmocka_unit_test(events_are_taken_while_they_come),
        cmocka_unit_test(events_are_left_when_the_exchange_ends),
        cmocka_unit_test(event_with_an_error_is_one),
        cmocka_unit_test(events_bad_answers_have_their_status),
        cmocka_unit_test(events_that_are_not_taken_hold_up_the_server),
        cmocka_unit_test(generate_answers_once),
        cmocka_unit_test(streams_are_refused_by_other_protocols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
