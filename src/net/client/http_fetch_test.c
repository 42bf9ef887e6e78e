/* Fetches against a real server and against misbehaving sockets, with the error texts that users
 * read. */
#include "net/client/http_fetch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "net/client/http_fetch_fixture.h"
#include "net/transport/tls/server.h"
#include "net/transport/tls/tls_fixture.h"

/* ---- a server -------------------------------------------------------------------------------- */

static void fetch_returns_status_type_and_body(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    const struct got *got = fetch(&rig, &server.host.bound, "/hello");
    assert_int_equal(got->status, ST_OK);
    assert_int_equal(got->http, 200);
    assert_string_equal(got->type, "text/plain");
    assert_string_equal(got->body, "hello");
    got = fetch(&rig, &server.host.bound, "/refuse"); /* a response like any other */
    assert_int_equal(got->status, ST_OK);
    assert_int_equal(got->http, 404);
    got = fetch(&rig, &server.host.bound, "/later");
    assert_string_equal(got->body, "later");
    rig_fini(&rig);
    test_server_stop(&server);
}

static void fetch_reuses_idle_connection(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    int64_t before = metric_read(METRIC_CONNECTIONS_TOTAL);
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fetch(&rig, &server.host.bound, "/hello")->http, 200);
    }
    assert_int_equal(metric_read(METRIC_CONNECTIONS_TOTAL), before + 1);
    rig.ask.own_connection = true;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fetch(&rig, &server.host.bound, "/hello")->http, 200);
    }
    assert_int_equal(metric_read(METRIC_CONNECTIONS_TOTAL), before + 6);
    rig_fini(&rig);
    test_server_stop(&server);
}

static void fetch_body_over_limit_is_body_too_large(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    const struct got *got = fetch(&rig, &server.host.bound, "/big");
    assert_int_equal(got->status, ST_BODY_TOO_LARGE);
    assert_string_equal(got->why, "answered with more than 100 bytes");
    rig.ask.max_body_size = 5;
    assert_string_equal(fetch(&rig, &server.host.bound, "/hello")->body, "hello");
    rig.ask.max_body_size = 4;
    assert_int_equal(fetch(&rig, &server.host.bound, "/hello")->status, ST_BODY_TOO_LARGE);
    rig.ask.max_body_size = 0; /* no body wanted */
    got = fetch(&rig, &server.host.bound, "/big");
    assert_int_equal(got->status, ST_OK);
    assert_int_equal(got->http, 200);
    assert_int_equal(got->n_body, 0);
    rig.ask.max_body_size = TEST_BIG_BYTES;
    got = fetch(&rig, &server.host.bound, "/big");
    assert_int_equal(got->status, ST_OK);
    assert_int_equal(got->n_body, TEST_BIG_BYTES);
    rig_fini(&rig);
    test_server_stop(&server);
}

static void on_piece(void *user, struct str bytes) {
    struct rig *rig = user;
    rig->n_pieces++;
    rig->n_piece_bytes += bytes.len;
}

static void on_pieces_done(void *user, const struct http_fetch_result *fetched) {
    struct rig *rig = user;
    on_done(&rig->got[0], fetched);
}

static void step_pieces(struct rig *rig) {
    struct http_fetch_request ask = rig->ask;
    struct error err;
    rig->got[0] = (struct got){.rig = rig};
    rig->n_pieces = rig->n_piece_bytes = 0;
    ask.url = rig->url;
    ask.piece = on_piece;
    ask.done = on_pieces_done;
    ask.user = rig;
    assert_int_equal(http_fetch_start(rig->fetcher, &ask, NULL, &err), ST_OK);
}

static void fetch_body_in_pieces_is_not_buffered(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    rig.ask.max_body_size = TEST_BIG_BYTES;
    set_url(&rig, &server.host.bound, "http", "/big");
    run(&rig, step_pieces, 1);
    assert_int_equal(rig.got[0].status, ST_OK);
    assert_int_equal(rig.got[0].n_body, 0);
    assert_true(rig.n_pieces > 1);
    assert_int_equal(rig.n_piece_bytes, TEST_BIG_BYTES);
    rig_fini(&rig);
    test_server_stop(&server);
}

/* A server whose machine is lost within its response: it neither answers nor resets. */
static void *lose(void *arg) {
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &nothing};
    const int *listener = arg;
    char head[2000];
    int fd = accept(*listener, NULL, NULL), n_left = 1;
    assert_true(fd >= 0);
    read_head(fd, head, sizeof(head));
    test_send(fd, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"));
    while (n_left > 0) { /* else TCP would retransmit, a sign of life */
        assert_int_equal(ioctl(fd, SIOCOUTQ, &n_left), 0);
    }
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
    return (void *)(intptr_t)fd;
}

