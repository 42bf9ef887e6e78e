/* Deadlines, with a clock that the test sets: no test waits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <fcntl.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_peer.h"
#include "sluice/client_mip.h"

#define SECOND UINT64_C(1000000000)
#define TOTAL (60 * SECOND)
#define CONNECT (10 * SECOND)
#define IDLE (3 * SECOND)

/* ---- the clock ------------------------------------------------------------------------------- */

static uint64_t now_ns = 1000 * SECOND;

/* Replaces libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *out) {
    (void)clock;
    *out =
        (struct timespec){.tv_sec = (time_t)(now_ns / SECOND), .tv_nsec = (long)(now_ns % SECOND)};
    return 0;
}

/* ---- the client ------------------------------------------------------------------------------ */

static struct peer peer;
static sluice_client *client;
static sluice_call *call;
static sluice_client_error error = {.size = sizeof(error)};

static void open_at(const char *url, uint64_t idle_ns) {
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = url,
                                           .connect_timeout_ns = CONNECT,
                                           .idle_timeout_ns = idle_ns,
                                           .timeout_ns = TOTAL};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
}

static void open_client(bool mip, uint64_t idle_ns) {
    peer_open(&peer, mip);
    open_at(peer.url, idle_ns);
}

static void close_client(void) {
    sluice_client_close(client);
    peer_close(&peer);
}

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
    memset(&error, 0x55, sizeof(error));
    error.size = sizeof(error);
}

/* The call times out after `ns`, not before. */
static void check_deadline(uint64_t ns, const char *says) {
    assert_true(sluice_client_timeout_ns(client) == ns);
    now_ns += ns - 1;
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    assert_true(sluice_client_timeout_ns(client) == 1);
    now_ns += 1;
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_TIMEOUT, says);
    assert_true(sluice_client_timeout_ns(client) == UINT64_MAX);
    sluice_call_free(call);
}

/* The answer to a ping. */
static const char pong[8] = {0, 1, 1, 0, 0, 0, 0, 0};

/* Starts a ping and sends it. */
static void begin(void) {
    expect(sluice_client_start_ping(client, NULL, &call, &error), SLUICE_CLIENT_OK, "");
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    (void)peer_accept(&peer);
    assert_true(peer_read(&peer) > 0);
}

static void good_call(void) {
    begin();
    peer_send(&peer, pong, sizeof(pong));
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_OK, "");
    sluice_call_free(call);
}

/* ---- total timeout --------------------------------------------------------------------------- */

static void deadline_total_without_answer_times_out(void **state) {
    (void)state;
    open_client(true, 0);
    begin();
    check_deadline(TOTAL, "timed out waiting for /tmp/");
    good_call();
    now_ns += 10 * TOTAL; /* no deadline runs between calls */
    begin();
    check_deadline(TOTAL, "after 60 s");
    close_client();
}

/* Received bytes do not extend it. */
static void deadline_total_within_answer_times_out(void **state) {
    (void)state;
    open_client(true, 0);
    begin();
    for (int i = 0; i < 7; i++) {
        now_ns += SECOND;
        peer_send(&peer, &pong[i], 1);
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
    }
    check_deadline(TOTAL - 7 * SECOND, "timed out reading the answer of");
    good_call();
    close_client();
}

/* An answer received before the deadline is checked is accepted. */
static void deadline_passed_with_answer_received_succeeds(void **state) {
    (void)state;
    open_client(true, IDLE);
    begin();
    now_ns += 2 * TOTAL;
    peer_send(&peer, pong, sizeof(pong));
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_OK, "");
    close_client();
}

static void deadline_per_call_overrides_default(void **state) {
    (void)state;
    static const uint64_t limits[] = {5, SECOND, TOTAL, 2 * TOTAL, UINT64_MAX / 2};
    sluice_call_options options = {.size = sizeof(options)};
    open_client(true, 0);
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        uint64_t was_ns = now_ns;
        options.timeout_ns = limits[i];
        expect(sluice_client_start_ping(client, &options, &call, &error), SLUICE_CLIENT_OK, "");
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        check_deadline(limits[i], "timed out waiting for");
        now_ns = was_ns;
        good_call();
    }
    /* beyond the range of the clock */
    options.timeout_ns = UINT64_MAX;
    expect(sluice_client_start_ping(client, &options, &call, &error), SLUICE_CLIENT_OK, "");
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    close_client();
}

/* A retry is part of the same call. */
static void deadline_total_includes_retry(void **state) {
    (void)state;
    open_client(true, 0);
    good_call();
    begin();
    now_ns += 20 * SECOND;
    peer_disconnect(&peer);
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    assert_true(peer_accept(&peer));
    check_deadline(TOTAL - 20 * SECOND, "timed out waiting for");
    close_client();
}

/* The server's error is known already: a missing payload does not matter. */
static void deadline_after_error_header_returns_error(void **state) {
    (void)state;
    open_client(true, IDLE);
    begin();
    peer_send(&peer, "\0\0\4\0\0\0\0\5xx", 10);
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    now_ns += IDLE;
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_SERVER_ERROR,
           "MIP error 4, SHAPE");
    peer_read(&peer);
    assert_true(peer.ended);
    good_call();
    close_client();
}

/* ---- idle timeout ---------------------------------------------------------------------------- */

