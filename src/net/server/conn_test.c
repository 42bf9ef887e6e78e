/* Since when a connection counts as idle, by which connections make room for others. The test runs
 * the loop step by step, with a fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/server/conn.h"
#include "net/server/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

static const uint64_t NOW_NS = UINT64_C(10000000000);

/* ---- a protocol whose heads are never complete ----------------------------------------------- */

static bool on_bytes(struct net_conn *conn, struct str *data) {
    net_conn_discard(conn, data);
    return true;
}

static char *read_buffer(struct net_conn *conn, size_t *n_bytes) {
    (void)conn, (void)n_bytes;
    return NULL;
}

static bool on_eof(struct net_conn *conn) {
    (void)conn;
    return false;
}

static void on_close(struct net_conn *conn) {
    (void)conn;
}

static bool says_yes(const struct net_conn *conn) {
    (void)conn;
    return true;
}

static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    (void)conn;
    *keep_running = true;
    return NET_TIMEOUT_HEAD;
}

static void on_stopped(void *user) {
    *(bool *)user = true;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A server that is late finds a crowd of new connections before it has read from any: they are not
 * older than those that are idle. One of which a part of the head was read goes before them. */
static void conn_that_was_not_read_is_idle_since_it_came(void **state) {
    (void)state;
    static const struct net_protocol protocol = {.name = "test",
                                                 .conn_bytes = sizeof(struct net_conn),
                                                 .conn_memory_bytes = 4096,
                                                 .on_bytes = on_bytes,
                                                 .read_buffer = read_buffer,
                                                 .on_eof = on_eof,
                                                 .on_close = on_close,
                                                 .wants_to_read = says_yes,
                                                 .timeout_of = timeout_of,
                                                 .is_idle = says_yes};
    static struct net_server server;
    static struct net_budget budget;
    struct worker *worker;
    struct address any, bound;
    struct error err;
    bool stopped = false;
    clock_set_fake_ns(NOW_NS);
    budget = test_budget();
    assert_int_equal(worker_new("test", &worker, &err), ST_OK);
    const struct net_server_options options = {.protocol = &protocol,
                                               .limits = {.header_timeout_ns = NOW_NS},
                                               .budget = &budget,
                                               .workers = &worker,
                                               .n_workers = 1,
                                               .acceptor = worker};
    assert_int_equal(net_server_init(&server, &options, &err), ST_OK);
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &any, &err), ST_OK);
    assert_int_equal(net_server_listen(&server, &any, NULL, NULL, &bound, &err), ST_OK);
    int client = test_connect_to(&bound);
    while (server.workers[0].n_conns == 0) {
        uv_run(worker_loop(worker), UV_RUN_NOWAIT);
    }
    const struct net_conn *conn = LIST_FIRST(&server.workers[0].conns);
    assert_int_equal(conn->entry.idle_since_ns, NOW_NS);
    assert_int_equal(send(client, "G", 1, 0), 1);
    while (conn->n_read == 0) {
        uv_run(worker_loop(worker), UV_RUN_NOWAIT);
    }
    assert_in_range(conn->entry.idle_since_ns, 1, NOW_NS - UINT64_C(500000000));
    net_server_stop(&server, on_stopped, &stopped);
    while (!stopped) {
        uv_run(worker_loop(worker), UV_RUN_NOWAIT);
    }
    close(client);
    net_server_fini(&server);
    worker_free(worker);
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conn_that_was_not_read_is_idle_since_it_came),
    };
    return cmocka_run_group_tests_name("net/server/conn", tests, NULL, NULL);
}
