/* The MIP server at its limits: peers that send too much, are too slow, or disconnect. Each case
 * ends with the fixture's leak checks. Timeouts are the server's limits, as short as a test needs;
 * no test measures time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "net/server/mip/server_fixture.h"
#include "net/server/shutdown.h"

#define TEXT(literal)                                                                              \
    { literal, sizeof(literal) - 1 }

/* SHORT_NS where the timeout is to end it, LONG_NS where a client keeps it on a busy machine. */
static const uint64_t SHORT_NS = 50000000, LONG_NS = 600000000;

/* Sends the header of an inference with a payload of this size. */
static void announce(int fd, uint32_t n_bytes) {
    char bytes[MIP_HEADER_BYTES];
    mip_header_encode(&(struct mip_header){.kind = MIP_INFER, .n_bytes = n_bytes}, bytes);
    test_send(fd, str_make(bytes, sizeof(bytes)));
}

/* Sends a whole inference of one item, of zeros. */
static bool send_infer(int fd, uint32_t n_bytes) {
    const struct mip_item item = {MIP_TEXT, {NULL, n_bytes - 12}};
    char head[MIP_ITEM_HEAD_BYTES];
    mip_item_head_encode(&item, head);
    announce(fd, n_bytes);
    return test_try_send(fd, "\1\0\0\1", 4) && test_try_send(fd, head, sizeof(head)) &&
           test_send_zeros(fd, n_bytes - 12);
}

/* Reads the response to it, except its bytes. */
static void expect_infer(int fd, uint32_t n_bytes) {
    char *answer = malloc(MIP_HEADER_BYTES + (size_t)n_bytes);
    struct mip_header header;
    assert_non_null(answer);
    assert_int_equal(test_read(fd, answer, MIP_HEADER_BYTES + (size_t)n_bytes),
                     MIP_HEADER_BYTES + (size_t)n_bytes);
    mip_header_decode(answer, &header);
    assert_int_equal(header.kind, MIP_INFER);
    assert_int_equal(header.subtype, MIP_RESPONSE);
    assert_int_equal(header.n_bytes, n_bytes);
    free(answer);
}

static void wait_for_metric(enum metric metric, int64_t value) {
    while (metric_read(metric) < value) {
        usleep(1000);
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void payload_too_large_is_refused_before_allocation(void **state) {
    (void)state;
    static const uint32_t SIZES[] = {UINT32_MAX, 1 << 30, (16 << 20) + 1};
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        int fd = test_connect(&mip);
        announce(fd, SIZES[i]);
        test_expect(fd, STR(MEMORY));
        assert_int_equal(metric_read(METRIC_ARENAS), 0);
        assert_int_equal(metric_read(METRIC_BODY_BYTES_IN_FLIGHT), 0);
        assert_true(test_is_closed(fd)); /* half-closed: the payload may still come */
        close(fd);
    }
    test_is_well(&mip);
    test_mip_stop(&mip);
}

static void payload_refused_small_is_skipped(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.max_body_size = 1000;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip);
    for (uint32_t size = 1001; size <= 65536; size += 64535) {
        announce(fd, size);
        test_expect(fd, STR(MEMORY)); /* before the payload arrives */
        assert_true(test_send_zeros(fd, size));
        test_ask(fd, STR(PING), STR(PONG));
    }
    announce(fd, 65537); /* more than is skipped */
    test_expect(fd, STR(MEMORY));
    assert_true(test_is_closed(fd));
    close(fd);
    test_mip_stop(&mip);
}

static void payload_refused_peer_still_sending_reads_error(void **state) {
    (void)state;
    static const struct {
        struct str head, answer;
    } ROWS[] = {
        {TEXT(HEAD("\2", "\0", "\x12\xc0\0\0")), TEXT(MEMORY)},
        {TEXT(HEAD("\3", "\0", "\x12\xc0\0\0")), TEXT(METHOD)},
        {TEXT("\1\2\0\0\x12\xc0\0\0"), TEXT(PROTOCOL)},
    };
    enum { BYTES = 0x12c00000 };
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        int fd = test_connect(&mip);
        test_send(fd, ROWS[i].head);
        assert_true(test_send_zeros(fd, BYTES)); /* reads nothing until all is sent */
        test_expect(fd, ROWS[i].answer);
        assert_true(test_is_closed(fd));
        close(fd);
    }
    test_mip_stop(&mip);
}

static void discard_past_limit_closes_connection(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.discard_size = 1 << 20;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip);
    announce(fd, 1000000000);
    assert_false(test_send_zeros(fd, 1000000000));
    close(fd);
    test_is_well(&mip);
    test_mip_stop(&mip);
}

