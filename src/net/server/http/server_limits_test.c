/* The HTTP server at its limits: clients that send too much, are too slow, or disconnect. Each case
 * ends with the fixture's leak checks. Timeouts are the server's limits, as short as a test needs;
 * no test measures time. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "core/base/compiler.h"
#include "net/server/conn_limit.h"
#include "net/server/http/server_fixture.h"
#include "net/server/server.h"
#include "net/server/shutdown.h"

#define HOST "Host: h\r\n"
#define GOOD "GET /hello HTTP/1.1\r\n" HOST "\r\n"
#define NEVER "GET /never HTTP/1.1\r\n" HOST "\r\n"

#define TEXT(literal)                                                                              \
    { literal, sizeof(literal) - 1 }

/* SHORT_NS where the timeout is to end it, LONG_NS where a client keeps it on a busy machine. */
static const uint64_t SHORT_NS = 50000000, LONG_NS = 600000000;

static void start(struct test_server *server, struct net_limits limits) {
    test_server_start(server, &limits, "127.0.0.1:0");
}

static void check_good(const struct test_server *server) {
    int fd = test_connect(server);
    test_send(fd, STR(GOOD));
    test_expect(fd, 200, "hello");
    close(fd);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void body_too_large_client_still_sending_reads_413(void **state) {
    (void)state;
    enum { BYTES = 300 << 20 };
    struct test_server server;
    char head[128];
    start(&server, test_limits());
    int fd = test_connect(&server);
    int n = snprintf(head, sizeof(head),
                     "POST /echo HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", BYTES);
    test_send(fd, str_make(head, (size_t)n));
    assert_true(test_send_zeros(fd, BYTES)); /* reads nothing until all is sent */
    test_expect(fd, 413, "BODY_TOO_LARGE");
    assert_true(test_is_closed(fd));
    close(fd);

    fd = test_connect(&server); /* the same with chunks */
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"));
    bool alive = true;
    for (int i = 0; i < 100 && alive; i++) {
        test_send(fd, STR("100000\r\n"));
        alive = test_send_zeros(fd, 1 << 20);
        test_send(fd, STR("\r\n"));
    }
    assert_true(alive);
    test_expect(fd, 413, "BODY_TOO_LARGE");
    close(fd);
    check_good(&server);
    test_server_stop(&server);
}

static void discard_past_limit_closes_connection(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.discard_size = 1 << 20;
    start(&server, limits);
    int fd = test_connect(&server);
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1000000000\r\n\r\n"));
    assert_false(test_send_zeros(fd, 1000000000));
    close(fd);
    check_good(&server);
    test_server_stop(&server);
}

static void head_over_limit_gets_431(void **state) {
    (void)state;
    struct test_server server;
    char line[5000];
    memset(line, 'a', sizeof(line));
    start(&server, test_limits());
    int fd = test_connect(&server);
    test_send(fd, STR("GET /"));
    test_send(fd, str_make(line, sizeof(line)));
    test_expect(fd, 431, "HEADER_TOO_LARGE");
    shutdown(fd, SHUT_WR);
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void body_memory_exhausted_gets_503(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.body_memory = 1 << 20;
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    /* A large Content-Length alone reserves no memory. */
    int promises[8];
    for (int i = 0; i < 8; i++) {
        promises[i] = test_connect(&server);
        test_send(promises[i],
                  STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n"));
    }
    test_wait_for(&server.heads, 8);
    int fd = test_connect(&server);
    test_send(fd, STR("POST /aligned?0 HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n"));
    assert_true(test_send_zeros(fd, 1000000));
    test_expect(fd, 200, "yes");
    test_send(fd, STR("POST /aligned?0 HTTP/1.1\r\n" HOST "Content-Length: 3000000\r\n\r\n"));
    assert_true(test_send_zeros(fd, 3000000));
    test_expect(fd, 503, "OVERLOADED");
    close(fd);
    for (int i = 0; i < 8; i++) {
        close(promises[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

/* A client whose body has all of the budget. */
static int hold_budget(struct test_server *server) {
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.body_memory = 65536;
    test_server_start_with(server, &limits, budget, "127.0.0.1:0");
    int fd = test_connect(server);
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 70000\r\n\r\n"));
    assert_true(test_send_zeros(fd, 3000));
    while (atomic_load(&server->host.budget.n_body_bytes) < 65536) {
        usleep(1000);
    }
    return fd;
}

/* The part of a body that comes with its head ends where the memory does: the client gets the
 * reason, and keeps its connection. */
static void body_memory_ends_with_first_part_gets_503(void **state) {
    (void)state;
    static char first[2200];
    struct test_server server;
    int holder = hold_budget(&server), fd = test_connect(&server);
    int n = snprintf(first, sizeof(first),
                     "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000\r\n\r\n");
    test_send(fd, str_make(first, (size_t)n + 2048)); /* as much as is never accounted */
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    while (metric_read(METRIC_BODY_BYTES_IN_FLIGHT) < 3000 + 2048 && poll(&answer, 1, 1) == 0) {
    }
    assert_true(test_send_zeros(fd, 20000 - 2048));
    test_expect(fd, 503, "OVERLOADED");
    test_send(fd, STR(GOOD));
    test_expect(fd, 200, "hello");
    close(fd);
    close(holder);
    check_good(&server);
    test_server_stop(&server);
}

/* A body that waits for a large step of the budget, and then gets it, was not dropped. */
static void body_accepted_at_end_of_memory_is_not_counted_as_dropped(void **state) {
    (void)state;
    struct test_server server;
    int64_t n_dropped = metric_read(METRIC_DROPPED_MEMORY);
    int holder = hold_budget(&server), fd = test_connect(&server);
    test_send(fd, STR("POST /aligned?0 HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\n"));
    test_wait_for(&server.heads, 2);
    assert_true(test_send_zeros(fd, 1000));
    while (metric_read(METRIC_BODY_BYTES_IN_FLIGHT) < 4000) {
        usleep(1000);
    }
    test_reset(holder);
    while (atomic_load(&server.host.budget.n_body_bytes) > 0) {
        usleep(1000);
    }
    assert_true(test_send_zeros(fd, 59000));
    test_expect(fd, 200, "yes");
    assert_int_equal(metric_read(METRIC_DROPPED_MEMORY), n_dropped);
    close(fd);
    check_good(&server);
    test_server_stop(&server);
}

/* Heads that are not complete count, too. */
static void head_memory_exhausted_gets_503(void **state) {
    (void)state;
    static char head[40000];
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    int fds[8];
    limits.max_header_size = 65536;
    budget.body_memory = 300000;
    int start = snprintf(head, sizeof(head), "GET /echo HTTP/1.1\r\n" HOST "X: ");
    memset(head + start, 'x', sizeof(head) - (size_t)start);
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    for (int i = 0; i < 8; i++) { /* of 40,000 bytes, in an arena that grows by doubling */
        fds[i] = test_connect(&server);
        test_send(fds[i], str_make(head, sizeof(head)));
    }
    struct pollfd polled[8];
    for (int i = 0; i < 8; i++) {
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    assert_true(poll(polled, 8, 20000) > 0);
    for (int i = 0; i < 8; i++) {
        if (polled[i].revents) {
            test_expect(fds[i], 503, "OVERLOADED");
        }
    }
    for (int i = 0; i < 8; i++) {
        close(fds[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

static void request_memory_exhausted_gets_503(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.request_memory = 12000;
    start(&server, limits);
    int fd = test_connect(&server);
    test_send(fd, STR("POST /aligned?0 HTTP/1.1\r\n" HOST "Content-Length: 15000\r\n\r\n"));
    assert_true(test_send_zeros(fd, 15000));
    test_expect(fd, 503, "NO_MEMORY");
    test_send(fd,
              STR("GET /greedy HTTP/1.1\r\n" HOST "\r\n")); /* the handler allocates all of it */
    test_expect(fd, 503, "NO_MEMORY");
    test_send(fd, STR(GOOD));
    test_expect(fd, 200, "hello");
    close(fd);
    test_server_stop(&server);
}

static void connection_over_limit_gets_503(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.max_connections = 2;
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    int fds[2] = {test_connect(&server), test_connect(&server)};
    for (int i = 0; i < 2; i++) { /* requests that are open */
        test_send(fds[i], STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    }
    while (metric_read(METRIC_REQUESTS_IN_FLIGHT) < 2) {
        usleep(1000);
    }
    int fd = test_connect(&server);
    test_expect(fd, 503, "TOO_MANY_CONNECTIONS"); /* without a request */
    test_send(fd, STR(GOOD));
    shutdown(fd, SHUT_WR);
    assert_true(test_is_closed(fd));
    close(fd);
    for (int i = 0; i < 2; i++) {
        test_send(fds[i], STR("b"));
        test_expect(fds[i], 200, "ab");
        test_send(fds[i], STR(GOOD));
        test_expect(fds[i], 200, "hello");
        close(fds[i]);
    }
    while (metric_read(METRIC_CONNECTIONS) > 0) {
        usleep(1000);
    }
    check_good(&server);
    test_server_stop(&server);
}

static int connect_and_ask(struct test_server *server, const char *request) {
    int fd = test_connect(server);
    test_send(fd, str_of(request));
    test_expect(fd, 200, "hello");
    return fd;
}

/* Idle connections and one with half a head go; one with a request stays. In which order they go is
 * tested in conn_table_test.c. */
static void connection_over_limit_takes_place_of_idle_one(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.max_connections = 4;
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    int64_t before = metric_read(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL);
    int busy = test_connect(&server);
    test_send(busy, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    while (metric_read(METRIC_REQUESTS_IN_FLIGHT) < 1) {
        usleep(1000);
    }
    int old[3], opened[3];
    for (int i = 0; i < 3; i++) {
        old[i] = connect_and_ask(&server, GOOD);
    }
    test_send(old[1], STR("GET / HT"));
    for (int i = 0; i < 3; i++) { /* the place of one that has just been answered is not needed */
        opened[i] = connect_and_ask(&server, GOOD);
    }
    while (metric_read(METRIC_IDLE_CONNECTIONS_CLOSED_TOTAL) - before < 3) {
        usleep(1000);
    }
    test_send(busy, STR("b"));
    test_expect(busy, 200, "ab");
    close(busy);
    for (int i = 0; i < 3; i++) {
        close(old[i]);
        close(opened[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

struct blocker {
    struct worker_msg msg;
    atomic_bool ended;
};

static void run_blocker(struct worker_msg *msg) {
    struct blocker *blocker = CONTAINER_OF(msg, struct blocker, msg);
    while (!atomic_load(&blocker->ended)) {
        usleep(1000);
    }
}

/* The only place is that of a client that has gone, whose worker is held and has not opened its
 * connection yet: new clients wait for it, and are not refused. */
static void connection_over_limit_waits_for_those_that_are_not_open(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.max_connections = 1;
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    int64_t n_refused = metric_read(METRIC_CONNECTIONS_REFUSED_TOTAL);
    int first = connect_and_ask(&server, GOOD); /* on the acceptor's worker */
    struct blocker blocker = {.msg.run = run_blocker};
    worker_post(server.host.workers[1], &blocker.msg);
    close(test_connect(&server)); /* takes the place of the first one */
    assert_true(test_is_closed(first));
    int second = test_connect(&server), third = test_connect(&server);
    test_send(second, STR(GOOD));
    test_expect(second, 200, "hello"); /* it is one beyond the limit */
    test_send(third, STR(GOOD));
    atomic_store(&blocker.ended, true);
    test_expect(third, 200, "hello");
    assert_int_equal(metric_read(METRIC_CONNECTIONS_REFUSED_TOTAL), n_refused);
    close(third);
    close(second);
    close(first);
    while (metric_read(METRIC_CONNECTIONS) > 0) { /* the answered one is busy a moment longer */
        usleep(1000);
    }
    check_good(&server);
    test_server_stop(&server);
}

/* More connections than the limit have a place, as when some that were found idle have become busy
 * meanwhile: a new one needs one place only. */
static void connection_far_over_limit_takes_place_of_idle_one(void **state) {
    (void)state;
    enum { N_IDLE = 12, N_BUSY = 7 };
    struct test_server server;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    budget.max_connections = N_IDLE;
    test_server_start_with(&server, &limits, budget, "127.0.0.1:0");
    int fds[N_IDLE];
    for (int i = 0; i < N_IDLE; i++) {
        fds[i] = connect_and_ask(&server, GOOD);
    }
    atomic_fetch_add(&server.host.budget.n_conns, N_BUSY);
    close(connect_and_ask(&server, GOOD));
    atomic_fetch_sub(&server.host.budget.n_conns, N_BUSY);
    for (int i = 0; i < N_IDLE; i++) {
        close(fds[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

/* As conn_limit.c, which is told to when a place is wanted. */
static void run_evict(struct worker_msg *msg) {
    net_conn_evict(CONTAINER_OF(msg, struct net_conn, msg));
}

/* One is chosen because its request waits for its client, and is answered before its worker is
 * told: it is idle then, but not because its client has nothing to ask. */
static void connection_answered_after_its_place_was_taken_keeps_it(void **state) {
    enum { CONNS = CONN_TABLE_KEPT + 1, OTHER_HOST = 1 };
    (void)state;
    struct test_server server;
    struct net_budget *budget = &server.host.budget;
    int fds[CONNS];
    start(&server, test_limits());
    for (int i = 0; i < CONNS; i++) {
        fds[i] = test_connect(&server);
        test_send(fds[i], STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    }
    struct conn_entry *entry;
    while (!(entry = conn_table_take_waiting(&budget->conns, OTHER_HOST))) {
        usleep(1000);
    }
    for (int i = 0; i < CONNS; i++) {
        test_send(fds[i], STR("b"));
        test_expect(fds[i], 200, "ab");
    }
    struct net_conn *conn = CONTAINER_OF(entry, struct net_conn, entry);
    net_budget_remove_conn(budget);
    atomic_fetch_add(&budget->n_leaving, 1);
    conn->msg.run = run_evict;
    worker_post(conn->server_worker->worker, &conn->msg);
    while (atomic_load(&budget->n_leaving) > 0) {
        usleep(1000);
    }
    for (int i = 0; i < CONNS; i++) {
        test_send(fds[i], STR(GOOD));
        test_expect(fds[i], 200, "hello");
        close(fds[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

static void accept_without_descriptors_closes_idle_connection(void **state) {
    (void)state;
    struct test_server server;
    struct rlimit limit, low;
    start(&server, test_limits());
    int fd = connect_and_ask(&server, GOOD);
    int second = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    int probe = dup(fd); /* the lowest free descriptor */
    close(probe);
    low.rlim_cur = (rlim_t)probe;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(
        connect(second, (struct sockaddr *)&server.host.bound.storage, server.host.bound.len), 0);
    test_send(second, STR(GOOD));
    test_expect(second, 200, "hello");
    assert_true(test_is_closed(fd));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(second);
    close(fd);
    check_good(&server);
    test_server_stop(&server);
}

static void accept_without_descriptors_resumes_later(void **state) {
    (void)state;
    struct test_server server;
    struct rlimit limit, low;
    start(&server, test_limits());
    int fd = test_connect(&server), busy = test_connect(&server);
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    test_send(busy, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\na"));
    while (metric_read(METRIC_REQUESTS_IN_FLIGHT) < 2) {
        usleep(1000);
    }
    int second = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    int probe = dup(fd); /* the lowest free descriptor */
    close(probe);
    low.rlim_cur = (rlim_t)probe;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(
        connect(second, (struct sockaddr *)&server.host.bound.storage, server.host.bound.len), 0);
    test_send(second, STR(GOOD));
    test_send(fd, STR("b")); /* other clients are served meanwhile */
    test_expect(fd, 200, "ab");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    test_expect(second, 200, "hello"); /* it was only delayed */
    test_send(busy, STR("b"));
    test_expect(busy, 200, "ab");
    close(busy);
    close(second);
    close(fd);
    test_server_stop(&server);
}

/* Reads nothing yet, with a small receive buffer. */
static int ask_for_big(const struct test_server *server) {
    int fd = test_connect(server);
    int size = 1 << 16;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    test_send(fd, STR("GET /big HTTP/1.1\r\n" HOST "\r\n"));
    return fd;
}

static void pipelining_stops_while_reply_is_unread(void **state) {
    (void)state;
    struct test_server server;
    start(&server, test_limits());
    int fd = ask_for_big(&server);
    for (int i = 0; i < 100; i++) {
        test_send(fd, STR("GET /big HTTP/1.1\r\n" HOST "\r\n"));
    }
    test_wait_for(&server.heads, 1);
    check_good(&server);
    assert_int_equal(server.heads, 2); /* the second /big waits for the first */
    close(fd);
    test_server_stop(&server);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void idle_timeout_closes_connection(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.idle_timeout_ns = LONG_NS;
    start(&server, limits);
    int fd = test_connect(&server);
    assert_true(test_is_closed(fd)); /* without a response */
    close(fd);
    fd = test_connect(&server);
    test_send(fd, STR(GOOD));
    test_expect(fd, 200, "hello");
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void header_timeout_gets_408(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.header_timeout_ns = SHORT_NS;
    start(&server, limits);
    int fd = test_connect(&server);
    test_send(fd, STR("GET /hello HTTP/1.1\r\n"));
    test_expect(fd, 408, "REQUEST_TIMEOUT");
    close(fd);
    fd = test_connect(&server);
    test_send(fd, STR("GET /"));
    test_trickle(fd, 'a'); /* single bytes do not extend the timeout */
    test_expect(fd, 408, "REQUEST_TIMEOUT");
    close(fd);
    fd = test_connect(&server);
    test_send(fd, STR("\r\n")); /* an empty line is not a request */
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void body_timeout_gets_408(void **state) {
    (void)state;
    static const struct str HEADS[] = {
        TEXT("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nabc"),
        TEXT("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc"),
        TEXT("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n9\r\nabc"),
    };
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.body_timeout_ns = SHORT_NS;
    start(&server, limits);
    for (size_t i = 0; i < sizeof(HEADS) / sizeof(HEADS[0]); i++) {
        int fd = test_connect(&server);
        test_send(fd, HEADS[i]);
        test_expect(fd, 408, "REQUEST_TIMEOUT");
        close(fd);
    }
    test_server_stop(&server);
}

static void body_below_min_rate_gets_408(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.body_timeout_ns = SHORT_NS * 4;
    limits.min_body_rate = 1 << 20;
    start(&server, limits);
    int fd = test_connect(&server);
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 10000000\r\n\r\n"));
    test_trickle(fd, 'x');
    test_expect(fd, 408, "REQUEST_TIMEOUT");
    close(fd);
    test_server_stop(&server);
}

/* The rate is looked at over windows: what came before does not make up for what trickles. */
static void body_whose_end_trickles_gets_408(void **state) {
    (void)state;
    enum { N_FAST = 1000000 };
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.body_timeout_ns = LONG_NS;
    limits.min_body_rate = 1024;
    start(&server, limits);
    int fd = test_connect(&server);
    char *fast = calloc(1, N_FAST);
    assert_non_null(fast);
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1100000\r\n\r\n"));
    test_send(fd, str_make(fast, N_FAST));
    test_trickle(fd, 'x');
    test_expect(fd, 408, "REQUEST_TIMEOUT");
    free(fast);
    close(fd);
    test_server_stop(&server);
}

static void write_timeout_closes_connection(void **state) {
    (void)state;
    static char all[TEST_BIG_BYTES + 1000];
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.write_timeout_ns = SHORT_NS;
    start(&server, limits);
    int fd = ask_for_big(&server);
    test_wait_for(&server.releases, 1); /* cancelled */
    assert_true(test_read(fd, all, sizeof(all)) < TEST_BIG_BYTES);
    close(fd);
    test_server_stop(&server);
}

static void write_timeout_restarts_on_progress(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    limits.write_timeout_ns = LONG_NS;
    start(&server, limits);
    int fd = ask_for_big(&server);
    static char piece[1 << 18];
    test_send(fd, STR(GOOD));
    size_t left = TEST_BIG_BYTES;
    while (test_read(fd, piece, 1) == 1 && piece[0] != 'b') {
    }
    for (left--; left > 0;) {
        size_t n = left < sizeof(piece) ? left : sizeof(piece);
        assert_int_equal(test_read(fd, piece, n), n);
        left -= n;
        usleep(30000);
    }
    test_expect(fd, 200, "hello");
    close(fd);
    test_server_stop(&server);
}

/* ---- clients that disconnect ----------------------------------------------------------------- */

/* The handler learns of it while its request is in progress, also when input after it is pending,
 * and its response is still sent; requests after that are dropped. */
static void half_close_cancels_request(void **state) {
    (void)state;
    static const char *const SENT[] = {NEVER, GOOD NEVER GOOD};
    struct test_server server;
    start(&server, test_limits());
    for (size_t i = 0; i < sizeof(SENT) / sizeof(SENT[0]); i++) {
        int fd = test_connect(&server);
        test_send(fd, str_of(SENT[i]));
        shutdown(fd, SHUT_WR);
        if (i > 0) {
            test_expect(fd, 200, "hello");
        }
        test_wait_for(&server.gones, (int)i + 1);
        test_answer_never(&server);
        test_expect(fd, 200, "later");
        assert_true(test_is_closed(fd));
        close(fd);
    }
    assert_int_equal(server.heads, 3);
    test_server_stop(&server);
}

static void half_closed_client_gets_ready_replies(void **state) {
    (void)state;
    struct test_server server;
    start(&server, test_limits());
    int fd = test_connect(&server);
    test_send(fd, STR(GOOD GOOD "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"));
    shutdown(fd, SHUT_WR);
    test_expect(fd, 200, "hello");
    test_expect(fd, 200, "hello");
    test_expect(fd, 200, "abc");
    assert_true(test_is_closed(fd));
    close(fd);

    fd = test_connect(&server); /* no response to an incomplete request */
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nab"));
    shutdown(fd, SHUT_WR);
    assert_true(test_is_closed(fd));
    close(fd);
    test_server_stop(&server);
}

static void client_disconnect_calls_handler(void **state) {
    (void)state;
    struct test_server server;
    start(&server, test_limits());
    int fd = test_connect(&server);
    test_send(fd, STR(NEVER));
    test_wait_for(&server.heads, 1);
    test_reset(fd);
    test_wait_for(&server.gones, 1);
    assert_int_equal(server.ends, 0);
    test_answer_never(&server);
    test_wait_for(&server.ends, 1);

    fd = test_connect(&server); /* in the middle of its body */
    test_send(fd, STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\nab"));
    test_wait_for(&server.heads, 2);
    test_reset(fd);
    test_wait_for(&server.gones, 2);
    test_wait_for(&server.ends, 2);

    fd = test_connect(&server); /* in the middle of its response */
    test_send(fd, STR("GET /big HTTP/1.1\r\n" HOST "\r\n"));
    test_wait_for(&server.heads, 3);
    test_reset(fd);
    test_wait_for(&server.ends, 3);
    assert_int_equal(server.gones, 2);
    test_server_stop(&server);
}

static atomic_int n_big, n_before_probe, n_blocked;
static atomic_bool unblocked;
static _Thread_local int n_busy; /* of a worker */

/* As the fixture's; /busy takes a millisecond, /block until it is unblocked; /probe counts what
 * came before it. */
static void on_head_busy(struct http_exchange *exchange, void *context) {
    struct str path = exchange->head.path;
    if (str_is(path, "/busy")) {
        usleep(1000);
        n_busy++;
    } else if (str_is(path, "/block")) {
        atomic_fetch_add(&n_blocked, 1);
        while (!atomic_load(&unblocked)) {
            usleep(1000);
        }
    } else if (str_is(path, "/probe")) {
        atomic_store(&n_before_probe, n_busy);
    }
    test_on_head(exchange, context);
    atomic_fetch_add(&n_big, str_is(exchange->head.path, "/big"));
}

#define BUSY "GET /busy HTTP/1.1\r\n" HOST "\r\n"
#define BIG "GET /big HTTP/1.1\r\n" HOST "\r\n"
#define EIGHT_BUSY BUSY BUSY BUSY BUSY BUSY BUSY BUSY BUSY

/* The connections that are read between two polls share the time of a turn: the last one does not
 * wait until each before it has had all of that. */
static void turns_of_pipelining_connections_share_their_time(void **state) {
    (void)state;
    enum { BUSY_N = 20 };
    struct test_server server;
    struct net_limits limits = test_limits();
    struct test_handler handler = {.on_head = on_head_busy, .after_head = {.on_end = test_on_end}};
    int busy[BUSY_N], blocking[TEST_WORKERS], probes[TEST_WORKERS];
    test_server_start_as(&server, handler, &limits, test_budget(), "127.0.0.1:0", NULL);
    for (int i = 0; i < BUSY_N; i++) {
        busy[i] = test_connect(&server);
    }
    for (int i = 0; i < TEST_WORKERS; i++) { /* one for each worker: the one with the fewest */
        blocking[i] = test_connect(&server);
    }
    for (int i = 0; i < TEST_WORKERS; i++) {
        probes[i] = test_connect(&server);
        test_send(probes[i], STR(GOOD));
        test_expect(probes[i], 200, "hello");
    }
    for (int i = 0; i < TEST_WORKERS; i++) {
        test_send(blocking[i], STR("GET /block HTTP/1.1\r\n" HOST "\r\n"));
    }
    test_wait_for(&n_blocked, TEST_WORKERS);
    for (int i = 0; i < BUSY_N; i++) { /* all wait in the sockets */
        test_send(busy[i], STR(EIGHT_BUSY EIGHT_BUSY));
    }
    test_send(probes[0], STR("GET /probe HTTP/1.1\r\n" HOST "\r\n"));
    atomic_store(&unblocked, true);
    test_expect(probes[0], 200, "hello");
    assert_true(n_before_probe < BUSY_N / TEST_WORKERS * 6); /* else 8 of each */
    for (int i = 0; i < BUSY_N * 16; i++) {
        test_expect(busy[i % BUSY_N], 200, "hello");
    }
    for (int i = 0; i < BUSY_N; i++) {
        close(busy[i]);
    }
    for (int i = 0; i < TEST_WORKERS; i++) {
        close(blocking[i]);
        close(probes[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

/* Connections that pipeline take turns, which end after four requests or more. One whose turn ends
 * with /big, which it does not read, and that is reset before the next one leaves the list of those
 * that wait: they are all served. */
static void reset_while_waiting_for_its_turn_leaves_others_served(void **state) {
    (void)state;
    enum { BUSY_N = 12, REQUESTS = 48, RESET_N = 8, FRESH_N = 4 };
    struct test_server server;
    struct net_limits limits = test_limits();
    struct test_handler handler = {.on_head = on_head_busy,
                                   .after_head = {.on_body = test_on_body,
                                                  .on_disconnect = test_on_gone,
                                                  .on_end = test_on_end}};
    int busy[BUSY_N], reset[RESET_N], fresh[FRESH_N];
    atomic_store(&n_big, 0);
    test_server_start_as(&server, handler, &limits, test_budget(), "127.0.0.1:0", NULL);
    for (int i = 0; i < BUSY_N; i++) {
        busy[i] = test_connect(&server);
        test_send(busy[i], STR(EIGHT_BUSY EIGHT_BUSY EIGHT_BUSY EIGHT_BUSY EIGHT_BUSY EIGHT_BUSY));
    }
    for (int i = 0; i < RESET_N; i++) {
        reset[i] = test_connect(&server);
        test_send(reset[i], i % 2 ? STR(BUSY BUSY BUSY BIG GOOD)
                                  : STR(BUSY BUSY BUSY BUSY BUSY BUSY BUSY BIG GOOD));
    }
    test_wait_for(&n_big, RESET_N / 2);
    for (int i = 0; i < RESET_N; i++) {
        test_reset(reset[i]);
    }
    for (int i = 0; i < FRESH_N; i++) { /* they may get the memory of those before */
        fresh[i] = test_connect(&server);
        test_send(fresh[i], STR(GOOD));
    }
    for (int i = 0; i < BUSY_N * REQUESTS; i++) {
        test_expect(busy[i % BUSY_N], 200, "hello");
    }
    for (int i = 0; i < FRESH_N; i++) {
        test_expect(fresh[i], 200, "hello");
        close(fresh[i]);
    }
    for (int i = 0; i < BUSY_N; i++) {
        close(busy[i]);
    }
    check_good(&server);
    test_server_stop(&server);
}

/* ---- the server goes ------------------------------------------------------------------------- */

static void drain_finishes_requests_and_closes_idle(void **state) {
    (void)state;
    struct test_server server;
    static struct test_answer answer;
    start(&server, test_limits());
    int idle = test_connect(&server), busy = test_connect(&server);
    test_send(idle, STR(GOOD));
    test_expect(idle, 200, "hello");
    test_send(busy, STR(NEVER));
    test_wait_for(&server.heads, 2);
    test_wait_for(&server.ends, 1);
    test_host_control(&server.host, test_run_drain);
    assert_true(test_is_closed(idle));
    assert_int_equal(net_server_in_flight(http_server_net(server.server)), 1);
    int fresh = test_connect(&server);
    test_send(fresh, STR(GOOD));
    assert_true(test_read_answer(fresh, &answer, false));
    assert_true(answer.status == 200 && answer.closes);
    assert_true(test_is_closed(fresh));
    test_answer_never(&server);
    assert_true(test_read_answer(busy, &answer, false));
    assert_true(answer.status == 200 && answer.closes);
    assert_true(test_is_closed(busy));
    close(idle);
    close(busy);
    close(fresh);
    test_server_stop(&server);
}

static void stop_in_every_state_completes(void **state) {
    (void)state;
    struct test_server server;
    start(&server, test_limits());
    static const struct str TEXTS[] = {
        TEXT(NEVER),
        TEXT("GET /big HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\nab"),
        TEXT("POST /refuse HTTP/1.1\r\n" HOST "Content-Length: 300\r\n\r\nab"),
        TEXT("GET /hel"),
        TEXT(""),
    };
    enum { TEXTS_N = sizeof(TEXTS) / sizeof(TEXTS[0]) };
    int fds[TEXTS_N];
    for (size_t i = 0; i < TEXTS_N; i++) {
        fds[i] = test_connect(&server);
        test_send(fds[i], TEXTS[i]);
    }
    test_wait_for(&server.heads, 4);
    test_ask_stop(&server);
    test_wait_for(&server.gones, 2);
    assert_false(server.host.stopped); /* the handler still has an exchange */
    test_answer_never(&server);
    for (size_t i = 0; i < TEXTS_N; i++) {
        close(fds[i]);
    }
    test_server_stop(&server);
}

static void server_never_listened_is_freed(void **state) {
    (void)state;
    struct error err;
    struct worker *worker = NULL;
    struct net_budget budget = test_budget();
    struct http_server *server = NULL;
    assert_int_equal(worker_new("w", &worker, &err), ST_OK);
    struct http_server_options options = {.limits = test_limits(),
                                          .budget = &budget,
                                          .workers = &worker,
                                          .n_workers = 1,
                                          .acceptor = worker};
    assert_int_equal(http_server_new(&options, &server, &err), ST_OK);
    struct address address, bound;
    assert_int_equal(address_parse(STR("203.0.113.1:0"), &address, &err), ST_OK);
    assert_int_equal(http_server_listen(server, &address, NULL, &bound, &err), ST_IO);
    assert_non_null(strstr(err.text, "203.0.113.1:0"));
    http_server_free(server);
    worker_free(worker);
    http_server_free(NULL);
}

static void listen_replaces_only_stale_unix_sockets(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct error err;
    struct address bound;
    char folder[] = "/tmp/sluice-http-XXXXXX", address[64];
    assert_non_null(mkdtemp(folder));
    snprintf(address, sizeof(address), "unix:%s/s", folder);

    struct sockaddr_un stale = {.sun_family = AF_UNIX};
    snprintf(stale.sun_path, sizeof(stale.sun_path), "%s/s", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&stale, sizeof(stale)), 0);
    close(fd); /* the socket's file stays */
    test_server_start(&server, &limits, address);
    check_good(&server);

    struct worker *worker = NULL; /* a second server on the same path */
    struct http_server *second = NULL;
    assert_int_equal(worker_new("w", &worker, &err), ST_OK);
    struct http_server_options options = {.limits = limits,
                                          .budget = &server.host.budget,
                                          .workers = &worker,
                                          .n_workers = 1,
                                          .acceptor = worker};
    assert_int_equal(http_server_new(&options, &second, &err), ST_OK);
    assert_int_equal(http_server_listen(second, &server.host.bound, NULL, &bound, &err), ST_IO);
    assert_non_null(strstr(err.text, "already"));
    http_server_free(second);
    worker_free(worker);
    check_good(&server);
    test_server_stop(&server);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_too_large_client_still_sending_reads_413),
        cmocka_unit_test(discard_past_limit_closes_connection),
        cmocka_unit_test(head_over_limit_gets_431),
        cmocka_unit_test(body_memory_exhausted_gets_503),
        cmocka_unit_test(body_memory_ends_with_first_part_gets_503),
        cmocka_unit_test(body_accepted_at_end_of_memory_is_not_counted_as_dropped),
        cmocka_unit_test(head_memory_exhausted_gets_503),
        cmocka_unit_test(request_memory_exhausted_gets_503),
        cmocka_unit_test(connection_over_limit_gets_503),
        cmocka_unit_test(connection_over_limit_takes_place_of_idle_one),
        cmocka_unit_test(connection_far_over_limit_takes_place_of_idle_one),
        cmocka_unit_test(connection_over_limit_waits_for_those_that_are_not_open),
        cmocka_unit_test(connection_answered_after_its_place_was_taken_keeps_it),
        cmocka_unit_test(accept_without_descriptors_closes_idle_connection),
        cmocka_unit_test(accept_without_descriptors_resumes_later),
        cmocka_unit_test(pipelining_stops_while_reply_is_unread),
        cmocka_unit_test(idle_timeout_closes_connection),
        cmocka_unit_test(header_timeout_gets_408),
        cmocka_unit_test(body_timeout_gets_408),
        cmocka_unit_test(body_below_min_rate_gets_408),
        cmocka_unit_test(body_whose_end_trickles_gets_408),
        cmocka_unit_test(write_timeout_closes_connection),
        cmocka_unit_test(write_timeout_restarts_on_progress),
        cmocka_unit_test(half_close_cancels_request),
        cmocka_unit_test(half_closed_client_gets_ready_replies),
        cmocka_unit_test(client_disconnect_calls_handler),
        cmocka_unit_test(turns_of_pipelining_connections_share_their_time),
        cmocka_unit_test(reset_while_waiting_for_its_turn_leaves_others_served),
        cmocka_unit_test(drain_finishes_requests_and_closes_idle),
        cmocka_unit_test(stop_in_every_state_completes),
        cmocka_unit_test(server_never_listened_is_freed),
        cmocka_unit_test(listen_replaces_only_stale_unix_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