static void fetch_keepalive_detects_lost_server(void **state) {
    (void)state;
    struct address address;
    struct rig rig;
    pthread_t thread;
    void *lost;
    int listener = listen_at(&address);
    rig_init(&rig, NULL);
    rig.ask.keepalive_s = 2;
    assert_int_equal(pthread_create(&thread, NULL, lose, &listener), 0);
    const struct got *got = fetch(&rig, &address, "/");
    assert_int_equal(got->status, ST_IO);
    assert_int_equal(got->http, 200);
    pthread_join(thread, &lost);
    close((int)(intptr_t)lost);
    close(listener);
    rig_fini(&rig);
}

static void step_many(struct rig *rig) {
    for (int i = 0; i < MOST; i++) {
        begin(rig, rig->url);
    }
}

/* Cancels half of the running fetches. */
static void step_many_cancelled(struct rig *rig) {
    step_many(rig);
    for (int i = 0; i < MOST; i += 2) {
        http_fetch_cancel(rig->got[i].fetch);
    }
}

static void fetch_many_at_once_some_cancelled(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    set_url(&rig, &server.host.bound, "http", "/hello");
    run(&rig, step_many, MOST);
    for (int i = 0; i < MOST; i++) {
        assert_string_equal(rig.got[i].body, "hello");
    }
    run(&rig, step_many_cancelled, MOST / 2);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(rig.got[i].done, i % 2 == 1);
    }
    rig_fini(&rig);
    test_server_stop(&server);
}

/* The request is unanswered: stopping the fetcher ends the fetch. */
static void step_stop_under_way(struct rig *rig) {
    begin(rig, rig->url);
    http_fetcher_stop(rig->fetcher, on_stopped, rig);
}

static void fetcher_stop_cancels_running_fetches(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    set_url(&rig, &server.host.bound, "http", "/hello");
    rig_end(&rig, step_stop_under_way);
    assert_true(rig.got[0].done);
    assert_int_equal(rig.got[0].status, ST_CANCELLED);
    test_server_stop(&server);
}

/* ---- servers that do not answer -------------------------------------------------------------- */

static void fetch_closed_port_is_refused(void **state) {
    (void)state;
    struct rig rig;
    struct address address;
    close(listen_at(&address));
    rig_init(&rig, NULL);
    const struct got *got = fetch(&rig, &address, "/");
    assert_int_equal(got->status, ST_IO);
    assert_true(got->refused);
    assert_int_equal(got->http, 0);
    assert_string_equal(got->why, "refused the connection");
    rig_fini(&rig);
}

static void fetch_without_answer_times_out(void **state) {
    (void)state;
    struct rig rig;
    struct address address;
    int fd = listen_at(&address); /* connections are established, but never accepted */
    rig_init(&rig, NULL);
    rig.ask.timeout_ns = SECOND / 20;
    uint64_t begun_ns = clock_now_ns();
    const struct got *got = fetch(&rig, &address, "/");
    assert_true(clock_now_ns() - begun_ns >= SECOND / 20 - 1000000);
    assert_int_equal(got->status, ST_DEADLINE_EXCEEDED);
    assert_false(got->refused);
    assert_string_equal(got->why, "timed out");
    rig_fini(&rig);
    close(fd);
}

/* A server of one connection that sends a configured response. */
struct rude {
    int fd;
    const char *says;
    pthread_t thread;
};

static void *be_rude(void *arg) {
    struct rude *rude = arg;
    int fd = accept(rude->fd, NULL, NULL);
    char head[1000];
    assert_true(fd >= 0);
    read_head(fd, head, sizeof(head));
    test_try_send(fd, rude->says, strlen(rude->says));
    close(fd);
    return NULL;
}

static const struct rude_row {
    const char *says;
    enum status status;
    int http;
    const char *why;
} RUDE[] = {
    {"", ST_IO, 0, "closed the connection without an answer"},
    {"hello\r\n", ST_BAD_ANSWER, 0, "answered with something that is not HTTP"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", ST_BAD_ANSWER, 200,
     "closed the connection within its answer"},
    {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1000000\r\n\r\n", ST_BODY_TOO_LARGE, 503,
     "answered with more than 100 bytes"},
    /* Redirections are not followed. */
    {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", ST_OK, 302,
     ""},
    {"HTTP/1.1 200 OK\r\n\r\nup to the end", ST_OK, 200, ""},
};