static void body_memory_exhausted_gets_error_memory(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.body_memory = 1 << 20;
    test_mip_start_with(&mip, &limits, budget, "127.0.0.1:0");
    int promises[8];
    for (int i = 0; i < 8; i++) { /* an announced size alone reserves no memory */
        promises[i] = test_connect(&mip);
        announce(promises[i], 900000);
    }
    wait_for_metric(METRIC_REQUESTS_IN_FLIGHT, 8);
    int fd = test_connect(&mip);
    assert_true(send_infer(fd, 1000000));
    expect_infer(fd, 1000000);
    announce(fd, 3000000); /* larger than any memory */
    test_expect(fd, STR(MEMORY));
    close(fd);

    /* Two payloads start; the budget suffices for one of them. */
    int64_t before = metric_read(METRIC_BODY_BYTES_TOTAL);
    assert_true(test_send_zeros(promises[0], 800000));
    wait_for_metric(METRIC_BODY_BYTES_TOTAL, before + 800000);
    assert_true(test_send_zeros(promises[1], 900000));
    test_expect(promises[1], STR(MEMORY));
    assert_true(test_is_closed(promises[1])); /* most of its payload was still to come */
    fd = test_connect(&mip);
    announce(fd, 900000); /* a third one is refused at once */
    test_expect(fd, STR(MEMORY));
    close(fd);
    for (int i = 0; i < 8; i++) {
        close(promises[i]);
    }
    test_is_well(&mip);
    test_mip_stop(&mip);
}

static void request_memory_exhausted_gets_error_memory(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.request_memory = 12000;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip);
    assert_true(send_infer(fd, 15000));
    test_expect(fd, STR(MEMORY));
    test_ask(fd, STR(ASK("hello")), STR(TOLD("HELLO")));
    close(fd);
    test_mip_stop(&mip);
}

