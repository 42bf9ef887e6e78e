/* Calls that are tried again by a retry policy, over HTTP and gRPC, with a clock that the test
 * sets. retry_test.c has which failures and how long. */
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
#define GOOD "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define BUSY "HTTP/1.1 503 x\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"

static struct peer peer;
static struct h2_peer side;
static sluice_client *client;
static sluice_client_error error = {.size = sizeof(error)};
static uint64_t now_ns;
static uint32_t max_connections; /* of the next client; 0: the default */

static const int32_t HTTP[] = {503}, GRPC[] = {14};
static const sluice_retry_policy LISTED = {.size = sizeof(LISTED),
                                           .http_statuses = HTTP,
                                           .n_http_statuses = 1,
                                           .grpc_statuses = GRPC,
                                           .n_grpc_statuses = 1};

static void open_client(const char *url, const sluice_retry_policy *retry) {
    now_ns = 1000 * SECOND;
    clock_set_fake_ns(now_ns);
    const sluice_client_options options = {
        .size = sizeof(options), .url = url, .max_connections = max_connections, .retry = retry};
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
}

static void open_http(const sluice_retry_policy *retry) {
    peer_open(&peer, false);
    open_client(peer.url, retry);
}

static void close_http(void) {
    sluice_client_close(client);
    peer_close(&peer);
    clock_set_fake_ns(0);
}

static void advance_clock(uint64_t ns) {
    now_ns += ns;
    clock_set_fake_ns(now_ns);
}