static void deadline_idle_without_answer_times_out(void **state) {
    (void)state;
    open_client(true, IDLE);
    begin();
    check_deadline(IDLE, "timed out waiting for");
    good_call();
    begin();
    check_deadline(IDLE, "after 3 s without a byte");
    close_client();
}

/* Each byte restarts it. */
static void deadline_idle_restarts_with_each_byte(void **state) {
    (void)state;
    open_client(true, IDLE);
    begin();
    for (int i = 0; i < 7; i++) {
        now_ns += IDLE - 1;
        peer_send(&peer, &pong[i], 1);
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
    }
    check_deadline(IDLE, "timed out reading the answer of");
    close_client();
}

/* A server that reads nothing, then a little, then nothing. */
static void deadline_idle_within_request_times_out(void **state) {
    (void)state;
    static char large[4 << 20];
    const sluice_mip_item item = {.size = sizeof(sluice_mip_item),
                                  .type = SLUICE_MIP_IMAGE,
                                  .data = large,
                                  .n_bytes = sizeof(large)};
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &item, .n_inputs = 1, .batch = 1};
    open_client(true, IDLE);
    expect(sluice_client_start_mip_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK,
           "");
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    assert_true(peer_accept(&peer));
    now_ns += IDLE - 1;
    assert_true(peer_read(&peer) > 0);
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    check_deadline(IDLE, "timed out sending to");
    good_call();
    close_client();
}

/* ---- connect timeout ------------------------------------------------------------------------- */

enum { MAX_FILLERS = 16 };

struct fillers {
    int fds[MAX_FILLERS];
    int n;
};

/* Connects until the backlog is full. */
static void fill_queue(struct fillers *fillers, int family, const void *address,
                       socklen_t n_bytes) {
    for (fillers->n = 0; fillers->n < MAX_FILLERS; fillers->n++) {
        int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        fillers->fds[fillers->n] = fd;
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        bool taken = connect(fd, address, n_bytes) == 0;
        if (!taken && (errno == EAGAIN || poll(&ready, 1, 100) == 0)) {
            fillers->n++;
            return;
        }
    }
    fail_msg("the queue is never full");
}

static void close_fillers(struct fillers *fillers) {
    while (fillers->n > 0) {
        close(fillers->fds[--fillers->n]);
    }
}

/* A full backlog of a Unix socket has no event: connecting is retried. */
static void deadline_connect_with_full_unix_backlog_retries(void **state) {
    (void)state;
    struct fillers fillers;
    open_client(true, 0);
    assert_int_equal(listen(peer.listener, 0), 0);
    fill_queue(&fillers, AF_UNIX, &peer.address, sizeof(peer.address));
    for (int times_out = 1; times_out >= 0; times_out--) {
        uint64_t until_ns = now_ns + CONNECT;
        expect(sluice_client_start_ping(client, NULL, &call, &error), SLUICE_CLIENT_OK, "");
        for (int i = 0; i < 20; i++) {
            expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
                   "not done yet");
            uint64_t timeout_ns = sluice_client_timeout_ns(client);
            assert_true(timeout_ns > 0 && timeout_ns < SECOND);
            now_ns += timeout_ns;
        }
        if (times_out) {
            now_ns = until_ns;
            expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_TIMEOUT,
                   "timed out connecting to");
        }
    }
    close_fillers(&fillers);
    (void)peer_accept(&peer);
    now_ns += SECOND;
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    assert_true(peer_accept(&peer));
    peer_send(&peer, pong, sizeof(pong));
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_OK, "");
    close_client();
}

/* A TCP server that does not accept; cancelled, and timed out. */
static void deadline_connect_without_accept_times_out(void **state) {
    (void)state;
    struct fillers fillers;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    char url[64];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, n_bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &n_bytes), 0);
    fill_queue(&fillers, AF_INET, &address, n_bytes);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    open_at(url, IDLE); /* the idle timeout starts after connecting */
    for (int i = 0; i < 2; i++) {
        expect(sluice_client_start_ping(client, NULL, &call, &error), SLUICE_CLIENT_OK, "");
        for (int k = 0; k < 3; k++) { /* additional steps are harmless */
            sluice_client_step(client);
            expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "not done yet");
        }
        assert_false(client_is_ready(client, 0));
        if (i == 0) {
            sluice_call_free(call);
        } else {
            check_deadline(CONNECT, "timed out connecting to 127.0.0.1:");
        }
    }
    sluice_client_close(client);
    close_fillers(&fillers);
    close(listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadline_total_without_answer_times_out),
        cmocka_unit_test(deadline_total_within_answer_times_out),
        cmocka_unit_test(deadline_passed_with_answer_received_succeeds),
        cmocka_unit_test(deadline_per_call_overrides_default),
        cmocka_unit_test(deadline_total_includes_retry),
        cmocka_unit_test(deadline_after_error_header_returns_error),
        cmocka_unit_test(deadline_idle_without_answer_times_out),
        cmocka_unit_test(deadline_idle_restarts_with_each_byte),
        cmocka_unit_test(deadline_idle_within_request_times_out),
        cmocka_unit_test(deadline_connect_with_full_unix_backlog_retries),
        cmocka_unit_test(deadline_connect_without_accept_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