static void connection_over_limit_gets_error_internal(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.max_connections = 2;
    test_mip_start_with(&mip, &limits, budget, "127.0.0.1:0");
    int fds[2] = {test_connect(&mip), test_connect(&mip)};
    static const char request[] = PING ASK("hello"); /* it is open until its last byte is sent */
    for (int i = 0; i < 2; i++) {
        test_ask(fds[i], str_make(request, sizeof(request) - 2), STR(PONG));
    }
    int fd = test_connect(&mip);
    test_expect(fd, STR(INTERNAL)); /* without a request */
    assert_true(test_is_closed(fd));
    close(fd);
    for (int i = 0; i < 2; i++) {
        test_ask(fds[i], str_make(request + sizeof(request) - 2, 1), STR(TOLD("HELLO")));
        test_ask(fds[i], STR(PING), STR(PONG));
    }
    char got[sizeof(PONG) - 1] = "";
    while (memcmp(got, PONG, sizeof(got)) != 0) { /* as long as none is idle for its worker */
        fd = test_connect(&mip);                  /* takes the place of an idle one */
        test_send(fd, STR(PING));
        assert_int_equal(test_read(fd, got, sizeof(got)), sizeof(got));
        close(fd);
    }
    char byte;
    while (recv(fds[0], &byte, 1, MSG_DONTWAIT) != 0 && recv(fds[1], &byte, 1, MSG_DONTWAIT) != 0) {
        usleep(1000); /* one of them is closed */
    }
    close(fds[0]);
    close(fds[1]);
    while (metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
    test_is_well(&mip);
    test_mip_stop(&mip);
}

/* ---- peers that don't read ------------------------------------------------------------------- */

/* Starts on a Unix socket, whose directions do not block each other as TCP's do when one is
 * full. */
static void start_unix(struct test_mip *mip, struct net_limits limits, char folder[64]) {
    char address[80];
    snprintf(folder, 64, "/tmp/sluice-mip-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    test_mip_start_with(mip, &limits, test_budget(), address);
}

static void write_timeout_closes_connection_of_unread_answers(void **state) {
    (void)state;
    static const struct str TEXTS[] = {TEXT(PING), TEXT(ASK("hello")), TEXT(ASK("large")),
                                       TEXT(ASK("later")), TEXT(HEAD("\7", "\0", "\0\0\0\0"))};
    struct test_mip mip;
    struct net_limits limits = test_limits();
    char folder[64];
    limits.write_timeout_ns = SHORT_NS * 2;
    start_unix(&mip, limits, folder);
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        int fd = test_connect(&mip);
        while (test_try_send(fd, TEXTS[i].ptr, TEXTS[i].len)) {
        } /* until the connection is closed */
        close(fd);
    }
    test_is_well(&mip);
    test_mip_stop(&mip);
    assert_int_equal(rmdir(folder), 0);
}

/* The last response may not fit the socket after earlier ones: it waits until the peer reads, and
 * then the server half-closes but no more, as the peer may still send. The number of responses that
 * fill the socket depends on the kernel; the loop covers it. */
static void linger_sends_queued_answers_before_half_close(void **state) {
    (void)state;
    enum { FEWEST = 100, MOST = 300, ASK_BYTES = 25, ANSWER_BYTES = 1020 };
    static char asks[MOST * ASK_BYTES + MIP_HEADER_BYTES], got[MOST * ANSWER_BYTES];
    struct test_mip mip;
    char folder[64];
    start_unix(&mip, test_limits(), folder);
    for (size_t n = FEWEST; n <= MOST; n++) {
        int fd = test_connect(&mip);
        for (size_t i = 0; i < n; i++) {
            memcpy(asks + i * ASK_BYTES, ASK("kilos"), ASK_BYTES);
        }
        memset(asks + n * ASK_BYTES, 1, MIP_HEADER_BYTES); /* another version */
        test_send(fd, str_make(asks, n * ASK_BYTES + MIP_HEADER_BYTES));
        usleep(2000); /* nothing is read until the socket is full */
        assert_int_equal(test_read(fd, got, n * ANSWER_BYTES), n * ANSWER_BYTES);
        test_expect(fd, STR(PROTOCOL));
        assert_true(test_is_closed(fd));
        assert_true(test_try_send(fd, "x", 1));
        close(fd);
    }
    test_mip_stop(&mip);
    assert_int_equal(rmdir(folder), 0);
}

static void write_timeout_restarts_on_progress(void **state) {
    (void)state;
    static char piece[1 << 18];
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.write_timeout_ns = LONG_NS;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip), size = 1 << 16;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    test_send(fd, STR(ASK("large") PING));
    test_expect(fd, STR(HEAD("\2", "\1", "\0\x80\0\x0c") "\1\1\0\1\0\0\0\1\0\x80\0\0"));
    for (size_t left = TEST_LARGE_BYTES; left > 0;) {
        size_t n = left < sizeof(piece) ? left : sizeof(piece);
        assert_int_equal(test_read(fd, piece, n), n);
        left -= n;
        usleep(30000);
    }
    test_expect(fd, STR(PONG));
    close(fd);
    test_mip_stop(&mip);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void idle_timeout_closes_connection(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.idle_timeout_ns = LONG_NS;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip);
    assert_true(test_is_closed(fd)); /* without a response */
    close(fd);
    fd = test_connect(&mip);
    test_ask(fd, STR(PING), STR(PONG));
    assert_true(test_is_closed(fd));
    close(fd);
    fd = test_connect(&mip); /* a connection that waits for a response is not idle */
    test_send(fd, STR(ASK("never")));
    test_wait_for(&mip.infers, 1);
    usleep(2 * (useconds_t)(LONG_NS / 1000));
    test_answer_never(&mip);
    test_expect(fd, STR(TOLD("NEVER")));
    close(fd);
    test_mip_stop(&mip);
}

static void header_timeout_closes_connection(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.header_timeout_ns = SHORT_NS;
    test_mip_start(&mip, limits);
    int64_t before = metric_read(METRIC_MIP_TRUNCATED_TOTAL);
    int fd = test_connect(&mip);
    test_send(fd, STR(PING "\0\1\0"));
    test_expect(fd, STR(PONG));
    assert_true(test_is_closed(fd));
    close(fd);
    assert_int_equal(metric_read(METRIC_MIP_TRUNCATED_TOTAL) - before, 1);
    test_mip_stop(&mip);
}

static void body_timeout_gets_error_internal(void **state) {
    (void)state;
    static const struct str HEADS[] = {TEXT(HEAD("\2", "\0", "\0\0\1\0") "abc"),
                                       TEXT(HEAD("\2", "\0", "\0\2\0\0") "abc"),
                                       TEXT(PING HEAD("\2", "\0", "\0\0\1\0"))};
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.body_timeout_ns = SHORT_NS;
    test_mip_start(&mip, limits);
    for (size_t i = 0; i < sizeof(HEADS) / sizeof(HEADS[0]); i++) {
        int fd = test_connect(&mip);
        test_send(fd, HEADS[i]);
        if (i == 2) {
            test_expect(fd, STR(PONG));
        }
        test_expect(fd, STR(INTERNAL));
        assert_true(test_is_closed(fd));
        close(fd);
    }
    int fd = test_connect(&mip); /* nor is one whose response is not read */
    test_send(fd, STR(HEAD("\7", "\0", "\0\0\1\0") "abc"));
    test_expect(fd, STR(METHOD));
    assert_true(test_is_closed(fd));
    close(fd);
    test_mip_stop(&mip);
}

