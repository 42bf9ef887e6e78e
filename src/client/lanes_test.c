/* Several calls of a client at once: which connection each gets, the order of the others, and what
 * the caller is told when they end. The server's side is in the test's thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_peer.h"

enum { MAX_CONNECTIONS = 8 };

/* The server's ends, in the order in which they were accepted. */
static struct {
    struct peer peer;
    int fds[MAX_CONNECTIONS];
    size_t n;
} side;

static sluice_client *client;
static sluice_client_error error = {.size = sizeof(error)};

static void open_client(uint32_t max_connections) {
    peer_open(&side.peer, true);
    side.n = 0;
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = side.peer.url,
                                           .timeout_ns = TEST_TIMEOUT_NS,
                                           .max_connections = max_connections};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
}

static void close_client(void) {
    sluice_client_close(client);
    for (size_t i = 0; i < side.n; i++) {
        close(side.fds[i]);
    }
    peer_close(&side.peer);
}

static void expect(const sluice_call *call, sluice_client_status status, const char *says) {
    test_expect(&error, sluice_call_status(call, &error), status, says);
}

static sluice_call *start_with(const sluice_call_options *options) {
    sluice_call *call;
    assert_int_equal(sluice_client_start_ping(client, options, &call, &error), SLUICE_CLIENT_OK);
    return call;
}

static sluice_call *start(void) {
    return start_with(NULL);
}

/* Steps until the client would block, and accepts its connections. */
static void settle(void) {
    do {
        sluice_client_step(client);
    } while (client_is_ready(client, 0));
    struct pollfd fd = {.fd = side.peer.listener, .events = POLLIN};
    while (poll(&fd, 1, 0) > 0) {
        assert_true(side.n < MAX_CONNECTIONS);
        side.fds[side.n] = accept(side.peer.listener, NULL, NULL);
        assert_true(side.fds[side.n++] >= 0);
    }
}

/* Reads the pings that a connection has. Returns: their number; -1: it was closed. */
static int n_requests(size_t index) {
    char bytes[256];
    ssize_t n = recv(side.fds[index], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    assert_true(n <= 0 || n % 8 == 0);
    return n <= 0 ? -1 : (int)(n / 8);
}

static void answer(size_t index) {
    assert_int_equal(send(side.fds[index], "\0\1\1\0\0\0\0\0", 8, MSG_NOSIGNAL), 8);
}

/* Answers each request that has come. Returns: their number. */
static int answer_all(void) {
    int n = 0;
    for (size_t i = 0; i < side.n; i++) {
        if (n_requests(i) > 0) {
            answer(i);
            n++;
        }
    }
    settle();
    return n;
}

/* ---- connections and order ------------------------------------------------------------------- */

static void lanes_calls_run_side_by_side(void **state) {
    (void)state;
    sluice_call *calls[5];
    open_client(3);
    for (size_t i = 0; i < 5; i++) {
        calls[i] = start();
        expect(calls[i], SLUICE_CLIENT_PENDING, "");
    }
    assert_true(sluice_client_timeout_ns(client) == 0);
    settle();
    assert_int_equal(side.n, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(n_requests(i), 1);
    }
    assert_null(sluice_client_next_done(client));
    answer(1); /* the second call is done first, and the fourth gets its connection */
    settle();
    assert_ptr_equal(sluice_client_next_done(client), calls[1]);
    assert_null(sluice_client_next_done(client));
    expect(calls[1], SLUICE_CLIENT_OK, "");
    assert_int_equal(n_requests(1), 1);
    answer(0);
    settle();
    answer(2);
    settle();
    assert_ptr_equal(sluice_client_next_done(client), calls[0]);
    assert_ptr_equal(sluice_client_next_done(client), calls[2]);
    assert_int_equal(n_requests(0), 1);
    assert_int_equal(n_requests(2), 0);
    expect(calls[3], SLUICE_CLIENT_PENDING, "");
    answer(0);
    answer(1);
    assert_int_equal(sluice_call_wait(calls[3], &error), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_wait(calls[4], &error), SLUICE_CLIENT_OK);
    assert_null(sluice_client_next_done(client)); /* they were waited for */
    assert_int_equal(side.n, 3);
    for (size_t i = 0; i < 5; i++) {
        sluice_call_free(calls[i]);
    }
    close_client();
}

/* One after the other: one connection, however many there may be. */
static void lanes_sequential_calls_share_a_connection(void **state) {
    (void)state;
    open_client(0);
    for (int i = 0; i < 5; i++) {
        sluice_call *call = start();
        settle();
        assert_int_equal(side.n, 1);
        assert_int_equal(n_requests(0), 1);
        answer(0);
        assert_int_equal(sluice_call_wait(call, &error), SLUICE_CLIENT_OK);
        sluice_call_free(call);
    }
    close_client();
}

/* Without max_connections there are eight. */
static void lanes_default_is_bounded(void **state) {
    (void)state;
    sluice_call *calls[20];
    open_client(0);
    for (size_t i = 0; i < 20; i++) {
        calls[i] = start();
    }
    settle();
    assert_int_equal(side.n, 8);
    for (size_t i = 0; i < 20; i++) {
        if (i >= 8) {
            settle();
        }
        answer(i % 8);
    }
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(sluice_call_wait(calls[i], &error), SLUICE_CLIENT_OK);
    }
    close_client();
}

