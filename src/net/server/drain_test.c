/* A drain tells the connections of a worker in parts, between which the event loop polls. The test
 * runs the loop step by step, and each connection that is told takes a time of the fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "net/server/stepped_server_fixture.h"

enum { N_CONNS = 40, TOLD_NS = 500000 };

/* Of one iteration: the first event of its kind reads no clock, and the one that has begun is
 * completed. */
static const size_t MOST_AT_ONCE = LOOP_EVENTS_NS / TOLD_NS + 2;

struct rig {
    struct stepped_server base;
    int clients[N_CONNS];
    uint64_t now_ns;
    size_t n_told;
};

static void on_drain(struct net_conn *conn) {
    struct rig *rig = CONTAINER_OF(conn->server_worker->server, struct rig, base.server);
    rig->n_told++;
    rig->now_ns += TOLD_NS;
    clock_set_fake_ns(rig->now_ns);
}

static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    (void)conn;
    *keep_running = true;
    return NET_TIMEOUT_NONE;
}

static void rig_open(struct rig *rig) {
    struct net_protocol protocol = stepped_protocol();
    protocol.timeout_of = timeout_of;
    protocol.on_drain = on_drain;
    *rig = (struct rig){.now_ns = UINT64_C(1000000000)};
    stepped_server_open(&rig->base, protocol, (struct net_limits){0}, rig->now_ns);
    for (size_t i = 0; i < N_CONNS; i++) {
        rig->clients[i] = test_connect_to(&rig->base.bound);
    }
    while (rig->base.server.workers[0].n_conns < N_CONNS) {
        stepped_server_step(&rig->base);
    }
}

static void rig_close(struct rig *rig) {
    stepped_server_close(&rig->base);
    for (size_t i = 0; i < N_CONNS; i++) {
        close(rig->clients[i]);
    }
}

/* Runs the loop until so many connections are told. Returns: the most of one iteration. */
static size_t step_until_told(struct rig *rig, size_t n) {
    size_t most = 0;
    while (rig->n_told < n) {
        size_t before = rig->n_told;
        assert_int_equal(net_server_in_flight(&rig->base.server),
                         1); /* the process waits for them */
        stepped_server_step(&rig->base);
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
    net_server_drain(&rig.base.server);
    assert_in_range(step_until_told(&rig, N_CONNS), 1, MOST_AT_ONCE);
    stepped_server_step(&rig.base);
    assert_int_equal(rig.n_told, N_CONNS); /* each once */
    assert_int_equal(net_server_in_flight(&rig.base.server), 0);
    rig_close(&rig);
}

/* Those that are told next may be among them. */
static void drain_connections_that_close_meanwhile_are_left_out(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig);
    net_server_drain(&rig.base.server);
    step_until_told(&rig, 1);
    struct server_worker *worker = &rig.base.server.workers[0];
    size_t n_open = N_CONNS;
    while (worker->drain_next) {
        struct net_conn *next = worker->drain_next, *after = LIST_NEXT(next, link);
        net_conn_close(next);
        n_open--;
        if (after) {
            net_conn_close(after);
            n_open--;
        }
        stepped_server_step(&rig.base);
    }
    while (worker->n_conns > n_open) {
        stepped_server_step(&rig.base);
    }
    assert_int_equal(worker->n_conns, n_open);
    assert_int_equal(rig.n_told, n_open);
    stepped_server_step(&rig.base); /* they are closed, which defers work */
    stepped_server_step(&rig.base);
    assert_int_equal(net_server_in_flight(&rig.base.server), 0);
    rig_close(&rig);
}

static void drain_that_is_stopped_ends(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig);
    net_server_drain(&rig.base.server);
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