static void payload_below_min_rate_gets_error_internal(void **state) {
    (void)state;
    struct test_mip mip;
    struct net_limits limits = test_limits();
    limits.body_timeout_ns = SHORT_NS * 4;
    limits.min_body_rate = 1 << 20;
    test_mip_start(&mip, limits);
    int fd = test_connect(&mip);
    announce(fd, 10000000);
    test_trickle(fd, 'x');
    test_expect(fd, STR(INTERNAL));
    close(fd);
    test_mip_stop(&mip);
}

/* ---- peers that disconnect ------------------------------------------------------------------- */

/* The handler learns of it while its packet is in progress, also when input after it is pending,
 * and its response is still sent; packets after that are dropped. */
static void half_close_cancels_inference(void **state) {
    (void)state;
    static const struct str SENT[] = {TEXT(ASK("never")), TEXT(ASK("never") PING ASK("later"))};
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    for (size_t i = 0; i < sizeof(SENT) / sizeof(SENT[0]); i++) {
        int fd = test_connect(&mip);
        test_send(fd, SENT[i]);
        shutdown(fd, SHUT_WR);
        test_wait_for(&mip.gones, (int)i + 1);
        test_answer_never(&mip);
        test_expect(fd, STR(TOLD("NEVER")));
        assert_true(test_is_closed(fd));
        close(fd);
    }
    assert_int_equal(mip.infers, 2);
    test_mip_stop(&mip);
}

static void half_closed_peer_gets_ready_answers(void **state) {
    (void)state;
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    int fd = test_connect(&mip);
    test_send(fd, STR(PING ASK("fails") PING));
    shutdown(fd, SHUT_WR);
    test_expect(fd, STR(PONG INTERNAL PONG));
    assert_true(test_is_closed(fd));
    close(fd);
    test_mip_stop(&mip);
}

static void truncated_packet_is_counted(void **state) {
    (void)state;
    static const struct str TEXTS[] = {
        TEXT("\0"),
        TEXT("\0\1\0\0\0\0\0"),
        TEXT(HEAD("\2", "\0", "\0\0\0\4")),
        TEXT(HEAD("\2", "\0", "\0\0\0\4") "\1\0\0"),
        TEXT(HEAD("\2", "\0", "\0\2\0\0") "\1\0\0"),
    };
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        int64_t before = metric_read(METRIC_MIP_TRUNCATED_TOTAL);
        int fd = test_connect(&mip);
        test_send(fd, TEXTS[i]);
        shutdown(fd, SHUT_WR);
        assert_true(test_is_closed(fd)); /* without a response */
        close(fd);
        assert_int_equal(metric_read(METRIC_MIP_TRUNCATED_TOTAL) - before, 1);
    }
    assert_int_equal(mip.infers, 0);
    test_mip_stop(&mip);
}

static void peer_disconnect_calls_handler(void **state) {
    (void)state;
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    int fd = test_connect(&mip);
    test_send(fd, STR(ASK("never")));
    test_wait_for(&mip.infers, 1);
    test_reset(fd);
    test_wait_for(&mip.gones, 1);
    assert_int_equal(mip.ends, 0);
    test_answer_never(&mip);
    test_wait_for(&mip.ends, 1);

    fd = test_connect(&mip); /* in the middle of a payload, before the handler has it */
    announce(fd, 300000);
    wait_for_metric(METRIC_REQUESTS_IN_FLIGHT, 1);
    test_reset(fd);
    while (metric_read(METRIC_REQUESTS_IN_FLIGHT) > 0) {
        usleep(1000);
    }
    assert_int_equal(mip.infers, 1);

    fd = test_connect(&mip); /* in the middle of its response */
    test_send(fd, STR(ASK("large")));
    test_wait_for(&mip.infers, 2);
    test_reset(fd);
    test_wait_for(&mip.ends, 2);
    assert_int_equal(mip.gones, 1);
    test_mip_stop(&mip);
}

/* ---- the server goes ------------------------------------------------------------------------- */

