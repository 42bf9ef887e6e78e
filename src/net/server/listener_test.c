/* The options that accepted sockets inherit from their listener. */
#include "net/server/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/str.h"
#include "net/server/limits.h"
#include "net/server/socket_memory.h"

struct accepted {
    int fd;
    uv_loop_t *loop;
};

static void on_accept(void *user, int fd, int family, uint64_t host) {
    struct accepted *accepted = user;
    assert_int_equal(family, AF_INET);
    assert_true(host != 0);
    accepted->fd = fd;
    uv_stop(accepted->loop);
}

static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof(value);
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* Accepts one connection of a listener. Returns: its socket. */
static int accept_one(const struct net_limits *limits, struct socket_bytes sizes) {
    uv_loop_t loop;
    struct error err;
    struct listener *listener;
    struct address address, bound;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct accepted accepted = {.fd = -1, .loop = &loop};
    struct listener_events events = {.on_accept = on_accept, .user = &accepted};
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &address, &err), ST_OK);
    assert_int_equal(
        listener_open(&loop, &address, limits, sizes, &events, &listener, &bound, &err), ST_OK);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&bound.storage, bound.len), 0);
    while (accepted.fd < 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    close(client);
    listener_close(listener);
    while (uv_loop_close(&loop) != 0) {
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    return accepted.fd;
}

static void accepted_sockets_have_keepalive(void **state) {
    (void)state;
    const uint64_t second = 1000000000u;
    static const struct {
        uint64_t keepalive_s, write_s;
        int idle_s, interval_s, user_s;
    } ROWS[] = {
        {20, 30, 20, 5, 40},
        {20, 300, 20, 5, 300}, /* a closed window is the write timeout's */
        {1, 1, 1, 1, 5},
        {86400, 30, 32767, 21600, 32767 + 4 * 21600},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct net_limits limits = {.keepalive_time_ns = ROWS[i].keepalive_s * second,
                                    .write_timeout_ns = ROWS[i].write_s * second};
        int fd = accept_one(&limits, (struct socket_bytes){0});
        assert_int_equal(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), ROWS[i].idle_s);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), ROWS[i].interval_s);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 4);
        assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) / 1000, ROWS[i].user_s);
        close(fd);
    }
}

#ifndef SO_BUF_LOCK /* headers of a kernel before 5.15 */
#define SO_BUF_LOCK 72
#endif

static void accepted_sockets_have_small_receive_buffers_that_grow(void **state) {
    (void)state;
    struct net_limits limits = {0};
    int usual = accept_one(&limits, (struct socket_bytes){0});
    int usual_bytes = option_of(usual, SOL_SOCKET, SO_RCVBUF);
    close(usual);
    int small = accept_one(&limits, (struct socket_bytes){.receive = 16384});
    assert_int_equal(option_of(small, SOL_SOCKET, SO_RCVBUF), 16384);
    assert_int_equal(option_of(small, SOL_SOCKET, SO_BUF_LOCK), 0); /* it would not grow */
    close(small);
    int large = accept_one(&limits, (struct socket_bytes){.receive = usual_bytes + 2}); /* the
                                                                                           kernel's
                                                                                           default
                                                                                           stays */
    assert_int_equal(option_of(large, SOL_SOCKET, SO_RCVBUF), usual_bytes);
    close(large);
}

static void accepted_sockets_limit_unsent_output(void **state) {
    (void)state;
    struct net_limits limits = {0};
    int fd = accept_one(&limits, (struct socket_bytes){.unsent = 262144});
    assert_int_equal(option_of(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 262144);
    close(fd);
}

static void sizes_of_sockets_depend_on_memory(void **state) {
    (void)state;
    static const struct {
        uint64_t memory;
        int n_bytes, n_unsent;
    } ROWS[] = {
        {0, 0, 1 << 20},
        {1 << 20, 16384, 131072},
        {UINT64_C(256) << 20, 16384, 131072},
        {UINT64_C(1) << 30, 32768, 131072},
        {UINT64_C(2) << 30, 65536, 262144},
        {UINT64_C(8) << 30, 262144, 1 << 20},
        {UINT64_C(1) << 44, 0, 1 << 20},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct net_budget budget = {.memory = ROWS[i].memory};
        assert_int_equal(server_receive_bytes(&budget), ROWS[i].n_bytes);
        assert_int_equal(server_unsent_bytes(&budget), ROWS[i].n_unsent);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted_sockets_have_keepalive),
        cmocka_unit_test(accepted_sockets_have_small_receive_buffers_that_grow),
        cmocka_unit_test(accepted_sockets_limit_unsent_output),
        cmocka_unit_test(sizes_of_sockets_depend_on_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
