/* Fixture for tests that run a server's event loop step by step, with a fake clock: a server on one
 * worker, of a protocol without requests, which drops what it reads. */
#ifndef SLUICE_NET_SERVER_STEPPED_SERVER_FIXTURE_H
#define SLUICE_NET_SERVER_STEPPED_SERVER_FIXTURE_H

#include "core/event/clock.h"
#include "net/server/conn.h"
#include "net/server/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

struct stepped_server {
    struct net_server server;
    struct net_budget budget;
    struct net_protocol protocol;
    struct worker *worker;
    struct address bound;
    bool stopped;
};

/* ---- a protocol without requests ------------------------------------------------------------- */

static inline bool stepped_on_bytes(struct net_conn *conn, struct str *data) {
    net_conn_discard(conn, data);
    return true;
}

static inline char *stepped_read_buffer(struct net_conn *conn, size_t *n_bytes) {
    (void)conn, (void)n_bytes;
    return NULL;
}

static inline bool stepped_on_eof(struct net_conn *conn) {
    (void)conn;
    return false;
}

static inline void stepped_on_close(struct net_conn *conn) {
    (void)conn;
}

static inline bool stepped_says_yes(const struct net_conn *conn) {
    (void)conn;
    return true;
}

/* The test sets `timeout_of`, and what else it wants. */
static inline struct net_protocol stepped_protocol(void) {
    return (struct net_protocol){.name = "test",
                                 .conn_bytes = sizeof(struct net_conn),
                                 .conn_memory_bytes = 4096,
                                 .on_bytes = stepped_on_bytes,
                                 .read_buffer = stepped_read_buffer,
                                 .on_eof = stepped_on_eof,
                                 .on_close = stepped_on_close,
                                 .wants_to_read = stepped_says_yes,
                                 .is_idle = stepped_says_yes};
}

/* ---- the server ------------------------------------------------------------------------------ */

/* One iteration of the loop. */
static inline void stepped_server_step(struct stepped_server *self) {
    uv_run(worker_loop(self->worker), UV_RUN_NOWAIT);
}

/* Listens from `now_ns` of the fake clock on. */
static inline void stepped_server_open(struct stepped_server *self, struct net_protocol protocol,
                                       struct net_limits limits, uint64_t now_ns) {
    struct error err;
    struct address any;
    *self = (struct stepped_server){.budget = test_budget(), .protocol = protocol};
    clock_set_fake_ns(now_ns);
    assert_int_equal(worker_new("test", &self->worker, &err), ST_OK);
    const struct net_server_options options = {.protocol = &self->protocol,
                                               .limits = limits,
                                               .budget = &self->budget,
                                               .workers = &self->worker,
                                               .n_workers = 1,
                                               .acceptor = self->worker};
    assert_int_equal(net_server_init(&self->server, &options, &err), ST_OK);
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &any, &err), ST_OK);
    assert_int_equal(net_server_listen(&self->server, &any, NULL, NULL, &self->bound, &err), ST_OK);
}

static inline void stepped_server_on_stopped(void *user) {
    ((struct stepped_server *)user)->stopped = true;
}

/* Ends its connections as well. */
static inline void stepped_server_close(struct stepped_server *self) {
    net_server_stop(&self->server, stepped_server_on_stopped, self);
    while (!self->stopped) {
        stepped_server_step(self);
    }
    net_server_fini(&self->server);
    worker_free(self->worker);
    assert_int_equal(self->budget.n_conns, 0);
    clock_set_fake_ns(0);
}

#endif