static void drain_finishes_requests_and_closes_idle(void **state) {
    (void)state;
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    int idle = test_connect(&mip), busy = test_connect(&mip);
    test_ask(idle, STR(PING), STR(PONG));
    test_send(busy, STR(ASK("never")));
    test_wait_for(&mip.infers, 1);
    test_host_control(&mip.host, test_run_drain);
    assert_true(test_is_closed(idle));
    assert_int_equal(net_server_in_flight(mip_server_net(mip.server)), 1);
    static const struct {
        struct str sent, answer;
    } FRESH[] = {{TEXT(PING), TEXT(PONG)},
                 {TEXT(ASK("hello")), TEXT(TOLD("HELLO"))},
                 {TEXT(HEAD("\7", "\0", "\0\0\0\0")), TEXT(METHOD)}};
    for (size_t i = 0; i < sizeof(FRESH) / sizeof(FRESH[0]); i++) {
        int fd = test_connect(&mip);
        test_ask(fd, FRESH[i].sent, FRESH[i].answer);
        assert_true(test_is_closed(fd));
        close(fd);
    }
    test_answer_never(&mip);
    test_expect(busy, STR(TOLD("NEVER")));
    assert_true(test_is_closed(busy));
    close(idle);
    close(busy);
    test_mip_stop(&mip);
}

static void stop_in_every_state_completes(void **state) {
    (void)state;
    static const struct str TEXTS[] = {
        TEXT(ASK("never")),
        TEXT(ASK("large")),
        TEXT(HEAD("\2", "\0", "\0\2\0\0") "abc"),
        TEXT(HEAD("\7", "\0", "\0\0\2\0") "abc"),
        TEXT("\1\7\0\0\0\0\0\0"),
        TEXT(PING "\0\1"),
        TEXT(""),
    };
    enum { TEXTS_N = sizeof(TEXTS) / sizeof(TEXTS[0]) };
    struct test_mip mip;
    int fds[TEXTS_N];
    test_mip_start(&mip, test_limits());
    for (size_t i = 0; i < TEXTS_N; i++) {
        fds[i] = test_connect(&mip);
        test_send(fds[i], TEXTS[i]);
    }
    test_wait_for(&mip.infers, 2);
    wait_for_metric(METRIC_CONNECTIONS, TEXTS_N);
    test_host_ask_stop(&mip.host, test_run_stop);
    test_wait_for(&mip.gones, 1);
    assert_false(mip.host.stopped); /* the handler still has an exchange */
    test_answer_never(&mip);
    for (size_t i = 0; i < TEXTS_N; i++) {
        close(fds[i]);
    }
    test_mip_stop(&mip);
}

static void server_never_listened_is_freed(void **state) {
    (void)state;
    struct error err;
    struct worker *worker = NULL;
    struct net_budget budget = test_budget();
    struct mip_server *server = NULL;
    assert_int_equal(worker_new("w", &worker, &err), ST_OK);
    struct mip_server_options options = {.limits = test_limits(),
                                         .budget = &budget,
                                         .workers = &worker,
                                         .n_workers = 1,
                                         .acceptor = worker};
    assert_int_equal(mip_server_new(&options, &server, &err), ST_OK);
    struct address address, bound;
    assert_int_equal(address_parse(STR("203.0.113.1:0"), &address, &err), ST_OK);
    assert_int_equal(mip_server_listen(server, &address, NULL, &bound, &err), ST_IO);
    assert_non_null(strstr(err.text, "203.0.113.1:0"));
    mip_server_free(server);
    worker_free(worker);
    mip_server_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload_too_large_is_refused_before_allocation),
        cmocka_unit_test(payload_refused_small_is_skipped),
        cmocka_unit_test(payload_refused_peer_still_sending_reads_error),
        cmocka_unit_test(discard_past_limit_closes_connection),
        cmocka_unit_test(body_memory_exhausted_gets_error_memory),
        cmocka_unit_test(request_memory_exhausted_gets_error_memory),
        cmocka_unit_test(connection_over_limit_gets_error_internal),
        cmocka_unit_test(write_timeout_closes_connection_of_unread_answers),
        cmocka_unit_test(linger_sends_queued_answers_before_half_close),
        cmocka_unit_test(write_timeout_restarts_on_progress),
        cmocka_unit_test(idle_timeout_closes_connection),
        cmocka_unit_test(header_timeout_closes_connection),
        cmocka_unit_test(body_timeout_gets_error_internal),
        cmocka_unit_test(payload_below_min_rate_gets_error_internal),
        cmocka_unit_test(half_close_cancels_inference),
        cmocka_unit_test(half_closed_peer_gets_ready_answers),
        cmocka_unit_test(truncated_packet_is_counted),
        cmocka_unit_test(peer_disconnect_calls_handler),
        cmocka_unit_test(drain_finishes_requests_and_closes_idle),
        cmocka_unit_test(stop_in_every_state_completes),
        cmocka_unit_test(server_never_listened_is_freed),
    };
    log_configure(LOG_ERROR, LOG_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