static void lanes_cancelled_calls_make_room(void **state) {
    (void)state;
    sluice_call *calls[4];
    open_client(1);
    for (size_t i = 0; i < 4; i++) {
        calls[i] = start();
    }
    settle();
    assert_int_equal(n_requests(0), 1);
    sluice_call_cancel(calls[1]); /* it is in the queue */
    expect(calls[1], SLUICE_CLIENT_CANCELLED, "cancelled");
    assert_int_equal(error.may_have_run, 0);
    sluice_call_cancel(calls[0]); /* it is running: its connection is closed */
    expect(calls[0], SLUICE_CLIENT_CANCELLED, "cancelled");
    assert_int_equal(error.may_have_run, 1);
    assert_int_equal(n_requests(0), -1);
    settle();
    assert_int_equal(side.n, 2);
    assert_int_equal(n_requests(1), 1);
    sluice_call_free(calls[3]); /* in the queue */
    answer(1);
    settle();
    assert_ptr_equal(sluice_client_next_done(client), calls[2]);
    assert_null(sluice_client_next_done(client));
    assert_int_equal(n_requests(1), 0);
    close_client(); /* with three calls that are not freed */
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Connections that the server closes fail their calls only; those in the queue get new ones. */
static void lanes_lost_connections_fail_their_calls(void **state) {
    (void)state;
    sluice_call *calls[4];
    open_client(2);
    for (size_t i = 0; i < 4; i++) {
        calls[i] = start();
    }
    settle();
    assert_int_equal(side.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(n_requests(i), 1);
        close(side.fds[i]);
    }
    side.n = 0;
    settle();
    expect(calls[0], SLUICE_CLIENT_CLOSED, "without an answer");
    expect(calls[1], SLUICE_CLIENT_CLOSED, "without an answer");
    assert_int_equal(side.n, 2);
    answer(0);
    answer(1);
    settle();
    expect(calls[2], SLUICE_CLIENT_OK, "");
    expect(calls[3], SLUICE_CLIENT_OK, "");
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(sluice_client_next_done(client));
    }
    close_client();
}

/* The deadline counts from the start, also in the queue. */
static void lanes_queued_call_times_out(void **state) {
    (void)state;
    const sluice_call_options soon = {.size = sizeof(soon), .timeout_ns = 1};
    open_client(1);
    sluice_call *first = start();
    settle();
    sluice_call *second = start_with(&soon);
    sluice_call *third = start();
    assert_int_equal(sluice_call_wait(second, &error), SLUICE_CLIENT_TIMEOUT);
    assert_non_null(strstr(error.text, "waiting for one of 1 connections"));
    assert_int_equal(error.may_have_run, 0);
    assert_int_equal(n_requests(0), 1);
    answer(0);
    assert_int_equal(sluice_call_wait(first, &error), SLUICE_CLIENT_OK);
    settle();
    answer(0);
    assert_int_equal(sluice_call_wait(third, &error), SLUICE_CLIENT_OK);
    assert_int_equal(side.n, 1);
    close_client();
}

