/* Since when a connection counts as idle, by which connections make room for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/server/stepped_server_fixture.h"

static const uint64_t NOW_NS = UINT64_C(10000000000);

/* Heads are never complete. */
static enum net_timeout timeout_of(const struct net_conn *conn, bool *keep_running) {
    (void)conn;
    *keep_running = true;
    return NET_TIMEOUT_HEAD;
}

/* A server that is late finds a crowd of new connections before it has read from any: they are not
 * older than those that are idle. One of which a part of the head was read goes before them. */
static void conn_that_was_not_read_is_idle_since_it_came(void **state) {
    (void)state;
    static struct stepped_server base;
    struct net_protocol protocol = stepped_protocol();
    protocol.timeout_of = timeout_of;
    stepped_server_open(&base, protocol, (struct net_limits){.header_timeout_ns = NOW_NS}, NOW_NS);
    int client = test_connect_to(&base.bound);
    while (base.server.workers[0].n_conns == 0) {
        stepped_server_step(&base);
    }
    const struct net_conn *conn = LIST_FIRST(&base.server.workers[0].conns);
    assert_int_equal(conn->entry.idle_since_ns, NOW_NS);
    assert_int_equal(send(client, "G", 1, 0), 1);
    while (conn->n_read == 0) {
        stepped_server_step(&base);
    }
    assert_in_range(conn->entry.idle_since_ns, 1, NOW_NS - UINT64_C(500000000));
    stepped_server_close(&base);
    close(client);
}

static void age_with_jitter_stays_within_a_tenth(void **state) {
    (void)state;
    struct prng prng = {7};
    uint64_t least_ns = UINT64_MAX, most_ns = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t age_ns = net_age_with_jitter(&prng, 1000000);
        least_ns = age_ns < least_ns ? age_ns : least_ns;
        most_ns = age_ns > most_ns ? age_ns : most_ns;
    }
    assert_in_range(least_ns, 900000, 910000);
    assert_in_range(most_ns, 1090000, 1100000);
    assert_int_equal(net_age_with_jitter(&prng, 5), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conn_that_was_not_read_is_idle_since_it_came),
        cmocka_unit_test(age_with_jitter_stays_within_a_tenth),
    };
    return cmocka_run_group_tests_name("net/server/conn", tests, NULL, NULL);
}
