/* What many connections have to send is sent in parts, between which the event loop polls. The test
 * runs the loop step by step, and each message that is sent takes a time of the fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "net/server/grpc/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

enum { N_CONNS = 40, SEND_NS = 500000, MESSAGE_BYTES = 30000, PREFACE_BYTES = 33 };

/* Of one step of the loop, which may run deferred tasks before and after its poll. */
static const size_t MOST_AT_ONCE = 2 * LOOP_EVENTS_NS / SEND_NS;

static const char REQUEST[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                              "\0\0\0\4\0\0\0\0\0"
                              "\0\0\x2e\1\4\0\0\0\1"
                              "\x83\x86\4\7/t.T/Go\1\1a"
                              "\x0f\x10\x10"
                              "application/grpc"
                              "\0\2te\x08"
                              "trailers";

/* A server on one worker, whose loop the test runs. */
struct rig {
    struct grpc_server *server;
    struct grpc_method method;
    struct net_budget budget;
    struct worker *worker;
    struct address bound;
    int clients[N_CONNS];
    struct grpc_call *calls[N_CONNS];
    size_t n_calls, n_sent;
    uint64_t now_ns;
    bool stopped;
};

static void on_event(struct grpc_call *call, enum grpc_event event) {
    struct rig *rig = call->method->context;
    if (event == GRPC_BEGIN) {
        rig->calls[rig->n_calls++] = call;
    } else if (event == GRPC_CANCELLED) {
        grpc_finish(call, &call->cancel_error);
    }
}

static void on_sent(void *user) {
    struct rig *rig = user;
    rig->n_sent++;
    rig->now_ns += SEND_NS;
    clock_set_fake_ns(rig->now_ns);
}

static void step(struct rig *rig) {
    uv_run(worker_loop(rig->worker), UV_RUN_NOWAIT);
}

/* `n_calls` of the connections begin a call. */
static void rig_open(struct rig *rig, size_t n_calls) {
    struct error err;
    struct address any;
    *rig = (struct rig){
        .budget = test_budget(),
        .method = {.path = "/t.T/Go", .on_event = on_event, .streams = true, .context = rig},
        .now_ns = UINT64_C(1000000000)};
    clock_set_fake_ns(rig->now_ns);
    assert_int_equal(worker_new("test", &rig->worker, &err), ST_OK);
    struct grpc_server_options options = {
        .limits = {.net = {.max_header_size = 8192, .max_body_size = 1 << 20},
                   .max_streams = 100,
                   .stream_window_bytes = 1 << 16,
                   .connection_window_bytes = 1 << 16},
        .budget = &rig->budget,
        .methods = &rig->method,
        .n_methods = 1,
        .workers = &rig->worker,
        .n_workers = 1,
        .acceptor = rig->worker};
    assert_int_equal(grpc_server_new(&options, &rig->server, &err), ST_OK);
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &any, &err), ST_OK);
    assert_int_equal(grpc_server_listen(rig->server, &any, NULL, &rig->bound, &err), ST_OK);
    for (size_t i = 0; i < N_CONNS; i++) {
        rig->clients[i] = test_connect_to(&rig->bound);
        ssize_t n_bytes = i < n_calls ? sizeof(REQUEST) - 1 : PREFACE_BYTES;
        assert_int_equal(send(rig->clients[i], REQUEST, (size_t)n_bytes, 0), n_bytes);
    }
    while (rig->n_calls < n_calls) {
        step(rig);
    }
}

static void on_stopped(void *user) {
    ((struct rig *)user)->stopped = true;
}

static void rig_close(struct rig *rig) {
    net_server_stop(grpc_server_net(rig->server), on_stopped, rig);
    while (!rig->stopped) {
        step(rig);
    }
    for (size_t i = 0; i < N_CONNS; i++) {
        close(rig->clients[i]);
    }
    grpc_server_free(rig->server);
    worker_free(rig->worker);
    clock_set_fake_ns(0);
}

static void send_to(struct rig *rig, size_t i) {
    static char message[MESSAGE_BYTES];
    const struct piece piece = {message, sizeof(message)};
    grpc_send(rig->calls[i], &piece, 1, on_sent, rig);
}

static void send_to_all(struct rig *rig) {
    for (size_t i = 0; i < rig->n_calls; i++) {
        send_to(rig, i);
    }
}

static void flush_of_many_connections_is_done_in_parts(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig, N_CONNS);
    send_to_all(&rig);
    size_t most = 0;
    while (rig.n_sent < N_CONNS) {
        size_t before = rig.n_sent;
        step(&rig);
        most = rig.n_sent - before > most ? rig.n_sent - before : most;
    }
    assert_in_range(most, 1, MOST_AT_ONCE);
    rig_close(&rig);
}

/* Those that are next in turn may be among them. */
static void flush_connections_that_close_meanwhile_are_left_out(void **state) {
    (void)state;
    static struct rig rig;
    rig_open(&rig, N_CONNS);
    send_to_all(&rig);
    step(&rig);
    assert_in_range(rig.n_sent, 1, MOST_AT_ONCE);
    rig_close(&rig);
    assert_int_equal(rig.n_sent, N_CONNS); /* released, sent or not */
}

/* Reads what the server has sent. */
static bool is_told_to_go(int client) {
    enum { FRAME_HEADER_BYTES = 9, TYPE_AT = 3, GOAWAY = 7 };
    unsigned char bytes[4096];
    ssize_t n = recv(client, bytes, sizeof(bytes), MSG_DONTWAIT);
    for (ssize_t at = 0; at + FRAME_HEADER_BYTES <= n;) {
        if (bytes[at + TYPE_AT] == GOAWAY) {
            return true;
        }
        at += FRAME_HEADER_BYTES + (bytes[at] << 16 | bytes[at + 1] << 8 | bytes[at + 2]);
    }
    return false;
}

/* The calls are sent first, so that the other connections have output when none is in flight. */
static void flush_of_a_drain_is_awaited(void **state) {
    (void)state;
    static struct rig rig;
    static const struct error OK = {.status = ST_OK};
    for (size_t n_calls = 16; n_calls <= 24; n_calls++) {
        rig_open(&rig, n_calls);
        for (int i = 0; i < 10; i++) {
            step(&rig); /* the others are read */
        }
        for (size_t i = 0; i < n_calls; i++) {
            send_to(&rig, i);
            grpc_finish(rig.calls[i], &OK);
        }
        net_server_drain(grpc_server_net(rig.server));
        while (net_server_in_flight(grpc_server_net(rig.server)) > 0) {
            step(&rig);
        }
        for (size_t i = n_calls; i < N_CONNS; i++) {
            assert_true(is_told_to_go(rig.clients[i]));
        }
        rig_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_of_many_connections_is_done_in_parts),
        cmocka_unit_test(flush_connections_that_close_meanwhile_are_left_out),
        cmocka_unit_test(flush_of_a_drain_is_awaited)};
    return cmocka_run_group_tests_name("net/server/grpc/flush", tests, NULL, NULL);
}
