/* Fixture for the server tests of every protocol: two workers to host a server, its budget, checks
 * that nothing leaks, and a client of plain sockets without threads. */
#ifndef SLUICE_NET_SERVER_SERVER_FIXTURE_H
#define SLUICE_NET_SERVER_SERVER_FIXTURE_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "core/event/lock.h"
#include "core/event/worker.h"
#include "net/transport/address.h"
#include "net/transport/budget.h"

enum { TEST_WORKERS = 2 };

struct test_host {
    struct worker *workers[TEST_WORKERS]; /* the first accepts */
    struct address bound;
    struct net_budget budget;
    struct worker_msg control;
    bool stop_asked, stopped;
    struct lock lock;
    struct lock_cond cond;
};

/* ---- the server's side ----------------------------------------------------------------------- */

/* A large budget. */
static inline struct net_budget test_budget(void) {
    return (struct net_budget){.body_memory = 64 << 20, .max_connections = 1000};
}

static inline void test_host_init(struct test_host *host, struct net_budget budget) {
    struct error err;
    *host = (struct test_host){.budget = budget};
    lock_init(&host->lock);
    lock_cond_init(&host->cond);
    for (int i = 0; i < TEST_WORKERS; i++) {
        assert_int_equal(worker_new("test", &host->workers[i], &err), ST_OK);
    }
}

static inline void test_host_start(struct test_host *host) {
    struct error err;
    for (int i = 0; i < TEST_WORKERS; i++) {
        assert_int_equal(worker_start(host->workers[i], &err), ST_OK);
    }
}

/* Runs a function on the acceptor; one at a time. */
static inline void test_host_control(struct test_host *host, void (*run)(struct worker_msg *)) {
    host->control.run = run;
    worker_post(host->workers[0], &host->control);
}

static inline void test_host_ask_stop(struct test_host *host, void (*run)(struct worker_msg *)) {
    if (!host->stop_asked) {
        host->stop_asked = true;
        test_host_control(host, run);
    }
}

/* `done` callback of a server's stop. */
static inline void test_host_stopped(void *user) {
    struct test_host *host = user;
    lock_acquire(&host->lock);
    host->stopped = true;
    lock_cond_broadcast(&host->cond);
    lock_release(&host->lock);
}

static inline void test_host_wait(struct test_host *host) {
    lock_acquire(&host->lock);
    while (!host->stopped) {
        lock_cond_wait(&host->lock, &host->cond);
    }
    lock_release(&host->lock);
}

/* After the server is freed: checks that nothing leaked. */
static inline void test_host_fini(struct test_host *host) {
    static const enum metric GAUGES[] = {METRIC_CONNECTIONS, METRIC_REQUESTS_IN_FLIGHT,
                                         METRIC_BODY_BYTES_IN_FLIGHT, METRIC_ARENAS};
    for (int i = 0; i < TEST_WORKERS; i++) {
        worker_stop(host->workers[i]);
        worker_join(host->workers[i]);
        worker_free(host->workers[i]);
    }
    assert_true(host->budget.n_body_bytes == 0 && host->budget.n_conns == 0);
    for (size_t i = 0; i < sizeof(GAUGES) / sizeof(GAUGES[0]); i++) {
        assert_int_equal(metric_read(GAUGES[i]), 0);
    }
    lock_cond_fini(&host->cond);
    lock_fini(&host->lock);
}

/* ---- the client ------------------------------------------------------------------------------ */

static inline int test_connect_to(const struct address *address) {
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int rc = connect(fd, (const struct sockaddr *)&address->storage, address->len);
    assert_int_equal(rc, 0);
    if (address->storage.ss_family != AF_UNIX) { /* else small writes wait for delayed ACKs */
        int one = 1;
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    }
    return fd;
}

/* Returns: false when the connection is broken. */
static inline bool test_try_send(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return false;
        }
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

static inline void test_send(int fd, struct str text) {
    assert_true(test_try_send(fd, text.ptr, text.len));
}

/* Sends `n` zero bytes in large pieces. Returns: false when the server closed the connection. */
static inline bool test_send_zeros(int fd, size_t n) {
    static char zeros[1 << 20];
    bool alive = true;
    while (alive && n > 0) {
        size_t piece = n < sizeof(zeros) ? n : sizeof(zeros);
        alive = test_try_send(fd, zeros, piece);
        n -= piece;
    }
    return alive;
}

/* Reads exactly `n` bytes. Returns: fewer when the connection ends before. */
static inline size_t test_read(int fd, char *out, size_t n) {
    size_t got = 0;
    while (got < n) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 60000) == 0) {
            fail_msg("no answer; so far: %.*s", (int)got, out);
        }
        ssize_t r = recv(fd, out + got, n - got, 0);
        if (r <= 0) {
            break;
        }
        got += (size_t)r;
    }
    return got;
}

static inline bool test_is_closed(int fd) {
    char byte;
    return test_read(fd, &byte, 1) == 0;
}

/* Sends a byte now and then until a response arrives or the connection ends. */
static inline void test_trickle(int fd, char byte) {
    bool alive = true;
    for (int i = 0; alive && i < 100000; i++) {
        alive = test_try_send(fd, &byte, 1);
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        alive = alive && poll(&answer, 1, 10) == 0;
    }
}

/* Closes with a reset. */
static inline void test_reset(int fd) {
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(fd);
}

/* Waits until a counter has the value. */
static inline void test_wait_for(const atomic_int *counter, int value) {
    while (atomic_load(counter) < value) {
        usleep(1000);
    }
}

#endif
