/* A drain tells the connections of a worker in parts, between which the event loop polls. The test
 * runs the loop step by step, and each connection that is told takes a time of the fake clock. */
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

enum { N_CONNS = 40, TOLD_NS = 500000 };

/* Of one iteration: the first event of its kind reads no clock, and the one that has begun is
 * completed. */
static const size_t MOST_AT_ONCE = LOOP_EVENTS_NS / TOLD_NS + 2;

/* A server on one worker, whose loop the test runs. */
struct rig {
    struct net_server server;
    struct net_budget budget;
    struct worker *worker;
    struct address bound;
    int clients[N_CONNS];
    uint64_t now_ns;
    size_t n_told;
    bool stopped;
    struct net_protocol protocol;
};

/* ---- a protocol without requests ------------------------------------------------------------- */

static void on_drain(struct net_conn *conn) {
    struct rig *rig = CONTAINER_OF(conn->server_worker->server, struct rig, server);
    rig->n_told++;
    rig->now_ns += TOLD_NS;
    clock_set_fake_ns(rig->now_ns);
}

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
    return NET_TIMEOUT_NONE;
}

/* ---- the rig --------------------------------------------------------------------------------- */

/* One iteration of the loop. */
static void step(struct rig *rig) {
    uv_run(worker_loop(rig->worker), UV_RUN_NOWAIT);
}

static void rig_open(struct rig *rig) {
    struct error err;
    *rig = (struct rig){.budget = test_budget(),
                        .now_ns = UINT64_C(1000000000),
                        .protocol = {.name = "test",
                                     .conn_bytes = sizeof(struct net_conn),
                                     .conn_memory_bytes = 4096,
                                     .on_bytes = on_bytes,
                                     .read_buffer = read_buffer,
                                     .on_eof = on_eof,
                                     .on_close = on_close,
                                     .wants_to_read = says_yes,
                                     .timeout_of = timeout_of,
                                     .is_idle = says_yes,
                                     .on_drain = on_drain}};
    clock_set_fake_ns(rig->now_ns);
    assert_int_equal(worker_new("test", &rig->worker, &err), ST_OK);
    const struct net_server_options options = {.protocol = &rig->protocol,
                                               .budget = &rig->budget,
                                               .workers = &rig->worker,
                                               .n_workers = 1,
                                               .acceptor = rig->worker};
    struct address any;
    assert_int_equal(net_server_init(&rig->server, &options, &err), ST_OK);
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &any, &err), ST_OK);
    assert_int_equal(net_server_listen(&rig->server, &any, NULL, NULL, &rig->bound, &err), ST_OK);
    for (size_t i = 0; i < N_CONNS; i++) {
        rig->clients[i] = test_connect_to(&rig->bound);
    }
    while (rig->server.workers[0].n_conns < N_CONNS) {
        step(rig);
    }
}

static void on_stopped(void *user) {
    ((struct rig *)user)->stopped = true;
}

static void rig_close(struct rig *rig) {
    net_server_stop(&rig->server, on_stopped, rig);
    while (!rig->stopped) {
        step(rig);
    }
    for (size_t i = 0; i < N_CONNS; i++) {
        close(rig->clients[i]);
    }
    net_server_fini(&rig->server);
    worker_free(rig->worker);
    assert_int_equal(rig->budget.n_conns, 0);
    clock_set_fake_ns(0);
}

/* Runs the loop until so many connections are told. Returns: the most of one iteration. */
static size_t step_until_told(struct rig *rig, size_t n) {
    size_t most = 0;
    while (rig->n_told < n) {
        size_t before = rig->n_told;
        assert_int_equal(net_server_in_flight(&rig->server), 1); /* the process waits for them */
        step(rig);
        size_t told = rig->n_told - before;
        most = told > most ? told : most;
    }
    return most;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void drain_tells_connections_in_parts(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig);
    net_server_drain(&rig.server);
    assert_in_range(step_until_told(&rig, N_CONNS), 1, MOST_AT_ONCE);
    step(&rig);
    assert_int_equal(rig.n_told, N_CONNS); /* each once */
    assert_int_equal(net_server_in_flight(&rig.server), 0);
    rig_close(&rig);
}

/* Those that are told next may be among them. */
static void drain_connections_that_close_meanwhile_are_left_out(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig);
    net_server_drain(&rig.server);
    step_until_told(&rig, 1);
    struct server_worker *worker = &rig.server.workers[0];
    size_t n_open = N_CONNS;
    while (worker->drain_next) {
        struct net_conn *next = worker->drain_next, *after = LIST_NEXT(next, link);
        net_conn_close(next);
        n_open--;
        if (after) {
            net_conn_close(after);
            n_open--;
        }
        step(&rig);
    }
    while (worker->n_conns > n_open) {
        step(&rig);
    }
    assert_int_equal(worker->n_conns, n_open);
    assert_int_equal(rig.n_told, n_open);
    step(&rig); /* they are closed, which defers work */
    step(&rig);
    assert_int_equal(net_server_in_flight(&rig.server), 0);
    rig_close(&rig);
}

static void drain_that_is_stopped_ends(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig);
    net_server_drain(&rig.server);
    step_until_told(&rig, 1);
    assert_true(rig.n_told < N_CONNS);
    rig_close(&rig);
    assert_true(rig.n_told < N_CONNS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drain_tells_connections_in_parts),
        cmocka_unit_test(drain_connections_that_close_meanwhile_are_left_out),
        cmocka_unit_test(drain_that_is_stopped_ends),
    };
    return cmocka_run_group_tests_name("net/server/drain", tests, NULL, NULL);
}