/* A connection that ends between calls is closed, and its end not reported again and again. */
static void lanes_idle_connection_that_ends_is_closed(void **state) {
    (void)state;
    open_client(2);
    sluice_call *first = start(), *second = start();
    settle();
    answer(0);
    answer(1);
    settle();
    expect(first, SLUICE_CLIENT_OK, "");
    expect(second, SLUICE_CLIENT_OK, "");
    answer(0); /* an answer without a request */
    shutdown(side.fds[1], SHUT_WR);
    settle();
    assert_false(client_is_ready(client, 0));
    assert_int_equal(n_requests(0), 1);
    assert_int_equal(n_requests(0), -1);
    assert_int_equal(n_requests(1), 1);
    assert_int_equal(n_requests(1), -1);
    sluice_call *third = start();
    settle();
    assert_int_equal(side.n, 3);
    answer(2);
    assert_int_equal(sluice_call_wait(third, &error), SLUICE_CLIENT_OK);
    close_client();
}

static void lanes_transport_has_one_connection(void **state) {
    (void)state;
    static const sluice_client_transport transport = {.size = sizeof(transport)};
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = "tcp://127.0.0.1:1",
                                           .transport = &transport,
                                           .max_connections = 2};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
    assert_non_null(strstr(error.text, "max_connections"));
}

/* ---- being told ------------------------------------------------------------------------------ */

struct told {
    int n, n_left;      /* calls that ended; calls to start in callbacks */
    sluice_call *other; /* to be freed in a callback */
};

static void on_done(sluice_call *call, void *user) {
    struct told *told = user;
    const sluice_call_options options = {.size = sizeof(options), .on_done = on_done, .user = user};
    assert_ptr_equal(sluice_call_user(call), told);
    expect(call, SLUICE_CLIENT_OK, "");
    told->n++;
    sluice_call_free(call);
    sluice_call_free(told->other);
    told->other = NULL;
    if (told->n_left > 0) {
        told->n_left--;
        (void)start_with(&options);
    }
}

/* A callback frees its call and another one, and starts the next. */
static void lanes_callbacks_may_start_and_free_calls(void **state) {
    (void)state;
    struct told told = {.n_left = 3};
    const sluice_call_options options = {
        .size = sizeof(options), .on_done = on_done, .user = &told};
    open_client(2);
    (void)start_with(&options);
    told.other = start_with(&options);
    settle();
    assert_int_equal(answer_all(), 2); /* both are done in one step; the first frees the second */
    assert_int_equal(told.n, 1);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(answer_all(), 1);
        assert_int_equal(told.n, i + 1);
    }
    assert_null(sluice_client_next_done(client));
    sluice_call *call = start_with(&options);
    sluice_call_free(call); /* not told: the caller ended it */
    settle();
    assert_int_equal(told.n, 4);
    close_client();
}

static void lanes_wait_returns_when_a_call_is_done(void **state) {
    (void)state;
    open_client(2);
    assert_int_equal(sluice_client_wait(client, UINT64_MAX), SLUICE_CLIENT_NOT_FOUND);
    sluice_call *first = start(), *second = start();
    assert_int_equal(sluice_client_wait(client, 1), SLUICE_CLIENT_PENDING);
    assert_int_equal(sluice_client_wait(client, 0), SLUICE_CLIENT_PENDING);
    settle();
    answer(1);
    assert_int_equal(sluice_client_wait(client, UINT64_MAX), SLUICE_CLIENT_OK);
    assert_ptr_equal(sluice_client_next_done(client), second);
    answer(0);
    assert_int_equal(sluice_client_wait(client, UINT64_MAX), SLUICE_CLIENT_OK);
    assert_ptr_equal(sluice_client_next_done(client), first);
    assert_int_equal(sluice_client_wait(client, UINT64_MAX), SLUICE_CLIENT_NOT_FOUND);
    assert_null(sluice_call_user(first));
    close_client();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_calls_run_side_by_side),
        cmocka_unit_test(lanes_sequential_calls_share_a_connection),
        cmocka_unit_test(lanes_default_is_bounded),
        cmocka_unit_test(lanes_cancelled_calls_make_room),
        cmocka_unit_test(lanes_lost_connections_fail_their_calls),
        cmocka_unit_test(lanes_queued_call_times_out),
        cmocka_unit_test(lanes_idle_connection_that_ends_is_closed),
        cmocka_unit_test(lanes_transport_has_one_connection),
        cmocka_unit_test(lanes_callbacks_may_start_and_free_calls),
        cmocka_unit_test(lanes_wait_returns_when_a_call_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