static sluice_call *start_with(const sluice_call_options *options) {
    sluice_call *call;
    if (sluice_client_start_unload(client, "m", options, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return call;
}

static sluice_call *start(void) {
    return start_with(NULL);
}

static void expect(const sluice_call *call, sluice_client_status status, const char *says) {
    test_expect(&error, client_step_until_blocked(client, call, &error), status, says);
}

/* The request has come. */
static void receive(const sluice_call *call) {
    expect(call, SLUICE_CLIENT_PENDING, "");
    (void)peer_accept(&peer);
    peer.n_in = 0;
    assert_true(peer_read(&peer) > 0);
    assert_memory_equal(peer.in, "POST /v2/repository/models/m/unload HTTP/1.1\r\n", 46);
}

static void answer(const char *text) {
    peer_send(&peer, text, strlen(text));
}

static const char *header(const sluice_call *call, const char *name) {
    sluice_header out = {.size = sizeof(out)};
    return sluice_call_find_header(call, name, &out) == SLUICE_CLIENT_OK ? out.value : "";
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static void retry_after_a_listed_status(void **state) {
    (void)state;
    open_http(&LISTED);
    sluice_call *call = start();
    receive(call);
    answer(BUSY);
    expect(call, SLUICE_CLIENT_PENDING, "");
    assert_true(sluice_client_timeout_ns(client) == 2 * SECOND);
    assert_null(sluice_client_next_done(client));
    assert_string_equal(header(call, "Retry-After"), "");
    assert_int_equal(peer_read(&peer), 0);
    advance_clock(2 * SECOND);
    receive(call);
    answer(GOOD);
    expect(call, SLUICE_CLIENT_OK, "");
    assert_ptr_equal(sluice_client_next_done(client), call);
    assert_string_equal(header(call, "Content-Length"), "0");
    sluice_call_free(call);
    close_http();
}

static void retry_ends_with_the_last_error(void **state) {
    (void)state;
    open_http(&LISTED);
    sluice_call *call = start();
    for (int i = 0; i < 3; i++) {
        receive(call);
        answer(BUSY);
        expect(call, i < 2 ? SLUICE_CLIENT_PENDING : SLUICE_CLIENT_SERVER_ERROR, "");
        advance_clock(2 * SECOND);
    }
    assert_true(error.http_status == 503 && error.may_have_run == 1);
    assert_string_equal(header(call, "Retry-After"), "2");
    sluice_call_free(call);
    const sluice_call_options short_one = {.size = sizeof(short_one), .timeout_ns = 2 * SECOND};
    call = start_with(&short_one); /* its deadline is not later than the next attempt */
    receive(call);
    answer(BUSY);
    expect(call, SLUICE_CLIENT_SERVER_ERROR, "");
    sluice_call_free(call);
    close_http();
}

static void retry_connects_when_the_server_is_back(void **state) {
    (void)state;
    static const sluice_retry_policy retry = {.size = sizeof(retry), .max_attempts = 9};
    open_http(&retry);
    close(peer.listener);
    sluice_call *call = start();
    for (int i = 0; i < 3; i++) {
        expect(call, SLUICE_CLIENT_PENDING, "");
        assert_in_range(sluice_client_timeout_ns(client), 50000000u << i, 100000000u << i);
        advance_clock(SECOND);
    }
    unlink(peer.address.sun_path);
    peer_listen(&peer, 16);
    receive(call);
    answer(GOOD);
    expect(call, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
    close_http();
}

static void retry_of_what_may_have_run_must_be_allowed(void **state) {
    (void)state;
    static const sluice_retry_policy repeats = {
        .size = sizeof(repeats), .max_attempts = 2, .may_repeat = 1};
    const sluice_call_options allows = {.size = sizeof(allows), .retry = &repeats};
    open_http(&LISTED);
    sluice_call *call = start();
    receive(call);
    peer_disconnect(&peer);
    expect(call, SLUICE_CLIENT_CLOSED, "");
    sluice_call_free(call);
    call = start_with(&allows);
    receive(call);
    peer_disconnect(&peer);
    expect(call, SLUICE_CLIENT_PENDING, "");
    advance_clock(SECOND);
    receive(call);
    answer(GOOD);
    expect(call, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
    /* the first attempt may have run, whatever becomes of the second */
    call = start_with(&allows);
    receive(call);
    close(peer.listener);
    peer_disconnect(&peer);
    expect(call, SLUICE_CLIENT_PENDING, "");
    advance_clock(SECOND);
    expect(call, SLUICE_CLIENT_CONNECT, "refused");
    assert_int_equal(error.may_have_run, 1);
    sluice_call_free(call);
    unlink(peer.address.sun_path);
    peer_listen(&peer, 16);
    close_http();
}

/* The deadline passes while the second attempt waits for a connection: the first may have run. */
static void retry_that_waits_for_a_connection_times_out(void **state) {
    (void)state;
    static const sluice_retry_policy repeats = {.size = sizeof(repeats), .may_repeat = 1};
    const sluice_call_options allows = {
        .size = sizeof(allows), .timeout_ns = 2 * SECOND, .retry = &repeats};
    max_connections = 1;
    open_http(NULL);
    max_connections = 0;
    sluice_call *call = start_with(&allows);
    receive(call);
    peer_disconnect(&peer);
    expect(call, SLUICE_CLIENT_PENDING, "");
    sluice_call *other = start(); /* it gets the connection during the pause */
    receive(other);
    advance_clock(SECOND);
    expect(call, SLUICE_CLIENT_PENDING, "");
    advance_clock(2 * SECOND);
    expect(call, SLUICE_CLIENT_TIMEOUT, "waiting for one of 1 connections");
    assert_int_equal(error.may_have_run, 1);
    answer(GOOD);
    expect(other, SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
    sluice_call_free(other);
    close_http();
}

static void retry_is_off_unless_set(void **state) {
    (void)state;
    static const sluice_retry_policy off = {.size = sizeof(off), .max_attempts = 1};
    const sluice_call_options without = {.size = sizeof(without), .retry = &off};
    open_http(NULL);
    sluice_call *call = start();
    receive(call);
    answer(BUSY);
    expect(call, SLUICE_CLIENT_SERVER_ERROR, "");
    sluice_call_free(call);
    close_http();
    open_http(&LISTED);
    call = start_with(&without);
    receive(call);
    answer(BUSY);
    expect(call, SLUICE_CLIENT_SERVER_ERROR, "");
    sluice_call_free(call);
    const sluice_retry_policy bad = {.max_attempts = 1};
    const sluice_call_options with_bad = {.size = sizeof(with_bad), .retry = &bad};
    assert_int_equal(sluice_client_start_unload(client, "m", &with_bad, &call, &error),
                     SLUICE_CLIENT_INVALID);
    close_http();
}

static void retry_pause_is_cancelled(void **state) {
    (void)state;
    open_http(&LISTED);
    for (int how = 0; how < 3; how++) {
        sluice_call *call = start();
        receive(call);
        answer(BUSY);
        expect(call, SLUICE_CLIENT_PENDING, "");
        if (how == 0) {
            sluice_call_cancel(call);
            assert_int_equal(sluice_call_status(call, &error), SLUICE_CLIENT_CANCELLED);
            assert_int_equal(error.may_have_run, 1);
        }
        if (how < 2) {
            sluice_call_free(call);
            assert_true(sluice_client_timeout_ns(client) == UINT64_MAX);
            assert_int_equal(sluice_client_wait(client, 0), SLUICE_CLIENT_NOT_FOUND);
        }
    }
    close_http(); /* while the last one is paused */
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

static void retry_over_grpc(void **state) {
    (void)state;
    static const struct h2_field OVERLOADED[] = {
        {":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "14"}};
    h2_peer_open(&side);
    open_client(side.url, &LISTED);
    sluice_call *call = start();
    for (size_t i = 0; i < 2; i++) {
        h2_peer_settle(&side, client);
        assert_int_equal(side.n_requests, i + 1);
        h2_answer(&side.requests[i], OVERLOADED, 3, "", 0, NULL, 0);
        h2_peer_settle(&side, client);
        assert_int_equal(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING);
        assert_in_range(sluice_client_timeout_ns(client), 50000000u << i, 100000000u << i);
        advance_clock(SECOND);
    }
    h2_peer_settle(&side, client);
    assert_string_equal(h2_request_field(&side.requests[2], "grpc-timeout"), "58000000u");
    h2_answer_ok(&side.requests[2], "\0\0\0\0\0", 5);
    h2_peer_settle(&side, client);
    assert_int_equal(sluice_call_status(call, &error), SLUICE_CLIENT_OK);
    assert_int_equal(side.n_conns, 1);
    sluice_call_free(call);
    sluice_client_close(client);
    h2_peer_close(&side);
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry_after_a_listed_status),
        cmocka_unit_test(retry_ends_with_the_last_error),
        cmocka_unit_test(retry_connects_when_the_server_is_back),
        cmocka_unit_test(retry_of_what_may_have_run_must_be_allowed),
        cmocka_unit_test(retry_that_waits_for_a_connection_times_out),
        cmocka_unit_test(retry_is_off_unless_set),
        cmocka_unit_test(retry_pause_is_cancelled),
        cmocka_unit_test(retry_over_grpc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