static void fetch_invalid_responses_match_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(RUDE) / sizeof(RUDE[0]); i++) {
        struct rude rude = {.says = RUDE[i].says};
        struct address address;
        struct rig rig;
        rude.fd = listen_at(&address);
        assert_int_equal(pthread_create(&rude.thread, NULL, be_rude, &rude), 0);
        rig_init(&rig, NULL);
        const struct got *got = fetch(&rig, &address, "/");
        assert_int_equal(got->status, RUDE[i].status);
        assert_int_equal(got->http, RUDE[i].http);
        assert_string_equal(got->why, RUDE[i].why);
        rig_fini(&rig);
        pthread_join(rude.thread, NULL);
        close(rude.fd);
    }
}

/* The environment's proxy is not used: it cannot reach the addresses. */
static void fetch_ignores_proxy_environment(void **state) {
    (void)state;
    struct test_server server;
    struct net_limits limits = test_limits();
    struct rig rig;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    test_server_start(&server, &limits, "127.0.0.1:0");
    rig_init(&rig, NULL);
    assert_int_equal(fetch(&rig, &server.host.bound, "/hello")->http, 200);
    rig_fini(&rig);
    test_server_stop(&server);
    unsetenv("http_proxy");
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static const char *write_pem(const char *dir, const char *name, const char *text) {
    static char paths[4][100];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static void fetch_over_tls_verifies_server(void **state) {
    (void)state;
    char dir[] = "/tmp/http_fetch_test.XXXXXX";
    struct test_identity identity, other;
    struct test_server server;
    struct tls_server *tls;
    struct net_limits limits = test_limits();
    struct rig rig;
    struct error err;
    assert_non_null(mkdtemp(dir));
    test_identity_init(&identity, "localhost", NULL);
    test_identity_init(&other, "other", NULL);
    const char *cert = write_pem(dir, "cert", identity.cert_pem);
    const char *key = write_pem(dir, "key", identity.key_pem);
    struct tls_server_options options = {.cert = {"cert", cert}, .key = {"key", key}};
    assert_int_equal(tls_server_new(&options, time(NULL), &tls, &err), ST_OK);
    test_server_start_over(&server, &limits, test_budget(), "127.0.0.1:0", tls);
    const struct {
        struct http_fetch_tls tls;
        enum status status;
    } rows[] = {
        {{.ca = cert}, ST_OK},
        {{.insecure = true}, ST_OK},
        {{.ca = NULL}, ST_IO}, /* unknown CA */
        {{.ca_pem = str_of(identity.cert_pem)}, ST_OK},
        {{.ca = "/nowhere", .ca_pem = str_of(identity.cert_pem)}, ST_OK},
        {{.ca_pem = str_of(other.cert_pem)}, ST_IO},
        {{.ca = cert, .name = "localhost"}, ST_OK},
        {{.ca = cert, .name = "elsewhere.example"}, ST_IO},
        /* Sent to a server that does not request one. */
        {{.ca = cert, .cert_pem = str_of(other.cert_pem), .key_pem = str_of(other.key_pem)}, ST_OK},
        {{.ca = cert, .cert_pem = str_of(other.cert_pem), .key_pem = STR("no key")}, ST_IO},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_init(&rig, &rows[i].tls);
        set_url(&rig, &server.host.bound, "https", "/hello");
        run(&rig, step_one, 1);
        assert_int_equal(rig.got[0].status, rows[i].status);
        assert_string_equal(rig.got[0].body, rows[i].status == ST_OK ? "hello" : "");
        rig_fini(&rig);
    }
    test_server_stop(&server);
    tls_server_free(tls);
    unlink(cert);
    unlink(key);
    assert_int_equal(rmdir(dir), 0);
    test_identity_fini(&identity);
    test_identity_fini(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetch_returns_status_type_and_body),
        cmocka_unit_test(fetch_reuses_idle_connection),
        cmocka_unit_test(fetch_body_over_limit_is_body_too_large),
        cmocka_unit_test(fetch_body_in_pieces_is_not_buffered),
        cmocka_unit_test(fetch_many_at_once_some_cancelled),
        cmocka_unit_test(fetcher_stop_cancels_running_fetches),
        cmocka_unit_test(fetch_closed_port_is_refused),
        cmocka_unit_test(fetch_without_answer_times_out),
        cmocka_unit_test(fetch_keepalive_detects_lost_server),
        cmocka_unit_test(fetch_invalid_responses_match_table),
        cmocka_unit_test(fetch_ignores_proxy_environment),
        cmocka_unit_test(fetch_over_tls_verifies_server),
    };
    return cmocka_run_group_tests_name("net/client/http_fetch", tests, NULL, NULL);
}
